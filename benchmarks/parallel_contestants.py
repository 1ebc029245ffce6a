"""The contestants of parallel.py."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor

from sparring import ASSoftmaxLoss, ClassParallelHead, LinearLoss
from sparring.heads.parallel.dtensor import own_slice
from sparring.heads.parallel.shards import Slice

ROWS, FEATURES = 64, 64
CORES = os.cpu_count() or 1
CONTESTANTS = {  # by name: δ, the share of rows that is won, and on which ranks
    "unsharded": (1.0, 0.0, "first"),
    "fused, AS-Softmax": (0.3, 0.0, "first"),
    "gathering logits": (1.0, 0.0, "several"),
    "class-parallel, softmax": (1.0, 0.0, "any"),
    "class-parallel, AS-Softmax": (0.3, 0.0, "any"),
    "class-parallel, AS-Softmax, 90 % won": (0.3, 0.9, "any"),
}


def batch(weight: Callable[[Tensor], Tensor], n_classes: int, won: float) -> tuple[Tensor, Tensor]:
    """Random rows; of those that are to be won a long way towards the target's weight."""
    generator = torch.Generator().manual_seed(1)
    x, target = (
        torch.randn(ROWS, FEATURES, generator=generator),
        torch.randint(n_classes, (ROWS,), generator=generator),
    )
    n = round(won * ROWS)
    if n:
        x[:n] = 100 * weight(target[:n])
    return x, target


def rows_of(head: ClassParallelHead, classes: Tensor) -> Tensor:
    """Weights of classes, from the ranks that have them."""
    mine, own = head.slice.local(classes), own_slice(head.weight)
    found = (
        torch.where((mine >= 0)[:, None], own[mine.clamp(min=0)], 0.0)
        if len(own)
        else torch.zeros(len(classes), FEATURES)
    )
    return head.wire.sum(found)


class Gathered(torch.autograd.Function):
    """(N, C/p) logits of a rank to (N, C) of all; backward keeps the own part."""

    @staticmethod
    def forward(ctx: Any, own: Tensor, widths: list[int]) -> Tensor:
        padded = own.new_zeros(len(own), max(widths))
        padded[:, : own.shape[1]] = own
        every = [torch.empty_like(padded) for _ in widths]
        dist.all_gather(every, padded)
        ctx.start = sum(widths[: dist.get_rank()])
        ctx.width = own.shape[1]
        return torch.cat([part[:, :n] for part, n in zip(every, widths, strict=True)], 1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        return grad[:, ctx.start : ctx.start + ctx.width].contiguous(), None


class SumOfInput(torch.autograd.Function):
    """The same input on all ranks: its gradient is the sum of theirs."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # type: ignore[override]
        dist.all_reduce(grad)
        return grad


class Contestant(NamedTuple):
    parameters: list[Any]
    step: Callable[[], None]
    sent: Callable[[], int]  # bytes so far
    won: float = 0.0


def contestant(name: str, n_classes: int) -> Contestant:
    delta, won, where = CONTESTANTS[name]
    torch.manual_seed(0)
    if where == "first":
        return (
            unsharded(name, n_classes, delta)
            if dist.get_rank() == 0
            else Contestant([], lambda: None, lambda: 0)
        )
    head = ClassParallelHead(FEATURES, n_classes, delta, bias=False)
    x, target = batch(lambda classes: rows_of(head, classes), n_classes, won)
    x.requires_grad_()
    if name == "gathering logits":
        return gathering(own_slice(head.weight).clone().requires_grad_(), x, target, n_classes)
    share = float(head.rows(x.detach(), target).won_share())
    assert abs(share - won) < 0.05, f"meant {won}, made {share}"
    return Contestant(
        list(head.parameters()), lambda: head(x, target).backward(), lambda: head.wire.n_bytes, share
    )


def unsharded(name: str, n_classes: int, delta: float) -> Contestant:
    """On one rank."""
    whole = LinearLoss(FEATURES, n_classes, ASSoftmaxLoss(delta), bias=False)
    x, target = batch(lambda classes: whole.linear.weight.detach()[classes], n_classes, 0.0)
    x.requires_grad_()

    def step() -> None:
        loss = whole(x, target) if name.startswith("fused") else F.cross_entropy(whole.logits(x), target)
        loss.backward()

    return Contestant([whole.linear.weight], step, lambda: 0)


def gathering(own: Tensor, x: Tensor, target: Tensor, n_classes: int) -> Contestant:
    ranks = dist.get_world_size()
    widths = [Slice.of(n_classes, rank, ranks).size for rank in range(ranks)]
    sent = 0

    def step() -> None:
        nonlocal sent
        logits = Gathered.apply(F.linear(SumOfInput.apply(x), own), widths)
        sent += (ranks - 1) * ROWS * max(widths) * 4 + 2 * (ranks - 1) * x.nbytes // ranks
        F.cross_entropy(logits, target).backward()

    return Contestant([own], step, lambda: sent)
