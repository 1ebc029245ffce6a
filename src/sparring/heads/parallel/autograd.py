"""How autograd sees a class-parallel head: one function from features and slices to row losses."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from sparring.heads.chunked import Found, multiple_of
from sparring.heads.gradients import Needs
from sparring.heads.parallel.chunked import Job, Verdicts, solve
from sparring.heads.parallel.collectives import Wire
from sparring.heads.parallel.dtensor import of_rank
from sparring.losses.base import at_least_float32, in_vmap

Gathered = (
    tuple[list[int], float] | None
)  # rows of each rank, and what the gradient of the input is multiplied by


class ParallelRows(torch.autograd.Function):
    """Row losses and which rows are active. Forward finds the gradients for rows weighted by `of_rows`; backward scales them, or makes
    them anew where something else comes from above. Verdicts are kept for that: it takes no word between ranks."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        target: Tensor,
        there: Tensor,  # rows that are not ignored
        of_rows: Tensor | None,  # class weights of these
        job: Job,
        needs: Needs,
        dtype: torch.dtype,
        gathered: Gathered,
        replicas: Wire,
    ) -> tuple[Tensor, Tensor]:
        every = x if gathered is None else job.wire.gather_rows(x, gathered[0])
        tensors = (
            every[there].to(dtype),
            weight.to(dtype),
            None if bias is None else bias.to(dtype),
            target[there],
        )
        verdicts, ctx.found = solve(*tensors, of_rows, job, needs) if len(there) else (None, None)
        ctx.save_for_backward(*tensors, there, of_rows)
        ctx.verdicts, ctx.job, ctx.gathered, ctx.replicas = verdicts, job, gathered, replicas
        ctx.n_rows, ctx.dtypes = (
            len(every),
            [each.dtype if each is not None else None for each in (x, weight, bias)],
        )
        value = every.new_zeros(len(every), dtype=at_least_float32(dtype))
        active = torch.zeros_like(value, dtype=torch.bool)
        if verdicts is not None:
            value[there], active[there] = verdicts.value, verdicts.active
        ctx.mark_non_differentiable(active)
        ctx.set_materialize_grads(False)
        return value, active

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor | None, _: Any) -> tuple[Tensor | None, ...]:
        if upstream is None:
            return (None,) * 11
        if in_vmap(upstream):
            raise RuntimeError(
                "a class-parallel head has no batched gradients (is_grads_batched, vectorize=True, jacrev): ranks talk"
                " in its backward. Ask for one gradient after the other"
            )
        x, weight, bias, target, there, of_rows = ctx.saved_tensors
        needs, job = Needs(*ctx.needs_input_grad[:3]), ctx.job
        of_input, *others = _gradients(ctx, upstream[there], (x, weight, bias, target), of_rows, needs)
        grads: list[Tensor | None] = [None, None, None]
        if needs.input:
            whole = x.new_zeros(ctx.n_rows, x.shape[1], dtype=of_input.dtype).index_copy_(0, there, of_input)
            if ctx.gathered is None:
                grads[0] = job.wire.sum(whole)
            else:
                sizes, times = ctx.gathered
                grads[0] = job.wire.scatter_sum(whole, sizes).mul_(times)
        for i, grad in enumerate(others, 1):
            if needs[i]:
                grads[i] = ctx.replicas.sum(grad).div_(ctx.replicas.size) if ctx.replicas.size > 1 else grad
        return *(
            None if grad is None else grad.to(dtype) for grad, dtype in zip(grads, ctx.dtypes, strict=True)
        ), *(None,) * 8


def _gradients(
    ctx: Any,
    upstream: Tensor,
    tensors: tuple[Tensor, Tensor, Tensor | None, Tensor],
    of_rows: Tensor | None,
    needs: Needs,
) -> tuple[Tensor, ...]:
    """This rank's part of them, of Σ upstream·value."""
    x, weight = tensors[:2]
    if ctx.verdicts is None:  # every row is ignored
        dtype = upstream.dtype
        return (
            x.new_zeros(x.shape, dtype=dtype),
            weight.new_zeros(weight.shape, dtype=dtype),
            weight.new_zeros(len(weight), dtype=dtype),
        )
    verdicts: Verdicts = ctx.verdicts
    found, ctx.found = ctx.found, None  # given away: a second backward makes them anew
    scale = None if found is None else multiple_of(upstream, Found(verdicts.active, *found), of_rows, needs)
    if scale is not None:
        return tuple(grad.mul_(scale) for grad in found)
    return solve(*tensors, upstream, ctx.job, needs, verdicts)[1]


class OwnRows(torch.autograd.Function):
    """Of the rows of all ranks those of this one; each rank says what comes from above to its own."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, sizes: list[int], wire: Wire) -> Tensor:
        ctx.sizes, ctx.wire = sizes, wire
        return of_rank(value, sizes, wire).clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None, None]:
        every: Tensor = ctx.wire.gather_rows(upstream, ctx.sizes)
        return every, None, None
