"""Symmetric cross entropy against its definition with clamped labels, and against its two terms."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import sparring


def reverse_cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    """−Σ p_i log y_i, with labels y of at least exp(−4)."""
    labels = F.one_hot(target, logits.shape[1]).to(logits.dtype).clamp(min=math.exp(-4))
    return -(logits.softmax(1) * labels.log()).sum(1)


@pytest.mark.parametrize(("alpha", "beta"), [(0.1, 1.0), (6.0, 0.1), (0.0, 1.0), (1.0, 0.0)])
def test_equals_cross_entropy_and_its_reverse(alpha: float, beta: float) -> None:
    logits = (torch.randn(50, 9, dtype=torch.float64) * 3).requires_grad_()
    target = torch.randint(9, (50,))
    value = sparring.SCELoss(alpha, beta, reduction="none")(logits, target)
    cross_entropy = F.cross_entropy(logits, target, reduction="none")
    expected = alpha * cross_entropy + beta * reverse_cross_entropy(logits, target)
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(*(torch.autograd.grad(x.sum(), logits)[0] for x in (value, expected)))


def test_a_sure_row_is_not_won() -> None:
    rows = sparring.SCELoss().rows(torch.tensor([[100.0, 0.0], [-100.0, 0.0]]), torch.tensor([0, 0]))
    assert rows.active.all()
    torch.testing.assert_close(rows.value, torch.tensor([0.0, 0.1 * 100 + 4]))
