"""The contestants of parallel.py."""

import os
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor

from sparring import ASSoftmaxLoss, ClassParallelHead, LinearLoss
from sparring.heads.parallel.dtensor import ClassShard, local_shard

ROWS, FEATURES = 64, 64
CORES = os.cpu_count() or 1
CONTESTANTS = {  # name: δ, the share of won rows, and on which ranks it runs
    "unsharded": (1.0, 0.0, "first"),
    "fused, AS-Softmax": (0.3, 0.0, "first"),
    "gathering logits": (1.0, 0.0, "several"),
    "class-parallel, softmax": (1.0, 0.0, "any"),
    "class-parallel, AS-Softmax": (0.3, 0.0, "any"),
    "class-parallel, AS-Softmax, 90 % won": (0.3, 0.9, "any"),
}


def batch(weight: Callable[[Tensor], Tensor], n_classes: int, won: float) -> tuple[Tensor, Tensor]:
    """Random rows; the features of rows to be won are a multiple of the target's weight."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(ROWS, FEATURES, generator=generator)
    target = torch.randint(n_classes, (ROWS,), generator=generator)
    n_won = round(won * ROWS)
    if n_won:
        x[:n_won] = 100 * weight(target[:n_won])
    return x, target


def rows_of(head: ClassParallelHead, classes: Tensor) -> Tensor:
    """Weights of classes, from the ranks that hold them."""
    columns = head.shard.local(classes)
    held = columns >= 0
    weights = torch.zeros(len(classes), FEATURES)
    weights[held] = local_shard(head.weight)[columns[held]]
    return head.collectives.sum(weights)


class Gathered(torch.autograd.Function):
    """(N, C/p) logits of a rank to (N, C) logits of all; the backward returns this rank's part."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, widths: list[int]) -> Tensor:
        ctx.start = sum(widths[: dist.get_rank()])
        ctx.width = logits.shape[1]
        padded = logits.new_zeros(len(logits), max(widths))
        padded[:, : ctx.width] = logits
        parts = [torch.empty_like(padded) for _ in widths]
        dist.all_gather(parts, padded)
        return torch.cat([part[:, :n] for part, n in zip(parts, widths, strict=True)], 1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        return grad[:, ctx.start : ctx.start + ctx.width].contiguous(), None


class SumOfInput(torch.autograd.Function):
    """The identity for an input that is the same on all ranks; the backward sums its gradient over ranks."""

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


def make_contestant(name: str, n_classes: int) -> Contestant:
    delta, won, ranks = CONTESTANTS[name]
    torch.manual_seed(0)
    if ranks == "first":
        if dist.get_rank() > 0:
            return Contestant([], lambda: None, lambda: 0)
        return unsharded(name, n_classes, delta)
    head = ClassParallelHead(FEATURES, n_classes, bias=False, delta=delta)
    x, target = batch(lambda classes: rows_of(head, classes), n_classes, won)
    x.requires_grad_()
    if name == "gathering logits":
        return gathering(local_shard(head.weight).clone().requires_grad_(), x, target, n_classes)
    share = float(head.rows(x.detach(), target).won_share())
    assert abs(share - won) < 0.05, f"expected {won} won, got {share}"
    return Contestant(
        list(head.parameters()), lambda: head(x, target).backward(), lambda: head.collectives.n_bytes, share
    )


def unsharded(name: str, n_classes: int, delta: float) -> Contestant:
    head = LinearLoss(FEATURES, n_classes, bias=False, loss=ASSoftmaxLoss(delta))
    x, target = batch(lambda classes: head.linear.weight.detach()[classes], n_classes, 0.0)
    x.requires_grad_()

    def step() -> None:
        loss = head(x, target) if name.startswith("fused") else F.cross_entropy(head.logits(x), target)
        loss.backward()

    return Contestant([head.linear.weight], step, lambda: 0)


def gathering(weight: Tensor, x: Tensor, target: Tensor, n_classes: int) -> Contestant:
    ranks = dist.get_world_size()
    widths = [ClassShard.of(n_classes, rank, ranks).size for rank in range(ranks)]
    sent = 0

    def step() -> None:
        nonlocal sent
        logits = Gathered.apply(F.linear(SumOfInput.apply(x), weight), widths)
        sent += (ranks - 1) * ROWS * max(widths) * 4 + 2 * (ranks - 1) * x.nbytes // ranks
        F.cross_entropy(logits, target).backward()

    return Contestant([weight], step, lambda: sent)
