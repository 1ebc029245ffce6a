"""The doctor: correct kernels pass, a kernel that was made wrong is found, skipped lines say why."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from torch import Tensor

import sparring
from sparring.cli import main
from sparring.diagnosis import paths
from sparring.diagnosis.paths import check_paths
from sparring.diagnosis.report import OK, SKIPPED, WRONG
from sparring.diagnosis.twin import rows, twin
from sparring.losses import as_softmax
from sparring.losses.kernels import dense_mean, margin_softmax_dense, rule

CPU = torch.device("cpu")


@pytest.fixture
def _no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "_compiled", lambda _: iter(()))


def test_the_twin_is_the_reference() -> None:
    logits, target = rows(64, 20)
    value, grad = twin(logits, target, 0.3)
    x = logits.double().requires_grad_()
    expected = sparring.functional.as_softmax_loss(x, target, delta=0.3)
    assert value == pytest.approx(expected.item(), abs=1e-6)
    torch.testing.assert_close(grad, torch.autograd.grad(expected, x)[0], atol=1e-6, rtol=0)


@pytest.mark.usefixtures("_no_compiler")
def test_every_path_on_cpu_is_right_or_says_why_it_is_skipped() -> None:
    findings = list(check_paths(CPU))
    assert {finding.status for finding in findings} <= {OK, SKIPPED}
    assert sum(finding.status == OK for finding in findings) >= 9
    assert all(finding.detail for finding in findings)


@pytest.mark.usefixtures("_no_compiler")
def test_a_wrong_kernel_is_found(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def wrong(*args: Any) -> tuple[Tensor, Tensor | None, Tensor]:
        remaining, conceded, grad = margin_softmax_dense.dense_sums(*args)
        return remaining, conceded, grad.mul_(1.001)

    monkeypatch.setattr(dense_mean, "dense_sums", wrong)
    assert main(["doctor", "--only", "kernels", "--device", "cpu"]) == 1
    assert f"loss, cpu                       {WRONG}" in capsys.readouterr().out
    assert main(["doctor", "--only", "kernels", "--device", "cpu", "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert not report["ok"]
    assert next(f["name"] for f in report["findings"] if f["status"] == WRONG) == "loss, cpu"


@pytest.mark.parametrize("factor", [0.95, 1.05])
def test_a_margin_that_is_a_little_off_is_found(monkeypatch: pytest.MonkeyPatch, factor: float) -> None:
    """The rows have opponents on both sides of the margin, closer than that."""
    real = rule._probability_floor
    monkeypatch.setattr(rule, "_probability_floor", lambda x, delta: real(x, delta).mul_(factor))
    rule._cached_probability_rule.cache_clear()
    as_softmax._constant_rule.cache_clear()
    try:
        finding = paths.judge("loss", paths.loss, CPU, torch.float32)
    finally:
        rule._cached_probability_rule.cache_clear()
        as_softmax._constant_rule.cache_clear()
    assert finding.status == WRONG


def test_a_kernel_that_raises_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> Any:
        raise RuntimeError("no such instruction\nin line 3")

    finding = paths.judge("loss, cpu", broken, CPU, torch.float32)
    assert (finding.status, finding.detail) == (WRONG, "RuntimeError: no such instruction")


def test_the_other_sections() -> None:
    state = torch.random.get_rng_state()
    diagnosis = sparring.doctor(device="cpu", only=["machine", "skipping", "syncs", "choice"])
    assert diagnosis.ok
    assert torch.equal(torch.random.get_rng_state(), state)
    table = str(diagnosis)
    assert "4 of 16 samples" in table
    assert "only a CUDA device counts them" in table
    assert "torch: Triton is for CUDA devices" in table
    assert table.endswith("skipped")
    with pytest.raises(ValueError, match="no section 'kernel'; expected machine, kernels"):
        sparring.doctor(only=["kernel"])


def test_times_are_ratios(monkeypatch: pytest.MonkeyPatch) -> None:
    from sparring.diagnosis import doctor

    monkeypatch.setattr(doctor, "_SECONDS", 0.0)
    monkeypatch.setattr(doctor, "_SHAPES", ((16, 5),))
    findings = sparring.doctor(device="cpu", only=["times"]).findings
    assert [finding.name.split(",")[0] for finding in findings] == ["loss", "fused head", "skipping step"]
    assert all(finding.value > 0 for finding in findings)
