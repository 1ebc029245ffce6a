"""Class probabilities as targets: torch's F.cross_entropy is the oracle where it has the loss."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import sparring
from tests.cases import NAMES, is_multilabel

TAKERS = ("softmax", "t-softmax", "label-smoothing", "sparse-softmax")


def soft(*shape: int, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    """Logits that require a gradient, and class probabilities, classes in dim 1 or alone."""
    dim = min(1, len(shape) - 1)
    logits = torch.randn(*shape, dtype=dtype) * 3
    return logits.requires_grad_(), torch.rand(*shape, dtype=dtype).softmax(dim)


@pytest.mark.parametrize("shape", [(6,), (5, 6), (2, 6, 3)], ids=str)
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("weighted", [False, True])
def test_torch_agrees(shape: tuple[int, ...], reduction: str, weighted: bool) -> None:
    """Softmax, and through it a temperature and smoothed labels; shapes, weights and the divisor too."""
    logits, target = soft(*shape)
    weight = torch.rand(6, dtype=torch.float64) if weighted else None
    common: dict[str, Any] = {"weight": weight, "reduction": reduction}
    pairs = [
        (sparring.SoftmaxLoss(**common), F.cross_entropy(logits, target, **common)),
        (sparring.TSoftmaxLoss(0.5, **common), F.cross_entropy(logits / 0.5, target, **common)),
        (
            sparring.LabelSmoothingLoss(0.25, **common),  # torch's ε is ours times n/(n−1)
            F.cross_entropy(logits, target, label_smoothing=0.25 * 6 / 5, **common),
        ),
        (sparring.SparseSoftmaxLoss(k=6, **common), F.cross_entropy(logits, target, **common)),
    ]
    for loss, expected in pairs:
        actual = loss(logits, target)
        torch.testing.assert_close(actual, expected)
        upstream = torch.rand_like(expected)
        gradients = (
            torch.autograd.grad(x, logits, upstream, retain_graph=True)[0] for x in (actual, expected)
        )
        torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("name", TAKERS)
def test_probabilities_of_one_class_are_its_index(name: str) -> None:
    """With the gradient; sparse-softmax also for a target outside of the k largest."""
    settings = {"k": 2} if name == "sparse-softmax" else {}
    logits, _ = soft(7, 5)
    index = torch.randint(5, (7,))
    loss = sparring.make_loss(name, **settings)
    by_index, by_probability = loss(logits, index), loss(logits, F.one_hot(index, 5).double())
    torch.testing.assert_close(by_probability, by_index)
    torch.testing.assert_close(
        torch.autograd.grad(by_probability, logits)[0], torch.autograd.grad(by_index, logits)[0]
    )


def test_functions_half_precision_and_row_weights() -> None:
    logits, target = soft(4, 6, dtype=torch.float32)
    expected = F.cross_entropy(logits, target, reduction="none")
    weight = torch.rand(4)
    torch.testing.assert_close(sparring.functional.softmax_loss(logits, target), expected.mean())
    rows = sparring.SoftmaxLoss().rows(logits, target, row_weight=weight)
    torch.testing.assert_close(rows.value, expected * weight)
    assert rows.valid.all()
    assert rows.active.all()
    half = sparring.SoftmaxLoss().rows(logits.half(), target.half())
    assert half.value.dtype == torch.float32
    torch.testing.assert_close(half.value, expected, rtol=5e-3, atol=5e-3)


def test_a_masked_class_without_probability_costs_nothing() -> None:
    logits = torch.tensor([[0.0, 0.0, -torch.inf]], requires_grad=True)
    loss = sparring.SoftmaxLoss()(logits, torch.tensor([[0.5, 0.5, 0.0]]))
    loss.backward()
    torch.testing.assert_close(loss, torch.tensor(2.0).log())
    assert logits.grad is not None
    torch.testing.assert_close(logits.grad, torch.zeros(1, 3))


@pytest.mark.parametrize("name", [name for name in NAMES if name not in TAKERS and not is_multilabel(name)])
def test_others_say_what_to_use(name: str) -> None:
    logits, target = soft(3, 4)
    with pytest.raises(ValueError, match="For class probabilities, as of Mixup, use SoftmaxLoss"):
        sparring.make_loss(name)(logits, target)


def test_errors() -> None:
    logits, target = soft(3, 4)
    with pytest.raises(ValueError, match=r"number 1, that sums to 2, expected class probabilities"):
        sparring.SoftmaxLoss()(logits, torch.tensor([[1.0, 0, 0, 0], [0, 1, 1, 0], [0, 0, 1, 0]]).double())
    with pytest.raises(ValueError, match=r"a value of -1"):
        sparring.SoftmaxLoss()(logits, torch.tensor([[2.0, -1.0, 0.0, 0.0]] * 3).double())
    with pytest.raises(ValueError, match="concede compares one target class"):
        sparring.SoftmaxLoss(concede=0.5)(logits, target)
    with pytest.raises(ValueError, match="extras need one target class"):
        sparring.SoftmaxLoss().rows(logits, target, extras=("nll",))
    with pytest.raises(ValueError, match=r"weight has shape \(3,\), expected \(4,\)"):
        sparring.SoftmaxLoss(weight=torch.ones(3))(logits, target)
