"""Who does the work, and why not."""

from __future__ import annotations

import importlib.util

import pytest
import torch

from sparring.heads import dispatch as heads
from sparring.heads.dispatch import choose_impl


def test_why_triton_cannot_run(monkeypatch: pytest.MonkeyPatch) -> None:
    why = heads._why_no_triton.__wrapped__
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (7, 5))
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: object())
    assert "compute capability 7.5" in why("cuda:1")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))
    assert why("cuda:1") is None
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    assert "needs a CUDA device" in why("cpu")
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    assert "not installed" in why("cuda:0")


@pytest.mark.parametrize(
    ("impl", "device", "dtype", "has_rule", "why_not", "chosen"),
    [
        ("auto", "cpu", torch.float32, True, None, "torch"),
        ("auto", "cuda", torch.float32, True, None, "triton"),
        ("auto", "cuda", torch.bfloat16, True, None, "triton"),
        ("auto", "cuda", torch.float32, True, "not installed", "torch"),
        ("auto", "cuda", torch.float64, True, None, "torch"),
        ("auto", "cuda", torch.float32, False, None, "torch"),
        ("auto", "mps", torch.float32, True, None, "torch"),
        ("torch", "cuda", torch.float32, True, None, "torch"),
        ("triton", "cuda", torch.float32, True, None, "triton"),
        ("triton", "cpu", torch.float32, True, None, "triton"),
        ("triton", "cuda", torch.float32, True, "not installed", None),
        ("triton", "cuda", torch.float64, True, None, None),
        ("triton", "cuda", torch.float32, False, None, None),
    ],
)
def test_who_does_the_work(
    impl: str, device: str, dtype: torch.dtype, has_rule: bool, why_not: str | None, chosen: str | None
) -> None:
    def choice() -> str:
        return choose_impl(impl, device=device, dtype=dtype, has_rule=has_rule, why_not=why_not)

    if chosen is None:
        with pytest.raises(ValueError, match="cannot run here"):
            choice()
    else:
        assert choice() == chosen
