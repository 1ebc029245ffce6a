"""Run by all_ranks.py: a class-parallel head equals the unsharded one on every rank."""

import copy
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

import sparring
from sparring import ClassParallelHead, LinearLoss
from sparring.losses import ASSoftmaxLoss, Loss, SoftmaxLoss, SparseSoftmaxLoss
from sparring.losses.rows import EXTRAS

LOSSES: list[tuple[type[Loss], dict[str, Any]]] = [
    (SoftmaxLoss, {}),
    (SoftmaxLoss, {"concede": 0.2}),
    (ASSoftmaxLoss, {"delta": 0.3}),
    (ASSoftmaxLoss, {"delta": 0.3, "concede": 0.2}),
    (ASSoftmaxLoss, {"delta": 0.0}),
    (sparring.ASLogitLoss, {"margin": 1.0}),
    (SparseSoftmaxLoss, {"k": 5}),
    (SparseSoftmaxLoss, {"k": 1}),
]
BATCHES = ("mixed", "all won", "all ignored", "one row")
H = 8


def batch(name: str, whole: LinearLoss, n_classes: int, seed: int, n: int = 13) -> tuple[Tensor, Tensor]:
    """Rows that are won, undecided, lost and ignored."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(1 if name == "one row" else 4 * n, H, generator=generator).to(whole.linear.weight.dtype)
    if name == "all won":  # the clearest of them
        x = x * 30
        first, second = whole.logits(x).topk(2, 1).values.T
        x = x[(first - second).argsort(descending=True)]
    x = x[:n]
    target = whole.logits(x).argmax(1)
    if name == "mixed":
        target[::3] = torch.randint(n_classes, (len(target[::3]),), generator=generator)
        target[4::5] = -100
    if name == "all ignored":
        target[:] = -100
    return x, target


def unsharded_head(
    loss: type[Loss], settings: dict[str, Any], n_classes: int, reduction: str, weighted: bool
) -> LinearLoss:
    """The same on all ranks."""
    torch.manual_seed(n_classes)
    weight = torch.rand(n_classes) if weighted else None
    whole = LinearLoss(H, n_classes, loss=loss(**settings, weight=weight, reduction=reduction))
    whole.linear.weight.data *= 5
    return whole


def assert_close(actual: Tensor, expected: Tensor, tolerance: float, case: Any) -> None:
    torch.testing.assert_close(
        actual, expected, rtol=tolerance, atol=tolerance, msg=lambda text: f"{case}: {text}"
    )


def compare(
    whole: LinearLoss,
    head: ClassParallelHead,
    x: Tensor,
    target: Tensor,
    own: slice,
    case: Any,
    upstream: Tensor,
) -> None:
    """Loss to 1e-6, gradients to 1e-5, active, valid and conceded rows exactly. ``own``: this rank's rows."""
    whole_x = x.clone().requires_grad_()
    own_x = x[own].clone().requires_grad_()
    expected = whole(whole_x, target)
    loss = head(own_x, target[own])
    assert_close(loss, expected[own] if expected.dim() else expected, 1e-6, case)
    rows = head.rows(x[own], target[own])
    expected_rows = whole.rows(x, target)
    assert torch.equal(rows.active, expected_rows.active), case
    assert torch.equal(rows.valid, expected_rows.valid), case
    assert (rows.conceded is None) == (expected_rows.conceded is None), case
    if rows.conceded is not None:
        assert torch.equal(rows.conceded, expected_rows.conceded), case
    expected.backward(upstream if expected.dim() else upstream.sum())
    loss.backward(upstream[own] if expected.dim() else upstream.sum())
    scale = head.collectives.size if head.inputs == "gathered" and head.averaged else 1
    assert_close(own_x.grad, whole_x.grad[own] * scale, 1e-5, case)
    for parameter, whole_parameter in zip(head.parameters(), whole.linear.parameters(), strict=True):
        assert_close(parameter.grad.full_tensor(), whole_parameter.grad, 1e-5, case)


def compare_extras(whole: LinearLoss, x: Tensor, target: Tensor, own: slice, case: Any, options: Any) -> None:
    """Extras and row weights, and their gradients, against materialised logits; all in float64."""
    layer = copy.deepcopy(whole.linear).double()
    loss = type(whole.loss)(**whole.loss.settings(), weight=whole.loss.weight)
    head = ClassParallelHead.from_linear(layer, loss=loss, **options)
    whole_x = x.double().requires_grad_()
    own_x = x[own].double().requires_grad_()
    row_weight = torch.rand(len(x), generator=torch.Generator().manual_seed(0))
    expected = loss.rows(layer(whole_x), target, row_weight=row_weight, extras=EXTRAS)
    rows = head.rows(own_x, target[own], row_weight=row_weight[own], extras=EXTRAS)
    assert torch.equal(rows.extras["correct"], expected.extras["correct"]), case
    values = []
    for part in (rows, expected):
        value = part.mean()
        for i, name in enumerate(EXTRAS[:-1], 1):
            assert_close(rows.extras[name], expected.extras[name], 1e-9, (case, name))
            value = value + i * (part.extras[name] * row_weight).sum()
        values.append(value)
    assert_close(*values, 1e-9, case)
    for value in values:
        value.backward()
    scale = head.collectives.size if head.inputs == "gathered" and head.averaged else 1
    assert_close(own_x.grad, whole_x.grad[own] * scale, 1e-9, case)
    for parameter, whole_parameter in zip(head.parameters(), layer.parameters(), strict=True):
        assert_close(parameter.grad.full_tensor(), whole_parameter.grad, 1e-9, case)


def cases() -> Iterator[tuple[Any, ...]]:
    """Every loss with every kind of batch and every reduction; few classes and class weights."""
    for loss, settings in LOSSES:
        for inputs in ("replicated", "gathered"):
            for name in BATCHES:
                yield loss, settings, 37, "mean", False, name, inputs
            yield loss, settings, 37, "none", False, "mixed", inputs
        for reduction, inputs in (("sum", "gathered"), ("mean", "replicated"), ("none", "gathered")):
            yield loss, settings, 37, reduction, True, "mixed", inputs
        yield loss, settings, 5, "mean", False, "mixed", "gathered"
        yield loss, settings, 2, "none", False, "mixed", "replicated"


def check_all(group: Any, part: int) -> int:
    """One part of three of all cases, on the ranks of a group; returns their number.

    A part has each case of ``cases`` with a third of the losses, and each loss with a third of the cases.
    """
    n_of_loss = len(list(cases())) // len(LOSSES)
    numbers = [(n, case) for n, case in enumerate(cases(), 1) if (n + (n - 1) // n_of_loss) % 3 == part]
    for n, case in numbers:
        check(n, case, group)
    return len(numbers)


def check(n: int, case: tuple[Any, ...], group: Any) -> None:
    loss, settings, n_classes, reduction, weighted, name, inputs = case
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    whole = unsharded_head(loss, settings, n_classes, reduction, weighted)
    can_win = settings.get("delta", 1) < 1 or "margin" in settings
    if name == "all won" and not can_win:  # logits of some hundreds: float32 has five digits of them
        whole = whole.double()
    own_loss = loss(**settings, weight=whole.loss.weight, reduction=reduction)
    options = {"inputs": inputs, "averaged": n % 2 == 0, "chunk_rows": (None, 7)[n % 2], "group": group}
    head = ClassParallelHead.from_linear(whole.linear, loss=own_loss, **options)
    x, target = batch(name, whole, n_classes, n)
    assert head.weight.to_local().shape == (head.shard.size, H)
    assert head.shard.size <= -(-n_classes // size)
    bounds = [len(x) * i**2 // size**2 for i in range(size + 1)]  # uneven, and some without rows
    own = slice(None) if inputs == "replicated" else slice(bounds[rank], bounds[rank + 1])
    upstream = torch.rand(len(x), generator=torch.Generator().manual_seed(n))
    rows = whole.rows(x, target)
    assert not (name == "all won" and can_win) or rows.won.all(), case
    assert not (name == "mixed" and n_classes > 2 and "concede" in settings) or rows.conceded.any(), case
    compare(whole, head, x, target, own, case, upstream.to(x.dtype))
    if name == "mixed" and reduction == "mean":
        compare_extras(whole, x, target, own, case, options)
    if not weighted and (reduction == "mean" or n_classes < 37):
        k = min(3, n_classes)
        predicted, expected = head.predict(x[own], k), whole.logits(x).topk(k, 1)
        assert_close(predicted.values, expected.values[own], 1e-5, case)
        assert torch.equal(predicted.indices, expected.indices[own]), case
