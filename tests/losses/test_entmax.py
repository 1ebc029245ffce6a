"""Comparison with the `entmax` package, where that works."""

from __future__ import annotations

import entmax
import pytest
import torch

import sparring

PAIRS = {
    "sparsemax": (sparring.SparsemaxLoss, entmax.SparsemaxLoss),
    "entmax15": (sparring.Entmax15Loss, entmax.Entmax15Loss),
}


@pytest.mark.parametrize(("loss", "package_loss"), PAIRS.values(), ids=PAIRS.keys())
@pytest.mark.parametrize("spread", [0.3, 2.0])
def test_equals_the_package(
    loss: type[sparring.Loss], package_loss: type[torch.nn.Module], spread: float
) -> None:
    logits = (torch.randn(50, 9, dtype=torch.float64) * spread).requires_grad_()
    target = torch.randint(9, (50,))
    kwargs = {"k": None} if loss is sparring.Entmax15Loss else {}
    value = loss(reduction="none")(logits, target)
    expected = package_loss(reduction="none", **kwargs)(logits, target)
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(*(torch.autograd.grad(x.sum(), logits)[0] for x in (value, expected)))


@pytest.mark.parametrize(("loss", "lead"), [(sparring.SparsemaxLoss, 1.0), (sparring.Entmax15Loss, 2.0)])
def test_margin_at_which_a_row_is_won(loss: type[sparring.Loss], lead: float) -> None:
    logits = torch.tensor([[lead + 0.01, 0.0, 0.0], [lead - 0.01, 0.0, -5.0]])
    rows = loss().rows(logits, torch.tensor([0, 0]))
    assert rows.won.tolist() == [True, False]


def test_what_the_package_does_not_do() -> None:
    # in the package, the default ignore_index reaches the index operation
    logits, target = torch.randn(4, 5), torch.tensor([0, 1, -100, 2])
    with pytest.raises((RuntimeError, IndexError)):
        entmax.SparsemaxLoss()(logits, target)
    assert sparring.SparsemaxLoss()(logits, target).isfinite()
