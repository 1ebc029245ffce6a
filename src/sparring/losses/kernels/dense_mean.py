"""The mean of margin softmax over all rows in one autograd node, for few classes on CPU.

For a few hundred rows, calls cost more than arithmetic: the reduction of row losses and its backward would
take as long as the losses.
"""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import forward_ad

from sparring.losses.base import at_least_float32, in_vmap, valid_targets
from sparring.losses.kernels.margin_softmax_chunks import compute_rows, gradient
from sparring.losses.kernels.margin_softmax_dense import EXP_CLASSES, MAX_LOSS, dense_sums, is_dense
from sparring.losses.kernels.rule import MarginRule

MAX_SIZE = 2**20  # logits; beyond, calls cost little, and chunks less memory


class _OutOfRangeError(Exception):
    """A row whose numbers leave the range of their dtype."""


def dense_mean(logits: Tensor, target: Tensor, rule: MarginRule, ignore_index: int) -> Tensor | None:
    """`margin_softmax_rows(…).mean()`, summed in another order, for arguments that are not checked yet.

    The result is None where the arguments may be wrong, or the rows have to be computed.
    """
    if rule.concede < 1 or not is_small(logits, target, ignore_index):
        return None
    all_valid = target.min().item() >= 0
    try:  # F.cross_entropy raises IndexError for a target that is no class, and gather RuntimeError
        if not is_dense(logits.shape[1], rule, logits.dtype):
            plain = all_valid and rule.keeps_all() and logits.dtype.itemsize >= 4  # half would lose digits
            return F.cross_entropy(logits, target) if plain else None
        valid = None
        if not all_valid:
            target, valid = valid_targets(target, ignore_index)
        if logits.requires_grad and torch.is_grad_enabled():
            return _apply(logits, target, valid, rule)  # type: ignore[no-any-return]
        return _mean(logits, target, valid, rule, False)[0]
    except (_OutOfRangeError, IndexError, RuntimeError):
        return None


def is_small(logits: Tensor, target: Tensor, ignore_index: int) -> bool:
    """Whether these are plain tensors on CPU, few logits of at least two classes and one index per row.

    torch.compile has to be excluded before, and torch.func and forward-mode AD are here.
    """
    if type(logits) not in (Tensor, nn.Parameter) or type(target) is not Tensor:
        return False
    shape = logits.shape
    return (
        len(shape) == 2
        and shape[1] > 1
        and 0 < shape[0] * shape[1] <= MAX_SIZE
        and target.shape == shape[:1]
        and target.dtype is torch.int64
        and logits.is_floating_point()
        and logits.is_cpu
        and target.is_cpu
        and type(ignore_index) is int
        and ignore_index < 0
        and forward_ad._current_level < 0
        and not torch._C._are_functorch_transforms_active()
    )


def _mean(
    logits: Tensor, target: Tensor, valid: Tensor | None, rule: MarginRule, with_grad: bool
) -> tuple[Tensor, int, Tensor]:
    """Return the mean loss, the number of valid rows, at least 1, and the (N, C) gradient of the sum."""
    if logits.dtype.itemsize < 4:
        logits = logits.to(at_least_float32(logits.dtype))
    remaining, _, grad = dense_sums(logits, target, rule, None, with_grad)
    loss = remaining.log_()
    # with few classes log(1 / p_t) has no limit but infinity
    if logits.shape[1] > EXP_CLASSES and not loss.max().item() < MAX_LOSS:
        raise _OutOfRangeError
    if valid is None:
        n_valid = len(loss)
        mean = loss.mean()
    else:
        factor = valid.to(loss.dtype)
        n_valid = max(1, int(factor.sum()))
        mean = loss.squeeze(1).dot(factor) / n_valid
        if with_grad:
            grad.mul_(factor[:, None])
    if not mean.item() < math.inf:  # also for NaN
        raise _OutOfRangeError
    return mean, n_valid, grad


class _DenseMean(torch.autograd.Function):
    """Forward computes the gradients along with the losses; backward scales them."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor, valid: Tensor | None, rule: MarginRule) -> Tensor:
        mean, ctx.n_valid, ctx.grad = _mean(logits, target, valid, rule, True)
        ctx.rule = rule
        ctx.dtype = logits.dtype
        ctx.save_for_backward(logits, target, valid)
        return mean

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled() or in_vmap(upstream):
            return _differentiable_gradient(ctx, upstream), None, None, None
        grad = ctx.grad
        ctx.grad = None  # the buffer itself is returned
        if grad is None:  # a second backward through the same graph
            logits, target, valid = ctx.saved_tensors
            grad = _mean(logits, target, valid, ctx.rule, True)[2]
        scale = upstream.item() / ctx.n_valid
        if math.isfinite(scale):
            grad.mul_(scale)
        else:
            grad = torch.where(grad == 0, 0, grad * scale)  # a row that is not active stays 0
        return grad if grad.dtype is ctx.dtype else grad.to(ctx.dtype), None, None, None


# Function.apply in Python only prepares for transforms of torch.func, which `is_small` excludes
_apply = super(torch.autograd.Function, _DenseMean).apply


def _differentiable_gradient(ctx: Any, upstream: Tensor) -> Any:
    """For create_graph, and for a batch of upstream gradients."""
    logits, target, valid = ctx.saved_tensors
    if valid is None:
        valid = torch.ones_like(target, dtype=torch.bool)
    active = compute_rows(logits.detach(), target, valid, ctx.rule, False, True)[1]
    return (gradient(logits, target, active, ctx.rule) * (upstream / ctx.n_valid)).to(logits.dtype)
