"""Cross entropy against strong opponents: the core of AS-Softmax, of its logit-margin variant and of plain softmax.

What differs between them is one scalar per row, the least log p an opponent may have and stay in the softmax:

    loss = log Σ_{i: log p_i ≥ τ} p_i − log p_t,      τ ≤ log p_t, a function of log p_t alone.

`strong_log_softmax` is that equation in differentiable torch operations: torch.compile fuses it; tensor subclasses,
forward-mode AD and second derivatives use it. In eager mode `_StrongSoftmax` keeps no (N, C) tensor but the gradient:
it goes through row chunks, on CPU with the kernel of `strong_cpu.py`, which touches the rows that need it; elsewhere
with the equation itself, which never waits for the device.

NaN and infinities mean what they mean to F.cross_entropy: a row with NaN or +inf, or with nothing but -inf, is NaN and
active; an opponent at -inf is masked; a target at -inf costs inf. An ignored row has gradient 0 whatever it holds.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor, nn

from sparring.losses.base import at_least_float32, in_float32, in_forward_mode, in_vmap, valid_targets
from sparring.losses.kernels import margin_softmax_cpu as strong_cpu
from sparring.losses.kernels.rule import Rule
from sparring.losses.rows import RowLosses


def strong_rows(logits: Tensor, target: Tensor, rule: Rule, ignore_index: int = -100) -> RowLosses:
    """Row losses of the softmax over the opponents at or above the threshold. logits (N, C), target (N,)."""
    target, valid = valid_targets(target, ignore_index)
    traced = torch.compiler.is_compiling() or type(logits) not in (Tensor, nn.Parameter) or in_forward_mode()
    if traced or logits.numel() == 0 or logits.shape[1] == 1:
        sane = torch.where(valid[:, None], logits, 0)  # a NaN in an ignored row does not reach its gradient
        value, active, _ = _formula(sane, target, valid, rule)
    else:
        with_grad = torch.is_grad_enabled() and logits.requires_grad
        value, active, _ = _StrongSoftmax.apply(logits, target, valid, rule, with_grad, logits.is_cpu)
    return RowLosses(value, valid, active)


def strong_log_softmax(logits: Tensor, target: Tensor, rule: Rule) -> tuple[Tensor, Tensor, Tensor]:
    """Log-probabilities over the strong opponents (-inf for the discarded), log p, and τ. The mask carries no gradient."""
    logp = torch.log_softmax(in_float32(logits), dim=1)  # (N, C)
    tau = rule.threshold(logp.detach().gather(1, target[:, None]))  # (N, 1)
    logq = torch.log_softmax(logp.masked_fill(logp.detach() < tau, -torch.inf), dim=1)  # (N, C)
    return logq, logp, tau


def _formula(logits: Tensor, target: Tensor, valid: Tensor, rule: Rule) -> tuple[Tensor, Tensor, Tensor]:
    """Value and active of each row, and log q."""
    logq, logp, tau = strong_log_softmax(logits, target, rule)
    logq_t, logp_t = (x.gather(1, target[:, None]) for x in (logq, logp))
    value = -torch.where(tau == -torch.inf, logp_t, logq_t).squeeze(1)
    n_opponents = logp.shape[1] - 1 - (logp.detach() < tau).sum(1)
    active = valid & ((n_opponents > 0) | logp_t.isnan().squeeze(1))
    return torch.where(active, value, 0), active, logq


def _gradient(logits: Tensor, target: Tensor, active: Tensor, rule: Rule) -> Tensor:
    """∂value/∂logits = q − onehot(target), 0 where the row is not active. Can be differentiated again."""
    logq = strong_log_softmax(torch.where(active[:, None], logits, 0), target, rule)[0]
    onehot = torch.zeros_like(logq).scatter(1, target[:, None], 1)
    return torch.where(active[:, None], logq.exp() - onehot, 0)


def chunk(
    logits: Tensor, target: Tensor, valid: Tensor, rule: Rule, grad: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Value and active of some rows; their gradients into `grad`, if given."""
    index = target[:, None]
    if rule.keeps_all():
        logq = torch.log_softmax(in_float32(logits), dim=1)
        value, active = torch.where(valid, -logq.gather(1, index).squeeze(1), 0), valid.clone()
    else:
        value, active, logq = _formula(logits, target, valid, rule)
    if (
        grad is not None
    ):  # q − onehot(target) through the kernel of F.cross_entropy's backward; 0 where not active
        minus_onehot = torch.zeros_like(logq).scatter_(1, index, -active.to(logq.dtype)[:, None])
        of_rows = torch.ops.aten._log_softmax_backward_data(minus_onehot, logq, 1, logq.dtype)
        torch.where(active[:, None], of_rows, logq.new_zeros(()), out=grad)  # an ignored row may hold NaN
    return value, active


class _StrongSoftmax(torch.autograd.Function):
    """Forward finds value and gradient together, chunk by chunk; backward scales the rows that have one."""

    @staticmethod
    def forward(
        logits: Tensor, target: Tensor, valid: Tensor, rule: Rule, with_grad: bool, on_cpu: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        grad = logits.new_empty(logits.shape if with_grad else 0, dtype=at_least_float32(logits.dtype))
        step = _rows_per_chunk(*logits.shape, on_cpu=on_cpu)
        solve = strong_cpu.chunk if on_cpu else chunk
        if step >= len(logits):
            return *solve(logits, target, valid, rule, grad if with_grad else None), grad
        parts = [
            solve(x, t, v, rule, grad[start : start + step] if with_grad else None)
            for start, x, t, v in zip(
                range(0, len(logits), step), *(x.split(step) for x in (logits, target, valid)), strict=True
            )
        ]
        value, active = (torch.cat(part) for part in zip(*parts, strict=True))
        return value, active, grad

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        logits, target, valid, ctx.rule, _, ctx.on_cpu = inputs
        _, active, grad = output
        ctx.mark_non_differentiable(active, grad)
        ctx.set_materialize_grads(False)  # or autograd fills an (N, C) tensor with zeros for nobody
        ctx.save_for_backward(logits, target, valid, active, grad)
        ctx.spent = False

    @staticmethod
    def backward(ctx: Any, grad_value: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
        if grad_value is None:
            return None, None, None, None, None, None
        logits, target, valid, active, grad = ctx.saved_tensors
        scale = torch.where(active, grad_value, 0)[:, None]  # 0 times an upstream NaN is NaN
        if torch.is_grad_enabled():  # a second derivative is wanted
            grad = _gradient(logits, target, active, ctx.rule) * scale
            return grad.to(logits.dtype), None, None, None, None, None
        # a second backward through the same graph, or a vmap that hid that there would be one
        if ctx.spent or grad.shape != logits.shape:
            grad = _StrongSoftmax.forward(logits, target, valid, ctx.rule, True, ctx.on_cpu)[2]
        if in_vmap(grad_value):  # many gradients at once: the buffer is multiplied by each, and stays
            grad = grad * scale
        else:
            ctx.spent = True  # the buffer itself becomes the answer: no second (N, C) tensor
            grad = grad.data.mul_(scale)
        return grad.to(logits.dtype), None, None, None, None, None

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, ...], *args: Any
    ) -> tuple[tuple[Tensor, ...], tuple[int | None, ...]]:
        # rows do not know of each other: a batch of rows is more rows
        tensors = [
            (x.expand(info.batch_size, *x.shape) if dim is None else x.movedim(dim, 0)).flatten(0, 1)
            for x, dim in zip(args[:3], in_dims, strict=False)
        ]
        value, active, grad = _StrongSoftmax.apply(*tensors, *args[3:])
        value, active = (x.unflatten(0, (info.batch_size, -1)) for x in (value, active))
        with_grad = args[4]
        return (value, active, grad.unflatten(0, (info.batch_size, -1)) if with_grad else grad), (
            0,
            0,
            0 if with_grad else None,
        )


# Function.apply binds its arguments to the signature of `forward` at every call; found anew each time, that takes longer than a small batch
_ANY_ARGUMENTS = inspect.Signature([inspect.Parameter("args", inspect.Parameter.VAR_POSITIONAL)])
_StrongSoftmax.forward.__signature__ = _ANY_ARGUMENTS  # type: ignore[attr-defined]


def _rows_per_chunk(n_rows: int, n_classes: int, *, on_cpu: bool) -> int:
    if (
        on_cpu
    ):  # about 8 MB in float32: a few operations' worth of work each, and still in the cache for the next
        return max(1, 2**21 // n_classes)
    return max(1, 2**20 // n_classes, -(-n_rows // 8))  # few launches
