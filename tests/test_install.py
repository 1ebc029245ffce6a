from __future__ import annotations

import pytest

from tests.install import uv_variables


def test_uv_looks_where_pip_looks() -> None:
    settings = r"""
:env:.default-timeout='180'
:env:.find-links='/wheels https://example.org/more'
global.disable-pip-version-check='true'
global.extra-index-url='\nfile:///a/simple\nfile:///b/simple'
global.find-links='/elsewhere'
global.index-url='https://example.org/global'
install.index-url='https://example.org/install?a=b'
list.format='columns'
"""
    assert uv_variables(settings) == {
        "UV_DEFAULT_INDEX": "https://example.org/install?a=b",
        "UV_FIND_LINKS": "/wheels,https://example.org/more",
        "UV_HTTP_TIMEOUT": "180",
        "UV_INDEX": "file:///a/simple file:///b/simple",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
    }


def test_a_setting_that_uv_does_not_know_is_no_guess() -> None:
    with pytest.raises(KeyError, match="client-cert"):
        uv_variables("global.client-cert='/key.pem'")
