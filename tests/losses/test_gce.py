"""Generalised cross entropy against its limits: cross entropy for q near 0, the absolute error for q = 1."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import sparring


def gradient(value: Tensor, logits: Tensor) -> Tensor:
    return torch.autograd.grad(value.sum(), logits)[0]


@pytest.fixture
def batch() -> tuple[Tensor, Tensor]:
    return torch.randn(50, 9, dtype=torch.float64).mul(3).requires_grad_(), torch.randint(9, (50,))


def test_q_near_zero_is_cross_entropy(batch: tuple[Tensor, Tensor]) -> None:
    logits, target = batch
    value = sparring.GCELoss(q=1e-9, reduction="none")(logits, target)
    expected = F.cross_entropy(logits, target, reduction="none")
    torch.testing.assert_close(value, expected, rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(gradient(value, logits), gradient(expected, logits), rtol=1e-6, atol=1e-7)


def test_q_one_is_half_the_absolute_error(batch: tuple[Tensor, Tensor]) -> None:
    logits, target = batch
    value = sparring.GCELoss(q=1, reduction="none")(logits, target)
    expected = F.l1_loss(logits.softmax(1), F.one_hot(target, 9).double(), reduction="none").sum(1) / 2
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(gradient(value, logits), gradient(expected, logits))


@pytest.mark.parametrize("q", [0.3, 0.7])
def test_the_gradient_is_that_of_cross_entropy_times_a_power_of_p(
    q: float, batch: tuple[Tensor, Tensor]
) -> None:
    logits, target = batch
    expected = gradient(F.cross_entropy(logits, target, reduction="sum"), logits)
    p_t = logits.detach().softmax(1).gather(1, target[:, None])
    value = sparring.GCELoss(q, reduction="sum")(logits, target)
    torch.testing.assert_close(gradient(value, logits), p_t**q * expected)


@pytest.mark.parametrize("lead", [-1e4, -100.0, -20.0, 20.0, 100.0, 1e4])
def test_no_row_is_too_sure_or_too_unsure(lead: float) -> None:
    logits = torch.tensor([[lead, 0.0, 0.0]], requires_grad=True)
    rows = sparring.GCELoss().rows(logits, torch.tensor([0]))
    exact = logits.detach().double().log_softmax(1)[0, 0]
    torch.testing.assert_close(rows.value.double()[0], (1 - exact.mul(0.7).exp()) / 0.7, rtol=1e-5, atol=1e-6)
    assert gradient(rows.value, logits).isfinite().all()
    assert rows.active.all(), "no valid row is won"
