"""Cross entropy against strong opponents: the kernel of softmax, AS-Softmax and its logit-margin variant.

They differ in one scalar per row, the smallest log p that keeps an opponent in the softmax:

    loss = log Σ_{i: log p_i ≥ τ} p_i − log p_t,      τ ≤ log p_t, a function of log p_t alone.

`equation` is that in differentiable torch operations. Tensor subclasses, forward-mode AD, second derivatives
and torch.compile use it. In eager mode `compute_rows` finds losses and gradients together, and an autograd
function scales the gradients. On CPU, torch.compile calls `compute_rows` too, as an operator.

A rule with κ < 1 also concedes rows: the kernels treat them like ignored rows and report them.

NaN and infinities behave as in F.cross_entropy: a row with NaN or +inf, or with -inf alone, is NaN and
active; an opponent at -inf is masked; a target at -inf costs inf. The gradient of an ignored row is always 0.
"""

import inspect
from typing import Any

import torch
from torch import Tensor, nn

from sparring.losses.base import valid_targets
from sparring.losses.kernels.margin_softmax_chunks import compute_rows, equation, gradient
from sparring.losses.kernels.margin_softmax_dense import MAX_CLASSES
from sparring.losses.kernels.modes import in_forward_mode, in_vmap
from sparring.losses.kernels.rule import MarginRule
from sparring.losses.rows import RowLosses

_FEW_LOGITS = 2**13  # up to here, torch.compile takes the equation: a call costs more than its arithmetic


def margin_softmax_rows(
    logits: Tensor, target: Tensor, rule: MarginRule, ignore_index: int = -100
) -> RowLosses:
    """Row losses of the softmax over the opponents at or above the threshold. logits (N, C), target (N,)."""
    target, valid = _valid_targets(logits, target, ignore_index)
    if torch.compiler.is_compiling() and _is_traceable(logits):
        from sparring.losses.kernels.custom_op import traced_rows

        value, active, conceded = traced_rows(logits, target, valid, rule)
    elif torch.compiler.is_compiling() and _worth_an_operator(logits):
        from sparring.losses.kernels.custom_op import call_operator  # imports torch's compiler, which is slow

        value, active, conceded = call_operator(logits, target, valid, rule)
    elif not is_eager(logits):
        clean = torch.where(valid[:, None], logits, 0)  # NaN in an ignored row must not reach its gradient
        value, active, conceded, _ = equation(clean, target, valid, rule)
    else:
        transformed = torch._C._are_functorch_transforms_active()
        function = _MarginSoftmaxTransformed if transformed else _MarginSoftmax
        with_grad = torch.is_grad_enabled() and logits.requires_grad
        arguments = (logits, target, valid, rule, with_grad, logits.is_cpu)
        value, active, conceded, *_ = function.apply(*arguments)
    return RowLosses(value, valid, active, conceded=conceded if rule.concedes else None)


def _valid_targets(logits: Tensor, target: Tensor, ignore_index: int) -> tuple[Tensor, Tensor]:
    """`valid_targets`; on CPU, where values can be read, with fewer operations if all rows are valid."""
    if torch.compiler.is_compiling() or not target.is_cpu or not is_eager(logits):
        return valid_targets(target, ignore_index)
    readable = type(target) is Tensor and not torch._C._are_functorch_transforms_active()
    if readable and ignore_index < 0 and target.min().item() >= 0:
        return target, torch.ones_like(target, dtype=torch.bool)
    return valid_targets(target, ignore_index)


def _is_traceable(logits: Tensor) -> bool:
    """Whether inductor's code beats the kernels: few classes on CPU."""
    few = 1 < logits.shape[1] <= MAX_CLASSES and logits.numel() > _FEW_LOGITS
    return logits.is_cpu and few and not in_forward_mode() and not torch._C._are_functorch_transforms_active()


def _worth_an_operator(logits: Tensor) -> bool:
    """Whether the kernels beat inductor's code: on CPU, unless the call of an operator would cost more."""
    large = logits.numel() > _FEW_LOGITS and logits.shape[1] > 1
    return logits.is_cpu and large and not in_forward_mode()


def is_eager(logits: Tensor) -> bool:
    """Whether the kernels can run: not traced, not in forward-mode AD, and there is something to compute."""
    return (
        type(logits) in (Tensor, nn.Parameter)
        and not torch.compiler.is_compiling()
        and not in_forward_mode()
        and logits.shape[1] > 1
        and len(logits) > 0
    )


class _MarginSoftmax(torch.autograd.Function):
    """Forward computes values and gradients; backward scales the gradients of active rows."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> tuple[Tensor, ...]:
        value, active, conceded, grad = compute_rows(*inputs)
        ctx.mark_non_differentiable(active, conceded)
        _save(ctx, inputs, active, grad)
        return value, active, conceded

    @staticmethod
    def backward(ctx: Any, grad_value: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
        return _input_gradient(ctx, grad_value), None, None, None, None, None


class _MarginSoftmaxTransformed(torch.autograd.Function):
    """`_MarginSoftmax` in the form that torch.func transforms; its calls take longer."""

    @staticmethod
    def forward(*inputs: Any) -> tuple[Tensor, ...]:
        return compute_rows(*inputs)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.mark_non_differentiable(*output[1:])
        _save(ctx, inputs, output[1], output[3])

    @staticmethod
    def backward(ctx: Any, grad_value: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
        return _input_gradient(ctx, grad_value), None, None, None, None, None

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, ...], *args: Any
    ) -> tuple[tuple[Tensor, ...], tuple[int | None, ...]]:
        # rows are independent of each other, so a batch of rows is just more rows
        tensors = [
            (x.expand(info.batch_size, *x.shape) if dim is None else x.movedim(dim, 0)).flatten(0, 1)
            for x, dim in zip(args[:3], in_dims, strict=False)
        ]
        *rows, grad = _MarginSoftmaxTransformed.apply(*tensors, *args[3:])
        rows = [x.unflatten(0, (info.batch_size, -1)) for x in rows]
        if not args[4]:  # with_grad
            return (*rows, grad), (0, 0, 0, None)
        return (*rows, grad.unflatten(0, (info.batch_size, -1))), (0, 0, 0, 0)


def _save(ctx: Any, inputs: tuple[Any, ...], active: Tensor, grad: Tensor) -> None:
    logits, target, valid, ctx.rule, _, ctx.on_cpu = inputs
    ctx.set_materialize_grads(False)  # else autograd fills an unused (N, C) tensor with zeros
    ctx.save_for_backward(logits, target, valid, active, grad)
    ctx.grad_consumed = False


def _input_gradient(ctx: Any, upstream: Tensor | None) -> Any:
    """The gradient of the logits, from one number per row."""
    if upstream is None:
        return None
    logits, target, valid, active, grad = ctx.saved_tensors
    scale = torch.where(active, upstream, 0)[:, None]  # 0 times an upstream NaN would be NaN
    if torch.is_grad_enabled():  # create_graph: the gradient itself is differentiated
        return (gradient(logits, target, active, ctx.rule) * scale).to(logits.dtype)
    # recompute: in a second backward through the same graph, or if a vmap hid that gradients are needed
    if ctx.grad_consumed or grad.shape != logits.shape:
        grad = compute_rows(logits, target, valid, ctx.rule, True, ctx.on_cpu)[-1]
    if in_vmap(upstream):  # a batch of gradients: the buffer must stay as it is
        grad = grad * scale
    else:
        ctx.grad_consumed = True  # the buffer itself is returned, which saves a second (N, C) tensor
        grad = grad.data.mul_(scale)
    return grad.to(logits.dtype)


# Function.apply inspects the signature of `forward` at every call, which takes longer than a small batch
_ANY_ARGUMENTS = inspect.Signature([inspect.Parameter("args", inspect.Parameter.VAR_POSITIONAL)])
_MarginSoftmaxTransformed.forward.__signature__ = _ANY_ARGUMENTS  # type: ignore[attr-defined]
