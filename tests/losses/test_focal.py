"""The focal loss against cross entropy, its binary form and its limits at p_t = 0 and p_t = 1."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import sparring
from sparring.functional import focal_loss

ENDS = torch.tensor([[200.0, 0.0, 0.0], [-200.0, 0.0, 0.0], [16.0, 0.0, 0.0]])  # p_t = 1, 0 and 1 − 2e-7


def test_gamma_zero_is_cross_entropy() -> None:
    logits, target = (torch.randn(50, 9) * 3).requires_grad_(), torch.randint(9, (50,))
    values = (focal_loss(logits, target, gamma=0), F.cross_entropy(logits, target))
    torch.testing.assert_close(*values)
    torch.testing.assert_close(*(torch.autograd.grad(value, logits)[0] for value in values))


@pytest.mark.parametrize("gamma", [0.5, 2.0, 5.0])
def test_two_classes_are_the_binary_form(gamma: float) -> None:
    """The authors' form: binary cross entropy of the difference of the logits, times (1 − p_t)^γ."""
    logits = (torch.randn(50, 2, dtype=torch.float64) * 3).requires_grad_()
    target = torch.randint(2, (50,))
    score, label = logits[:, 1] - logits[:, 0], target.double()
    p_t = torch.where(target == 1, score.sigmoid(), 1 - score.sigmoid())
    entropy = F.binary_cross_entropy_with_logits(score, label, reduction="none")
    values = (focal_loss(logits, target, reduction="none", gamma=gamma), (1 - p_t) ** gamma * entropy)
    torch.testing.assert_close(*values)
    torch.testing.assert_close(*(torch.autograd.grad(value.sum(), logits)[0] for value in values))


@pytest.mark.parametrize("gamma", [0.01, 0.5, 1.0, 1.5, 2.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
def test_derivatives_are_finite_at_both_ends(gamma: float, dtype: torch.dtype) -> None:
    """Below γ = 1 the derivative of (1 − p_t)^γ is infinite at p_t = 1; that of the loss is not."""
    logits, target = ENDS.to(dtype), torch.zeros(3, dtype=torch.long)

    def f(x: torch.Tensor) -> torch.Tensor:
        return focal_loss(x, target, reduction="sum", gamma=gamma)

    value, grad = focal_loss(logits, target, reduction="none", gamma=gamma), torch.func.grad(f)(logits)
    assert value[0] == 0
    assert value[1] == 200 + torch.log(torch.tensor(2.0, dtype=dtype))
    torch.testing.assert_close(grad[:2], torch.tensor([[0, 0, 0], [-1, 0.5, 0.5]], dtype=dtype))
    assert (grad[2].abs() < 2e-6).all()
    for second in (torch.func.hessian(f)(logits), torch.func.jacrev(torch.func.jacrev(f))(logits)):
        assert second.isfinite().all()


@pytest.mark.parametrize("gamma", [0.0, 0.5, 2.0])
def test_a_masked_target_has_the_gradient_of_cross_entropy(gamma: float) -> None:
    logits, target = torch.tensor([[-torch.inf, 0.0, 1.0]]), torch.tensor([0])
    grad, expected = (
        torch.func.grad(lambda x, loss=loss: loss(x, target))(logits)
        for loss in (sparring.FocalLoss(gamma), F.cross_entropy)
    )
    torch.testing.assert_close(grad, expected)
    tangent = torch.func.jvp(lambda x: focal_loss(x, target, gamma=gamma), (logits,), (torch.ones(1, 3),))[1]
    assert tangent.isfinite()


def test_a_sure_row_is_not_won() -> None:
    assert sparring.FocalLoss().rows(ENDS, torch.zeros(3, dtype=torch.long)).active.all()
