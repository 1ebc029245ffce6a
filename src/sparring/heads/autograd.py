"""The row losses of a fused head as autograd functions.

The forward pass computes losses and gradients together, assuming that the losses will be averaged or
summed. If the gradient that arrives in the backward pass is a multiple of that, the saved gradients are
scaled; otherwise a second pass runs over the active rows.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from sparring.heads import chunked
from sparring.heads.dispatch import HeadInputs, HeadSpec
from sparring.heads.gradients import HeadGradients, NeedsGrad
from sparring.losses.base import valid_targets
from sparring.losses.checks import is_known_true
from sparring.losses.kernels.modes import in_autograd_vmap, in_vmap
from sparring.losses.rows import RowLosses

N_INPUTS = len(HeadInputs._fields)
# Labels compared at once: 32 rows or 2**20 entries, since the mask of a whole label matrix may be large.
_MIN_ROWS = 32
_MIN_ENTRIES = 2**20


def upstream_scale(
    upstream: Tensor, active: Tensor, gradients: HeadGradients, coefficient: Tensor | None, needs: NeedsGrad
) -> Tensor | None:
    """k, if upstream = k · coefficient on every active row, to rounding, and the gradients were saved."""
    if any(need and not len(gradient) for need, gradient in zip(needs, gradients, strict=True)):
        return None
    rows = active.nonzero().squeeze(1)
    upstream = upstream.index_select(0, rows)
    if not len(rows):
        return upstream.new_zeros(())
    expected = torch.ones_like(upstream) if coefficient is None else coefficient.index_select(0, rows)
    pivot = expected.abs().argmax()
    scale = upstream[pivot] / expected[pivot]
    tolerance = 4 * torch.finfo(upstream.dtype).eps * upstream.abs()
    return scale if ((upstream - scale * expected).abs() <= tolerance).all() else None


def pull_back(
    upstream: Tensor,
    inputs: HeadInputs,
    active: Tensor,
    gradients: HeadGradients,
    spec: HeadSpec,
    needs: NeedsGrad,
    *,
    in_place: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of Σ upstream·value in the dtypes of the inputs; empty where they are not needed."""
    scale = upstream_scale(upstream, active, gradients, inputs.coefficient, needs)
    if scale is not None:
        scaled = (_scale_in_place(g.data, scale) if in_place else g * scale for g in gradients)
        gradients = HeadGradients(*scaled)
    else:
        rows = active.nonzero().squeeze(1)
        selected = inputs.select(rows, upstream.index_select(0, rows))
        gradients = chunked.solve(selected, spec, needs).gradients
        if needs.features:
            zeros = inputs.features.new_zeros(inputs.features.shape, dtype=gradients.features.dtype)
            gradients = gradients._replace(features=zeros.index_copy_(0, rows, gradients.features))
    bias_dtype = inputs.weight.dtype if inputs.bias is None else inputs.bias.dtype
    return (
        gradients.features.to(inputs.features.dtype),
        gradients.weight.to(inputs.weight.dtype),
        gradients.bias.to(bias_dtype),
    )


def _scale_in_place(gradient: Tensor, scale: Tensor) -> Tensor:
    """Multiply by the scale; on CPU not by 1, to rounding, which would cost a pass over the gradient."""
    if gradient.is_cpu and abs(scale.item() - 1) <= 4 * torch.finfo(scale.dtype).eps:
        return gradient
    return gradient.mul_(scale)


def _saved_gradients(
    inputs: HeadInputs, gradients: HeadGradients, spec: HeadSpec, consumed: bool
) -> HeadGradients:
    """Return the gradients saved by the forward pass.

    The first backward consumes that buffer; a second backward through the same graph recomputes it, with
    identical bits.
    """
    saved = NeedsGrad(*(len(gradient) > 0 for gradient in gradients))
    return chunked.solve(inputs, spec, saved).gradients if consumed and any(saved) else gradients


class FusedRows(torch.autograd.Function):
    """(*HeadInputs, spec, needs) -> (value, active, conceded, *HeadGradients)."""

    @staticmethod
    def forward(*args: Any) -> tuple[Tensor, ...]:
        *tensors, spec, needs = args
        value, active, conceded, gradients = chunked.solve(HeadInputs(*tensors), spec, needs)
        return value, active, conceded, *gradients

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        *tensors, ctx.spec, _ = inputs
        ctx.mark_non_differentiable(*output[1:])
        ctx.set_materialize_grads(False)
        # neither the losses, which the caller may change in place, nor the conceded rows
        ctx.save_for_backward(*tensors, output[1], *output[3:])
        ctx.consumed = False

    @staticmethod
    def backward(ctx: Any, upstream: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
        if upstream is None:
            return (None,) * (N_INPUTS + 2)
        inputs = HeadInputs(*ctx.saved_tensors[:N_INPUTS])
        active, *saved = ctx.saved_tensors[N_INPUTS:]
        gradients = HeadGradients(*saved)
        needs = NeedsGrad(*ctx.needs_input_grad[:3])
        if in_autograd_vmap(upstream):
            result = batched_gradients(upstream, inputs, ctx.spec)
        elif torch.is_grad_enabled() or in_vmap(upstream):  # a second derivative, or torch.func
            result = _FusedGradients.apply(
                upstream, *inputs, active, *gradients, ctx.spec, needs, ctx.consumed
            )
        else:
            gradients = _saved_gradients(inputs, gradients, ctx.spec, ctx.consumed)
            result = pull_back(upstream, inputs, active, gradients, ctx.spec, needs, in_place=True)
            ctx.consumed = True
        needed = [gradient if need else None for gradient, need in zip(result, needs, strict=False)]
        return *needed, *(None,) * (N_INPUTS + 2 - len(needed))


class _FusedGradients(torch.autograd.Function):
    """(upstream, *HeadInputs, active, *HeadGradients, spec, needs, consumed) -> the three gradients.

    They can be differentiated once more, through the unfused loss.
    """

    @staticmethod
    def forward(upstream: Tensor, *args: Any) -> tuple[Tensor, ...]:
        *tensors, spec, needs, consumed = args
        inputs = HeadInputs(*tensors[:N_INPUTS])
        active, *saved = tensors[N_INPUTS:]
        gradients = _saved_gradients(inputs, HeadGradients(*saved), spec, consumed)
        return pull_back(upstream, inputs, active, gradients, spec, needs)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.save_for_backward(*inputs[:N_INPUTS])  # upstream, features, weight, bias, target
        *_, ctx.spec, ctx.needs, _ = inputs
        ctx.n_inputs = len(inputs)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        first_upstream, *parameters, target = ctx.saved_tensors
        parameters = [tensor for tensor in parameters if tensor is not None]

        def value(*parameters: Tensor) -> Tensor:
            return unfused_rows(ctx.spec, target, *parameters).value

        def gradients(upstream: Tensor, *parameters: Tensor) -> tuple[Tensor, ...]:
            return torch.func.vjp(value, *parameters)[1](upstream)  # type: ignore[no-any-return]

        pull = torch.func.vjp(gradients, first_upstream, *parameters)[1]
        needed = tuple(
            gradient if need else torch.zeros_like(parameter)
            for gradient, need, parameter in zip(upstream, ctx.needs, parameters, strict=False)
        )
        result = pull(needed)
        return *result, *(None,) * (ctx.n_inputs - len(result))


# Losses with materialised logits, for what cannot run chunk by chunk: tracing, forward-mode AD, second
# derivatives and batched gradients.


def valid_rows(target: Tensor, ignore_index: int) -> Tensor:
    """(N,) bool: rows whose class index, or at least one of whose labels, is not ignored."""
    if target.dim() == 1:
        return valid_targets(target, ignore_index)[1]
    parts = target.split(max(_MIN_ROWS, _MIN_ENTRIES // target.shape[1]))
    return torch.cat([((part == 0) | (part == 1)).any(1) for part in parts])


def unfused_rows(
    spec: HeadSpec, target: Tensor, features: Tensor, weight: Tensor, bias: Tensor | None = None
) -> RowLosses:
    """``spec.rows(F.linear(features, weight, bias), target)``.

    Features of ignored rows are replaced by zeros, so that a NaN in an ignored row reaches no gradient. The
    chunked passes never multiply by them either.
    """
    bias = None if bias is None else bias.to(spec.dtype)
    logits = F.linear(_valid_features(spec, target, features), weight.to(spec.dtype), bias)
    return spec.rows(logits, target)


def batched_gradients(upstream: Tensor, inputs: HeadInputs, spec: HeadSpec) -> tuple[Tensor, ...]:
    """Gradients of Σ upstream·value for a batch of ``upstream`` under ``is_grads_batched``."""
    leaves = [tensor.detach().requires_grad_() for tensor in inputs[:3] if tensor is not None]
    with torch.enable_grad():
        value = unfused_rows(spec, inputs.target, *leaves).value
    return torch.autograd.grad(value, leaves, upstream)


def _valid_features(spec: HeadSpec, target: Tensor, features: Tensor) -> Tensor:
    valid = valid_rows(target, spec.ignore_index)
    if is_known_true(valid):
        return features.to(spec.dtype)
    return torch.where(valid[:, None], features, 0).to(spec.dtype)


def _loop_vmap(function: type[torch.autograd.Function]) -> Callable[..., Any]:
    """A vmap rule that calls the function once per batch entry, because it depends on values."""

    def vmap(
        info: Any, in_dims: tuple[int | None, ...], *args: Any
    ) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
        def entry(i: int) -> list[Any]:
            pairs = zip(args, in_dims, strict=True)
            return [arg.select(dim, i) if isinstance(dim, int) else arg for arg, dim in pairs]

        results = zip(*(function.apply(*entry(i)) for i in range(info.batch_size)), strict=True)
        outputs = tuple(torch.stack(tensors) for tensors in results)
        return outputs, (0,) * len(outputs)

    return vmap


FusedRows.vmap = staticmethod(_loop_vmap(FusedRows))  # type: ignore[method-assign]
_FusedGradients.vmap = staticmethod(_loop_vmap(_FusedGradients))  # type: ignore[method-assign]
