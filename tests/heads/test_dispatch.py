"""Which implementation runs, and why Triton cannot; the self-check itself runs in `triton_cases.py`."""

import importlib.util
import warnings

import pytest
import torch

from sparring.losses.kernels import implementation
from sparring.losses.kernels.implementation import choose_impl


@pytest.fixture(autouse=True)
def _forget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARRING_IMPL", raising=False)
    implementation._self_check.cache_clear()


def test_why_triton_cannot_run(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = implementation._missing.__wrapped__
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (7, 5))
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: object())
    assert "compute capability 7.5" in problem("cuda:1")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))
    assert problem("cuda:1") is None
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert "no CUDA device" in problem("cuda:1")
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    assert "needs a CUDA device" in problem("cpu")
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    assert "not installed" in problem("cuda:0")


def test_wrong_kernels_are_reported_once_and_never_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    checks: list[tuple[str, torch.dtype]] = []

    def kernel_error(device: str, dtype: torch.dtype) -> str | None:
        checks.append((device, dtype))
        return "they are off by 0.1" if dtype == torch.float32 else None

    monkeypatch.setattr(implementation, "_missing", lambda _: None)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(implementation, "kernel_error", kernel_error)
    device = torch.device("cuda:0")
    with pytest.warns(RuntimeWarning, match=r"not used on cuda:0 for torch.float32: they are off by 0.1"):
        assert choose_impl("auto", device, torch.float32, has_rule=True) == "torch"
    with warnings.catch_warnings():  # as errors
        assert choose_impl("auto", device, torch.float32, has_rule=True) == "torch"
        assert choose_impl("auto", device, torch.bfloat16, has_rule=True) == "triton"
        with pytest.raises(ValueError, match=r'impl="triton" cannot run here: they are off by 0.1'):
            choose_impl("triton", device, torch.float32, has_rule=True)
    assert checks == [("cuda:0", torch.float32), ("cuda:0", torch.bfloat16)]
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    assert choose_impl("auto", device, torch.bfloat16, has_rule=True) == "torch"


def test_the_environment_overrides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(implementation, "triton_problem", lambda *_: None)
    device = torch.device("cuda:0")
    monkeypatch.setenv("SPARRING_IMPL", "torch")
    assert choose_impl("triton", device, torch.float32, has_rule=True) == "torch"
    monkeypatch.setenv("SPARRING_IMPL", "triton")
    assert choose_impl("torch", device, torch.float32, has_rule=True) == "triton"
    assert choose_impl("auto", device, torch.float32, has_rule=False) == "torch"
    monkeypatch.setattr(implementation, "triton_problem", lambda *_: "they are wrong")
    with pytest.raises(ValueError, match='SPARRING_IMPL="triton" cannot run here: they are wrong'):
        choose_impl("auto", device, torch.float32, has_rule=True)
    monkeypatch.setenv("SPARRING_IMPL", "cuda")
    with pytest.raises(ValueError, match="SPARRING_IMPL must be one of"):
        choose_impl("auto", device, torch.float32, has_rule=True)


def test_rows_of_the_self_check_are_of_every_kind_and_far_from_a_margin() -> None:
    for n_classes in implementation._CLASSES:
        logits, target, valid = implementation.check_rows(n_classes, "cpu", torch.bfloat16)
        p = logits.double().softmax(1)
        p_t = p.gather(1, target[:, None])
        rivals = p.scatter(1, target[:, None], -1).amax(1, keepdim=True)
        lead = (p_t - rivals)[valid]
        assert (lead > 0.3).any()
        assert (lead < -0.5).any()
        assert (lead.abs() < 0.3).any()
        assert (p_t - p - 0.3).abs().min() > 1e-3
        assert (lead + 0.5).abs().min() > 1e-3
        gap = logits.double().gather(1, target[:, None]) - logits.double()
        assert (gap - 2).abs().min() > 1e-3


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
    monkeypatch.setattr(implementation, "triton_problem", lambda *_: problem)
    if expected is None:
        with pytest.raises(ValueError, match="cannot run here"):
            choose_impl(impl, torch.device(device), dtype, has_rule=has_rule)
    else:
        assert choose_impl(impl, torch.device(device), dtype, has_rule=has_rule) == expected
