"""Cross entropy against strong opponents: the kernel of softmax, AS-Softmax and its logit-margin variant.

They differ in one scalar per row, the smallest log p that keeps an opponent in the softmax:

    loss = log Σ_{i: log p_i ≥ τ} p_i − log p_t,      τ ≤ log p_t, a function of log p_t alone.

`margin_log_softmax` is that equation in differentiable torch operations. torch.compile, tensor subclasses,
forward-mode AD and second derivatives use it. In eager mode `_MarginSoftmax` processes chunks of rows and
stores no (N, C) tensor but the gradient: on CPU with `margin_softmax_cpu.py`, elsewhere with the equation
itself, which never syncs with the device.

A rule with κ < 1 also concedes rows: the kernels treat them like ignored rows and report them.

NaN and infinities behave as in F.cross_entropy: a row with NaN or +inf, or with -inf alone, is NaN and
active; an opponent at -inf is masked; a target at -inf costs inf. The gradient of an ignored row is always 0.
"""

import inspect
from typing import Any

import torch
from torch import Tensor, nn

from sparring.losses.base import at_least_float32, in_float32, in_forward_mode, in_vmap, valid_targets
from sparring.losses.kernels import margin_softmax_cpu
from sparring.losses.kernels.rule import MarginRule
from sparring.losses.rows import RowLosses


def margin_softmax_rows(
    logits: Tensor, target: Tensor, rule: MarginRule, ignore_index: int = -100
) -> RowLosses:
    """Row losses of the softmax over the opponents at or above the threshold. logits (N, C), target (N,)."""
    target, valid = valid_targets(target, ignore_index)
    if not is_eager(logits):
        clean = torch.where(valid[:, None], logits, 0)  # NaN in an ignored row must not reach its gradient
        value, active, conceded, _ = _equation(clean, target, valid, rule)
    else:
        transformed = torch._C._are_functorch_transforms_active()
        function = _MarginSoftmaxTransformed if transformed else _MarginSoftmax
        with_grad = torch.is_grad_enabled() and logits.requires_grad
        arguments = (logits, target, valid, rule, with_grad, logits.is_cpu)
        value, active, conceded, *_ = function.apply(*arguments)
    return RowLosses(value, valid, active, conceded=conceded if rule.concedes else None)


def is_eager(logits: Tensor) -> bool:
    """Whether the kernels can run: not traced, not in forward-mode AD, and there is something to compute."""
    return (
        type(logits) in (Tensor, nn.Parameter)
        and not torch.compiler.is_compiling()
        and not in_forward_mode()
        and logits.shape[1] > 1
        and len(logits) > 0
    )


def margin_log_softmax(logits: Tensor, target: Tensor, rule: MarginRule) -> tuple[Tensor, Tensor, Tensor]:
    """Return log q over strong opponents (-inf for the others), log p, and τ. The mask has no gradient."""
    logp = torch.log_softmax(in_float32(logits), dim=1)  # (N, C)
    tau = rule.threshold(logp.detach().gather(1, target[:, None]))  # (N, 1)
    logq = torch.log_softmax(logp.masked_fill(logp.detach() < tau, -torch.inf), dim=1)  # (N, C)
    return logq, logp, tau


def _equation(
    logits: Tensor, target: Tensor, valid: Tensor, rule: MarginRule
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return value, active and conceded of each row, and log q."""
    logq, logp, tau = margin_log_softmax(logits, target, rule)
    logq_t, logp_t = (x.gather(1, target[:, None]) for x in (logq, logp))
    value = -torch.where(tau == -torch.inf, logp_t, logq_t).squeeze(1)
    conceded = _conceded(logp.detach(), logp_t.detach().squeeze(1), valid, rule)
    n_opponents = logp.shape[1] - 1 - (logp.detach() < tau).sum(1)
    active = valid & ~conceded & ((n_opponents > 0) | logp_t.isnan().squeeze(1))
    return torch.where(active, value, 0), active, conceded, logq


def _conceded(logp: Tensor, logp_t: Tensor, valid: Tensor, rule: MarginRule) -> Tensor:
    if not rule.concedes or logp.shape[1] == 1:
        return torch.zeros_like(valid)
    return rule.conceded(logp_t, logp.amax(1)) & valid


def gradient(logits: Tensor, target: Tensor, active: Tensor, rule: MarginRule) -> Tensor:
    """∂value/∂logits = q − onehot(target), 0 for rows that are not active. Differentiable."""
    logq = margin_log_softmax(torch.where(active[:, None], logits, 0), target, rule)[0]
    onehot = torch.zeros_like(logq).scatter(1, target[:, None], 1)
    return torch.where(active[:, None], logq.exp() - onehot, 0)


def chunk(
    logits: Tensor, target: Tensor, valid: Tensor, rule: MarginRule, grad: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return value, active and conceded of some rows, and write their gradients to `grad`, if not None."""
    index = target[:, None]
    if rule.keeps_all():
        logq = torch.log_softmax(in_float32(logits), dim=1)
        logp_t = logq.gather(1, index).squeeze(1)
        conceded = _conceded(logq, logp_t, valid, rule)
        active = valid & ~conceded
        value = torch.where(active, -logp_t, 0)
    else:
        value, active, conceded, logq = _equation(logits, target, valid, rule)
    if grad is not None:  # q − onehot(target), by the kernel of F.cross_entropy's backward
        minus_onehot = torch.zeros_like(logq).scatter_(1, index, -active.to(logq.dtype)[:, None])
        gradients = torch.ops.aten._log_softmax_backward_data(minus_onehot, logq, 1, logq.dtype)
        torch.where(active[:, None], gradients, logq.new_zeros(()), out=grad)  # an ignored row may hold NaN
    return value, active, conceded


def compute_rows(
    logits: Tensor, target: Tensor, valid: Tensor, rule: MarginRule, with_grad: bool, on_cpu: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return value, active and conceded of all rows, chunk by chunk, and their gradients, if `with_grad`."""
    grad = logits.new_empty(logits.shape if with_grad else 0, dtype=at_least_float32(logits.dtype))
    size = _rows_per_chunk(*logits.shape, on_cpu=on_cpu)
    compute = margin_softmax_cpu.chunk if on_cpu else chunk
    if size >= len(logits):
        return *compute(logits, target, valid, rule, grad if with_grad else None), grad
    chunks = zip(*(x.split(size) for x in (logits, target, valid)), strict=True)
    results = [
        compute(x, t, v, rule, grad[i * size : (i + 1) * size] if with_grad else None)
        for i, (x, t, v) in enumerate(chunks)
    ]
    value, active, conceded = (torch.cat(part) for part in zip(*results, strict=True))
    return value, active, conceded, grad


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


def _input_gradient(ctx: Any, upstream: Tensor | None) -> Tensor | None:
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


def _rows_per_chunk(n_rows: int, n_classes: int, *, on_cpu: bool) -> int:
    if on_cpu:  # about 8 MB in float32: large enough for the work per call, small enough for the cache
        return max(1, 2**21 // n_classes)
    return max(1, 2**20 // n_classes, -(-n_rows // 8))  # few kernel launches
