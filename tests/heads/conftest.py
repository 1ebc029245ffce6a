"""Tests of the heads use few classes, and yet mean the chunked passes."""

import pytest

from sparring.heads import fused


@pytest.fixture(autouse=True)
def _chunks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Never store the logits, except in the tests of `test_fused.py`."""
    if request.path.name != "test_fused.py":
        monkeypatch.setattr(fused, "MAX_SIZE", 0)
