"""Calibration against torchmetrics, scikit-learn, scipy and a loop."""

from __future__ import annotations

import pytest
import torch
from scipy.optimize import minimize_scalar
from sklearn.metrics import log_loss
from torch import Tensor
from torchmetrics.functional.classification import multiclass_calibration_error

from sparring.lab.calibration import N_BINS, TEMPERATURES, RowScores, fit_temperature

N, C = 500, 7


@pytest.fixture
def rows() -> tuple[Tensor, Tensor]:
    """Logits that are right two times in three, and far too sure of it."""
    target = torch.randint(C, (N,))
    logits = torch.randn(N, C)
    logits[range(N), target] += 2
    return 4 * logits, target


def test_ece_is_that_of_torchmetrics(rows: tuple[Tensor, Tensor]) -> None:
    logits, target = rows
    for temperature in (1.0, 5.0):
        probabilities = (logits.double() / temperature).softmax(-1)
        expected = multiclass_calibration_error(probabilities, target, C, N_BINS, "l1")
        figures = RowScores.of(logits, target, temperature).figures()
        assert figures["ece"] == pytest.approx(float(expected), abs=1e-6)
        counts, confidence, accuracy = torch.tensor(figures["bins"], dtype=torch.float64).T
        assert counts.sum() == N
        assert figures["ece"] == pytest.approx(float((counts * (accuracy - confidence).abs()).sum() / N))


def test_brier_and_nll_are_those_of_others(rows: tuple[Tensor, Tensor]) -> None:
    logits, target = rows
    probabilities = logits.double().softmax(-1)
    figures = RowScores.of(logits, target).figures()
    assert figures["nll"] == pytest.approx(log_loss(target, probabilities, labels=list(range(C))))
    one_hot = torch.nn.functional.one_hot(target, C)
    assert figures["brier"] == pytest.approx(float((probabilities - one_hot).square().sum(-1).mean()))


def test_aurc_by_a_loop(rows: tuple[Tensor, Tensor]) -> None:
    logits, target = rows
    order = sorted(range(N), key=lambda i: -float(logits[i].double().softmax(-1).max()))
    risks, n_wrong = [], 0
    for n_covered, i in enumerate(order, 1):
        n_wrong += int(logits[i].argmax() != target[i])
        risks.append(n_wrong / n_covered)
    assert RowScores.of(logits, target).figures()["aurc"] == pytest.approx(sum(risks) / N)


def test_the_temperature_is_scipys_and_helps_on_other_rows(rows: tuple[Tensor, Tensor]) -> None:
    logits, target = rows
    dev, test = slice(0, N // 2), slice(N // 2, N)
    temperature = fit_temperature(logits[dev], target[dev])

    def nll(log_temperature: float) -> float:
        return float(RowScores.of(logits[dev], target[dev], 2.718281828**log_temperature).nll.mean())

    assert temperature == pytest.approx(2.718281828 ** minimize_scalar(nll, bracket=(-1, 2)).x, rel=1e-4)
    assert temperature is not None
    before = RowScores.of(logits[test], target[test]).figures()
    after = RowScores.of(logits[test], target[test], temperature).figures()
    assert after["ece"] < 0.5 * before["ece"]
    assert after["nll"] < before["nll"]


def test_where_there_is_no_best_temperature() -> None:
    logits = torch.eye(3)
    assert fit_temperature(logits, torch.arange(3)) is None  # all right: the lower the better
    assert fit_temperature(logits[:0], torch.arange(0)) is None
    worst = fit_temperature(logits, torch.tensor([1, 2, 0]))  # all wrong: the higher the better
    assert worst == pytest.approx(TEMPERATURES[1], rel=1e-3)
