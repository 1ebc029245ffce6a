"""Calibration: whether predicted probabilities can be trusted, and temperature scaling.

Probabilities are those of `sparring predict`: the softmax of the logits, whatever the loss in training was.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

FIGURES = ("ece", "brier", "nll", "aurc")
N_BINS = 15  # of the confidence, from 0 to 1
MOST_VALUES = 20_000_000  # logits that a temperature is fitted on
TEMPERATURES = (0.02, 50.0)  # the range of the fit


class RowScores(NamedTuple):
    """What calibration needs of each row, as 1-D tensors."""

    confidence: Tensor  # probability of the predicted class
    correct: Tensor  # whether it is the target
    nll: Tensor  # negative log-likelihood of the target
    brier: Tensor  # squared error of all probabilities

    @classmethod
    def of(cls, logits: Tensor, target: Tensor, temperature: float = 1.0) -> RowScores:
        """The scores of logits (N, C) and class indices (N)."""
        log_p = torch.log_softmax(logits.double() / temperature, -1)
        confidence, predicted = log_p.exp().max(-1)
        nll = -log_p.gather(-1, target[:, None]).squeeze(-1)
        # sum of (p - y)² over the classes, y being 1 for the target and 0 elsewhere
        brier = log_p.mul(2).exp().sum(-1) - 2 * (-nll).exp() + 1
        return cls(confidence, predicted == target, nll, brier)

    @classmethod
    def joined(cls, parts: Sequence[RowScores]) -> RowScores:
        """The rows of all parts."""
        return cls(*(torch.cat(tensors) for tensors in zip(*parts, strict=True)))

    def figures(self) -> dict[str, Any]:
        """`FIGURES`, and ``bins`` for a reliability diagram: rows, mean confidence and accuracy of each.

        ECE and AURC are shares between 0 and 1, the Brier score lies between 0 and 2. ECE has 15 bins of
        equal width. AURC is the mean, over all coverages, of the error rate among the most confident rows.
        """
        edges = torch.linspace(0, 1, N_BINS + 1, dtype=torch.float64)
        bins = (torch.bucketize(self.confidence.cpu(), edges) - 1).clamp(0, N_BINS - 1)
        correct, confidence = self.correct.double().cpu(), self.confidence.cpu()
        counts = torch.bincount(bins, minlength=N_BINS).double()
        total_confidence = torch.bincount(bins, confidence, N_BINS)
        total_correct = torch.bincount(bins, correct, N_BINS)
        n_rows = len(correct)
        wrong = 1 - correct[confidence.argsort(descending=True, stable=True)]
        risks = wrong.cumsum(0) / torch.arange(1, n_rows + 1)
        filled = counts.clamp(min=1)
        columns = (counts.int(), total_confidence / filled, total_correct / filled)
        return {
            "ece": float((total_correct - total_confidence).abs().sum() / n_rows),
            "brier": float(self.brier.mean()),
            "nll": float(self.nll.mean()),
            "aurc": float(risks.mean()),
            "bins": [list(row) for row in zip(*(column.tolist() for column in columns), strict=True)],
        }


def fit_temperature(logits: Tensor, target: Tensor) -> float | None:
    """The temperature that minimises the negative log-likelihood (Guo et al. 2017).

    The likelihood is concave in the inverse temperature, so bisection of its derivative finds the optimum.

    Args:
        logits: (N, C), of samples that the network was not trained on.
        target: (N) class indices.

    Returns:
        The temperature, within `TEMPERATURES`; None without any row, or if every row is right: then a
        lower temperature is always better, and there is no optimum.

    Example:
        >>> logits = torch.tensor([[4.0, 0.0], [4.0, 0.0], [4.0, 0.0], [4.0, 0.0]])
        >>> fit_temperature(logits, torch.tensor([0, 0, 0, 1]))  # p = 3 / 4 is log 3 apart
        3.64...
    """
    if not len(target) or bool((logits.argmax(-1) == target).all()):
        return None
    logits = logits.double()
    observed = logits.gather(-1, target[:, None]).mean()
    low, high = (torch.tensor(edge).log() for edge in (1 / TEMPERATURES[1], 1 / TEMPERATURES[0]))
    for _ in range(40):
        middle = (low + high) / 2
        expected = (torch.softmax(middle.exp() * logits, -1) * logits).sum(-1).mean()
        low, high = (middle, high) if expected < observed else (low, middle)
    return float((-(low + high) / 2).exp())
