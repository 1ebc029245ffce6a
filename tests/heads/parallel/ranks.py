"""Run by test_head.py under torchrun: a class-parallel head beside the unsharded one, on every rank. An error here is a failure there."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

import sparring
from sparring import ClassParallelHead, LinearLoss
from sparring.losses import ASSoftmaxLoss, Loss, SoftmaxLoss, SparseSoftmaxLoss

LOSSES: list[tuple[type[Loss], dict[str, Any]]] = [
    (SoftmaxLoss, {}),
    (ASSoftmaxLoss, {"delta": 0.3}),
    (ASSoftmaxLoss, {"delta": 0.0}),
    (sparring.ASLogitLoss, {"margin": 1.0}),
    (SparseSoftmaxLoss, {"k": 5}),
    (SparseSoftmaxLoss, {"k": 1}),
]
BATCHES = ("mixed", "all won", "all ignored", "one row")
H = 8


def batch(name: str, whole: LinearLoss, n_classes: int, seed: int, n: int = 13) -> tuple[Tensor, Tensor]:
    """Rows that are won, contested, lost and ignored."""
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


def layer(
    loss: type[Loss], settings: dict[str, Any], n_classes: int, reduction: str, weighted: bool
) -> LinearLoss:
    """The same on all ranks."""
    torch.manual_seed(n_classes)
    weight = torch.rand(n_classes) if weighted else None
    whole = LinearLoss(H, n_classes, loss(**settings, weight=weight, reduction=reduction))
    whole.linear.weight.data *= 5
    return whole


def close(a: Tensor, b: Tensor, tolerance: float, what: Any) -> None:
    torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance, msg=lambda text: f"{what}: {text}")


def compare(
    whole: LinearLoss,
    head: ClassParallelHead,
    x: Tensor,
    target: Tensor,
    own: slice,
    what: Any,
    upstream: Tensor,
) -> None:
    """Loss, verdicts and gradients. ``own``: this rank's rows."""
    a, b = x.clone().requires_grad_(), x[own].clone().requires_grad_()
    wanted, found = whole(a, target), head(b, target[own])
    gathered = head.inputs == "gathered"
    close(found, wanted[own] if wanted.dim() else wanted, 1e-6, what)
    rows, wanted_rows = head.rows(x[own], target[own]), whole.rows(x, target)
    assert torch.equal(rows.active, wanted_rows.active), what
    assert torch.equal(rows.valid, wanted_rows.valid), what
    wanted.backward(upstream if wanted.dim() else upstream.sum())
    found.backward(upstream[own] if wanted.dim() else upstream.sum())
    assert b.grad is not None
    close(b.grad, a.grad[own] * (head.wire.size if gathered and head.averaged else 1), 1e-5, what)
    for parameter, of_whole in ((head.weight, whole.linear.weight), (head.bias, whole.linear.bias)):
        grad = parameter.grad.full_tensor()
        close(grad, of_whole.grad, 1e-5, what)


def cases() -> Iterator[tuple[Any, ...]]:
    """Every loss with every reduction and kind of batch; small label spaces and class weights with the mixed one."""
    for (loss, settings), inputs in itertools.product(LOSSES, ("replicated", "gathered")):
        for reduction, name in itertools.product(("mean", "none"), BATCHES):
            yield loss, settings, 37, reduction, False, name, inputs
        yield loss, settings, 37, "sum", True, "mixed", inputs
        yield loss, settings, 37, "mean", True, "mixed", inputs
        yield loss, settings, 37, "none", True, "mixed", inputs
        yield loss, settings, 5, "mean", False, "mixed", inputs
        yield loss, settings, 2, "none", False, "mixed", inputs


def all_cases(group: Any) -> int:
    """On the ranks of a group; how many."""
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    n = 0
    for n, what in enumerate(cases(), 1):
        loss, settings, n_classes, reduction, weighted, name, inputs = what
        whole = layer(loss, settings, n_classes, reduction, weighted)
        wins = settings.get("delta", 1) < 1 or "margin" in settings
        if name == "all won" and not wins:  # logits of some hundreds: float32 has five digits of them
            whole = whole.double()
        made = loss(**settings, weight=whole.loss.weight, reduction=reduction)
        chosen = {"inputs": inputs, "averaged": n % 2 == 0, "chunk_rows": (None, 3)[n % 2], "group": group}
        head = ClassParallelHead.from_linear(whole.linear, loss=made, **chosen)
        x, target = batch(name, whole, n_classes, n)
        assert head.weight.to_local().shape == (head.slice.size, H)
        assert head.slice.size <= -(-n_classes // size)
        bounds = [len(x) * i**2 // size**2 for i in range(size + 1)]  # uneven, and some without rows
        own = slice(None) if inputs == "replicated" else slice(bounds[rank], bounds[rank + 1])
        upstream = torch.rand(len(x), generator=torch.Generator().manual_seed(n))
        assert not (name == "all won" and wins) or whole.rows(x, target).won.all(), what
        compare(whole, head, x, target, own, what, upstream.to(x.dtype))
        top, wanted = head.predict(x[own], k := min(3, n_classes)), whole.logits(x).topk(k, 1)
        close(top.values, wanted.values[own], 1e-5, what)
        assert torch.equal(top.indices, wanted.indices[own]), what
    return n


def main() -> None:
    """Four processes: all of them, three and one side by side, then two."""
    dist.init_process_group("gloo", timeout=timedelta(seconds=200))
    told = {4: all_cases(None)}
    for members in ([[0, 1, 2], [3]], [[0, 1]]):
        groups = {len(ranks): dist.new_group(ranks) for ranks in members}
        for ranks in members:
            if dist.get_rank() in ranks:
                told[len(ranks)] = all_cases(groups[len(ranks)])
        dist.barrier()
    every: list[Any] = [None] * 4
    dist.all_gather_object(every, told)
    if dist.get_rank() == 0:
        sys.stdout.write(f"{sorted({item for each in every for item in each.items()})}\n")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
