"""The extras of rows from features: chunk by chunk, with the classes on one rank or on several."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from sparring.heads.dispatch import HeadInputs, HeadSpec
from sparring.heads.gradients import GradientAccumulator, NeedsGrad
from sparring.heads.parallel.autograd import ParallelCall, reduce_gradients
from sparring.heads.parallel.chunked import (
    ParallelMarginSoftmax,
    ParallelSpec,
    chunk_rows,
    shard_logits,
)
from sparring.heads.parallel.collectives import Collectives
from sparring.heads.parallel.dtensor import ClassShard
from sparring.losses.kernels.modes import at_least_float32, in_vmap
from sparring.losses.kernels.rule import SOFTMAX_RULE
from sparring.losses.rows import RowStatistics

SPEC_LOSS = ParallelMarginSoftmax(SOFTMAX_RULE, 1)  # extras do not depend on the loss
N_STATISTICS = len(RowStatistics._fields)


def head_extras(
    features: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    call: ParallelCall,
    valid: Tensor,
    extras: Sequence[str],
) -> dict[str, Tensor]:
    """The extras of all rows. ``call`` says which rows are valid, and where the classes are."""
    statistics = HeadStatistics.apply(features, weight, bias, call)
    return RowStatistics(*statistics).extras(valid, extras)


def single_rank_extras(
    features: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    target: Tensor,
    valid: Tensor,
    spec: HeadSpec,
    extras: Sequence[str],
) -> dict[str, Tensor]:
    """The extras of a head that holds all classes."""
    alone = Collectives(local=True)
    valid_rows = valid.nonzero().squeeze(1)
    n_classes, n_features = weight.shape
    size = chunk_rows(len(valid_rows), n_classes, n_features, spec.chunk_rows)
    call = ParallelCall(
        spec=ParallelSpec(SPEC_LOSS, ClassShard(0, n_classes), alone, size),
        target=target,
        valid_rows=valid_rows,
        coefficient=None,
        needs=NeedsGrad.of(features, weight, bias),
        dtype=spec.dtype,
        sizes=None,
        input_scale=1.0,
        replicas=alone,
    )
    return head_extras(features, weight, bias, call, valid, extras)


class HeadStatistics(torch.autograd.Function):
    """(features, weight, bias, call) -> `RowStatistics`, stacked: 0 for rows that are not valid.

    Logits are relative to the largest one of their row, which counts as a constant: extras do not depend on
    it. The backward pass computes the logits once more; it needs the saved numbers, but no communication.
    """

    @staticmethod
    def forward(
        ctx: Any, features: Tensor, weight: Tensor, bias: Tensor | None, call: ParallelCall
    ) -> Tensor:
        if call.sizes is not None:
            features = call.spec.collectives.gather_rows(features, call.sizes)
        rows = call.valid_rows
        inputs = HeadInputs(features[rows], weight, bias, call.target[rows], None).cast(call.dtype)
        with torch.autocast(features.device.type, enabled=False):
            chunks = [_statistics(inputs, chunk, call) for chunk in _chunks(inputs, call)]
        ctx.dtypes = [None if x is None else x.dtype for x in (features, weight, bias)]
        ctx.call = call
        numbers = torch.cat(chunks, 1) if chunks else features.new_zeros(N_STATISTICS + 2, 0)
        ctx.save_for_backward(*inputs, numbers)
        result = numbers.new_zeros(N_STATISTICS, len(features), dtype=at_least_float32(call.dtype))
        result[:, rows] = numbers[:N_STATISTICS]
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        if in_vmap(upstream):
            raise RuntimeError("extras of a head have no batched gradients; compute one after the other")
        call: ParallelCall = ctx.call
        needs = NeedsGrad(*ctx.needs_input_grad[:3])
        inputs = HeadInputs(*ctx.saved_tensors[:-1])
        numbers = ctx.saved_tensors[-1]
        accumulator = GradientAccumulator(inputs, needs)
        gradients = upstream[:, call.valid_rows]
        with torch.autocast(upstream.device.type, enabled=False):
            for chunk in _chunks(inputs, call) if call.spec.shard.size else ():
                grad = _logit_gradient(inputs, chunk, numbers[:, chunk], gradients[:, chunk], call)
                accumulator.add(chunk, None, grad)
        n_rows = upstream.shape[1]
        return *reduce_gradients(accumulator.result(), n_rows, needs, call, ctx.dtypes), None


def _chunks(inputs: HeadInputs, call: ParallelCall) -> Sequence[Tensor]:
    """Indices of the rows of each chunk."""
    rows = torch.arange(len(inputs.features), device=inputs.features.device)
    return rows.split(call.spec.chunk_rows) if len(rows) else ()


def _logits(inputs: HeadInputs, rows: Tensor, call: ParallelCall) -> tuple[Tensor, Tensor]:
    """The logits of this rank's classes, and the columns of the targets, -1 on the ranks without them."""
    logits = shard_logits(inputs.features[rows], inputs.weight, inputs.bias)
    return logits, call.spec.shard.local(inputs.target[rows])


def _others(logits: Tensor, columns: Tensor, value: float) -> Tensor:
    """Logits with another value at the targets."""
    held = (columns >= 0).nonzero().squeeze(1)
    others = logits.clone()
    others[held, columns[held]] = value
    return others


def _statistics(inputs: HeadInputs, rows: Tensor, call: ParallelCall) -> Tensor:
    """(6, n): the statistics, the largest logit, and how many classes share the logit of the rival."""
    logits, columns = _logits(inputs, rows, call)
    collectives = call.spec.collectives
    others = _others(logits, columns, -torch.inf)
    if call.spec.shard.size:
        largest = torch.stack([logits.amax(1), others.amax(1)])
    else:
        largest = logits.new_full((2, len(rows)), -torch.inf)
    peak, rival = collectives.max(largest)
    n_rivals = (others == rival[:, None]).sum(1)
    shifted = logits.sub_(peak[:, None])
    target = torch.zeros_like(peak)
    held = (columns >= 0).nonzero().squeeze(1)
    target[held] = shifted[held, columns[held]]
    exponentials = shifted.exp()
    moment = (exponentials * shifted.masked_fill(shifted == -torch.inf, 0)).sum(1)
    sums = torch.stack([exponentials.sum(1), moment, target, n_rivals.to(peak.dtype)])
    total, moment, target, n_rivals = collectives.sum(sums)
    return torch.stack([total.log(), target, moment / total, rival - peak, peak, n_rivals])


def _logit_gradient(
    inputs: HeadInputs, rows: Tensor, numbers: Tensor, upstream: Tensor, call: ParallelCall
) -> Tensor:
    """The gradient of Σ upstream·statistics with respect to the logits of this rank."""
    logits, columns = _logits(inputs, rows, call)
    logsumexp, _, mean, rival, peak, n_rivals = numbers[..., None]
    of_logsumexp, of_target, of_mean, of_rival = upstream[..., None].to(logits.dtype)
    shifted = logits.sub_(peak)
    is_rival = _others(shifted, columns, torch.nan) == rival
    p = (shifted - logsumexp).exp()
    finite = shifted.masked_fill(shifted == -torch.inf, 0)
    grad: Tensor = p * (of_logsumexp + of_mean * (1 + finite - mean))
    grad += is_rival * (of_rival / n_rivals.clamp(min=1))
    held = (columns >= 0).nonzero().squeeze(1)
    grad[held, columns[held]] += of_target[held, 0]
    return grad
