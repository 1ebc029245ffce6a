"""A hub that does not answer is noticed at once, and its libraries are told."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from huggingface_hub import constants

from sparring.lab.models import offline


@pytest.fixture(autouse=True)
def _anew(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    for name in offline.PROXIES:
        monkeypatch.delenv(name, raising=False)
    offline.look_for_hub.cache_clear()
    yield
    offline.look_for_hub.cache_clear()


def test_nobody_there(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # and not listening
        monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{closed.getsockname()[1]}")
        assert not offline.look_for_hub()
    assert constants.is_offline_mode()


def test_somebody_there(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{server.getsockname()[1]}")
        assert offline.look_for_hub()
    assert not constants.is_offline_mode()


def test_behind_a_proxy_only_a_request_can_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:1")
    assert offline.look_for_hub()
    assert not constants.is_offline_mode()


def test_told_to_stay_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(socket, "create_connection", lambda *_: pytest.fail("asked the network"))
    assert not offline.look_for_hub()
