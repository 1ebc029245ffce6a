"""A class-parallel head as an autograd function from features and shards to row losses."""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from sparring.heads.autograd import upstream_scale
from sparring.heads.dispatch import HeadInputs
from sparring.heads.gradients import HeadGradients, NeedsGrad
from sparring.heads.parallel.chunked import ParallelSpec, solve
from sparring.heads.parallel.collectives import Collectives
from sparring.losses.kernels.modes import at_least_float32, in_vmap


class ParallelCall(NamedTuple):
    """What `ParallelRows` needs besides the tensors that get gradients."""

    spec: ParallelSpec
    target: Tensor  # (N,) class indices of all rows, 0 where ignored
    valid_rows: Tensor  # indices of the rows that are not ignored
    coefficient: Tensor | None  # of the valid rows: class weights times row weights
    needs: NeedsGrad  # gradients to compute in the forward pass
    dtype: torch.dtype  # of the matrix products
    sizes: list[int] | None  # rows of each rank where inputs are gathered
    input_scale: float  # factor of the gradient of gathered inputs
    replicas: Collectives


class ParallelRows(torch.autograd.Function):
    """(features, weight, bias, call) -> row losses, active rows and conceded rows.

    The forward pass computes gradients of the losses weighted by class. The backward pass scales them, or
    recomputes them from the saved statistics without communication.
    """

    @staticmethod
    def forward(
        ctx: Any, features: Tensor, weight: Tensor, bias: Tensor | None, call: ParallelCall
    ) -> tuple[Tensor, Tensor, Tensor]:
        if call.sizes is not None:
            features = call.spec.collectives.gather_rows(features, call.sizes)
        rows = call.valid_rows
        inputs = HeadInputs(features[rows], weight, bias, call.target[rows], call.coefficient)
        inputs = inputs.cast(call.dtype)
        ctx.statistics, ctx.gradients = solve(inputs, call.spec, call.needs)
        ctx.save_for_backward(*inputs)
        ctx.call = call
        ctx.dtypes = [None if x is None else x.dtype for x in (features, weight, bias)]
        value = features.new_zeros(len(features), dtype=at_least_float32(call.dtype))
        active = torch.zeros_like(value, dtype=torch.bool)
        value[rows] = ctx.statistics.value
        active[rows] = ctx.statistics.active
        conceded = torch.zeros_like(active)
        conceded[rows] = ctx.statistics.conceded
        ctx.mark_non_differentiable(active, conceded)
        ctx.set_materialize_grads(False)
        return value, active, conceded

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
        if upstream is None:
            return None, None, None, None
        if in_vmap(upstream):
            raise RuntimeError(
                "a class-parallel head has no batched gradients (is_grads_batched, vectorize=True, jacrev),"
                " because its backward communicates; compute one gradient after the other"
            )
        call: ParallelCall = ctx.call
        needs = NeedsGrad(*ctx.needs_input_grad[:3])
        gradients = _local_gradients(ctx, upstream[call.valid_rows], needs)
        return *reduce_gradients(gradients, len(upstream), needs, call, ctx.dtypes), None


def reduce_gradients(
    gradients: HeadGradients, n_rows: int, needs: NeedsGrad, call: ParallelCall, dtypes: list[Any]
) -> list[Tensor | None]:
    """The gradients of the inputs, from the contributions of the ranks. ``n_rows`` with the ignored ones."""
    result: list[Tensor | None] = [None, None, None]
    if needs.features:
        shape = (n_rows, gradients.features.shape[1])
        features = gradients.features.new_zeros(shape).index_copy_(0, call.valid_rows, gradients.features)
        if call.sizes is None:
            result[0] = call.spec.collectives.sum(features)
        else:
            result[0] = call.spec.collectives.scatter_sum(features, call.sizes).mul_(call.input_scale)
    for i in (1, 2):
        if needs[i]:
            n_replicas = call.replicas.size
            gradient = gradients[i]
            result[i] = call.replicas.sum(gradient).div_(n_replicas) if n_replicas > 1 else gradient
    pairs = zip(result, dtypes, strict=True)
    return [None if gradient is None else gradient.to(dtype) for gradient, dtype in pairs]


def _local_gradients(ctx: Any, upstream: Tensor, needs: NeedsGrad) -> HeadGradients:
    """The contribution of this rank to the gradients of Σ upstream·value over the valid rows."""
    inputs = HeadInputs(*ctx.saved_tensors)
    gradients = ctx.gradients
    ctx.gradients = None  # scaled in place below; a second backward recomputes them
    if gradients is not None:
        active = ctx.statistics.active
        scale = upstream_scale(upstream, active, gradients, inputs.coefficient, needs)
        if scale is not None:
            return HeadGradients(*(gradient.mul_(scale) for gradient in gradients))
    inputs = inputs._replace(coefficient=upstream)
    return solve(inputs, ctx.call.spec, needs, ctx.statistics)[1]


class OwnRows(torch.autograd.Function):
    """The rows of this rank among the rows of all; the backward pass gathers the gradients of all ranks."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, sizes: list[int], collectives: Collectives) -> Tensor:
        ctx.sizes = sizes
        ctx.collectives = collectives
        return collectives.own_rows(value, sizes).clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None, None]:
        return ctx.collectives.gather_rows(upstream, ctx.sizes), None, None
