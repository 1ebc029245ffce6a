"""Which implementation runs, and why Triton cannot."""

import importlib.util

import pytest
import torch

from sparring.heads import dispatch


def test_why_triton_cannot_run(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = dispatch._triton_problem.__wrapped__
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (7, 5))
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: object())
    assert "compute capability 7.5" in problem("cuda:1")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))
    assert problem("cuda:1") is None
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    assert "needs a CUDA device" in problem("cpu")
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    assert "not installed" in problem("cuda:0")


@pytest.mark.parametrize(
    ("impl", "device", "dtype", "has_rule", "problem", "expected"),
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
def test_choose_impl(
    monkeypatch: pytest.MonkeyPatch,
    impl: str,
    device: str,
    dtype: torch.dtype,
    has_rule: bool,
    problem: str | None,
    expected: str | None,
) -> None:
    monkeypatch.setattr(dispatch, "triton_problem", lambda _: problem)
    if expected is None:
        with pytest.raises(ValueError, match="cannot run here"):
            dispatch.choose_impl(impl, torch.device(device), dtype, has_rule=has_rule)
    else:
        assert dispatch.choose_impl(impl, torch.device(device), dtype, has_rule=has_rule) == expected
