"""Plain softmax, and AS-Softmax at δ = 1, against F.cross_entropy on its own grid of cases."""

from __future__ import annotations

import itertools

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import sparring

SHAPES = [(5,), (6, 5), (1, 2), (300, 151), (6, 5, 4), (3, 5, 2, 4), (2, 3, 2, 1, 3)]
LOSSES = {
    "softmax": sparring.SoftmaxLoss,
    "as-softmax": lambda **kw: sparring.ASSoftmaxLoss(delta=1.0, **kw),
    "as-softmax-integer": lambda **kw: sparring.ASSoftmaxLoss(delta=1, **kw),
    "sparse-softmax": lambda **kw: sparring.SparseSoftmaxLoss(k=10_000, **kw),
    "as-logit": lambda **kw: sparring.ASLogitLoss(margin=float("inf"), **kw),
}


def ulps(a: Tensor, b: Tensor) -> float:
    """The largest distance, in units of the last place."""
    size = torch.maximum(a.abs(), b.abs())
    unit = torch.nextafter(size, torch.full_like(size, torch.inf)) - size
    return float(((a - b).abs() / unit).max())


def grid_batch(
    shape: tuple[int, ...], dtype: torch.dtype, ignored: int | None
) -> tuple[Tensor, Tensor, Tensor]:
    logits = torch.randn(shape, dtype=dtype) * 3
    n_classes = shape[min(1, len(shape) - 1)]
    target = torch.randint(n_classes, shape[:1] + shape[2:] if len(shape) > 1 else ())
    if ignored is not None and target.dim():
        target.view(-1)[::3] = ignored
        target.view(-1)[-1] = 0
    return logits.requires_grad_(), target, torch.rand(n_classes, dtype=dtype) + 0.1


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES.keys())
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_equals_cross_entropy(loss: type[sparring.SoftmaxLoss], shape: tuple[int, ...]) -> None:
    for dtype, weighted, ignored, reduction in itertools.product(
        (torch.float32, torch.float64), (False, True), (None, -100, 1), ("none", "mean", "sum")
    ):
        logits, target, weight = grid_batch(shape, dtype, ignored)
        kwargs = {
            "weight": weight if weighted else None,
            "ignore_index": -100 if ignored is None else ignored,
            "reduction": reduction,
        }
        value = loss(**kwargs)(logits, target)
        expected = F.cross_entropy(logits, target, **kwargs)
        assert value.shape == expected.shape
        if expected.isnan().any():
            assert value.item() == 0  # nothing valid: torch divides 0 by 0
            continue
        upstream = torch.rand_like(value)
        grads = [torch.autograd.grad(x, logits, upstream)[0] for x in (value, expected)]
        torch.testing.assert_close(value, expected)
        torch.testing.assert_close(*grads)


@pytest.mark.parametrize(
    "loss", [sparring.SoftmaxLoss(), sparring.ASSoftmaxLoss(delta=1.0)], ids=["softmax", "as-softmax"]
)
@pytest.mark.parametrize("shape", [(7, 5), (300, 151), (1000, 9), (64, 5201)], ids=str)
@pytest.mark.parametrize("spread", [1, 10, 300])
def test_to_the_last_digit(loss: sparring.Loss, shape: tuple[int, int], spread: float) -> None:
    logits = (torch.randn(shape) * spread).requires_grad_()
    target = torch.randint(shape[1], shape[:1])
    for reduction in ("none", "mean", "sum"):
        loss.reduction = reduction
        value = loss(logits, target)
        expected = F.cross_entropy(logits, target, reduction=reduction)
        assert torch.equal(value, expected), "the value, to the bit"
        grads = [torch.autograd.grad(x.sum(), logits)[0] for x in (value, expected)]
        assert ulps(*grads) <= 1, "the gradient, to one unit in the last place"


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int16, torch.uint8])
def test_integer_targets(dtype: torch.dtype) -> None:
    logits, target = torch.randn(6, 5), torch.randint(5, (6,))
    assert torch.equal(
        sparring.ASSoftmaxLoss()(logits, target.to(dtype)), sparring.ASSoftmaxLoss()(logits, target)
    )


def test_strided_logits_need_no_copy_of_their_own() -> None:
    tokens = torch.randn(4, 6, 5)  # (batch, length, classes), as a token classifier gives them
    target = torch.randint(5, (4, 6))
    loss = sparring.ASSoftmaxLoss()
    torch.testing.assert_close(
        loss(tokens.transpose(1, 2), target), loss(tokens.flatten(0, 1), target.flatten())
    )
    torch.testing.assert_close(
        loss(tokens.flatten(0, 1).t().contiguous().t(), target.flatten()),
        loss(tokens.flatten(0, 1), target.flatten()),
    )


def test_weight_moves_with_the_module() -> None:
    loss = sparring.ASSoftmaxLoss(weight=torch.ones(3))
    assert "weight" in loss.state_dict()
    assert loss.to(torch.float64).weight.dtype == torch.float64  # type: ignore[union-attr]


def test_label_smoothing_is_the_papers_not_torchs() -> None:
    logits, target = torch.randn(8, 5), torch.randint(5, (8,))
    epsilon, n = 0.2, 5
    value = sparring.LabelSmoothingLoss(epsilon)(logits, target)
    # torch gives ε/n to every class, the target included: this loss at ε is torch's at ε·n/(n−1)
    torch.testing.assert_close(value, F.cross_entropy(logits, target, label_smoothing=epsilon * n / (n - 1)))
    assert not torch.isclose(value, F.cross_entropy(logits, target, label_smoothing=epsilon))


def test_temperature_one_is_softmax() -> None:
    logits, target = torch.randn(8, 5), torch.randint(5, (8,))
    assert torch.equal(sparring.TSoftmaxLoss(1.0)(logits, target), sparring.SoftmaxLoss()(logits, target))
