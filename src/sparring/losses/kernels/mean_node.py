"""The mean loss over all rows in one autograd node, for small problems on CPU.

For a few hundred rows, calls cost more than arithmetic: row losses, their masks, the reduction and its
backward would take longer than the losses. A `MeanForm` computes the mean and the gradient together in few
operations. Arguments are not checked before: where they may be wrong, or a number leaves the range of its
dtype, there is no result, and the rows are computed.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

from sparring.losses.kernels.modes import in_vmap
from sparring.losses.rows import RowLosses, loss_dtype, valid_targets

# Row functions with a quicker way to the mean loss: a function of input, target, ignore_index and the
# settings in the order of their names. It returns None where the rows have to be computed.
MEANS: dict[Callable[..., RowLosses], Callable[..., Tensor | None]] = {}
MAX_SIZE = 2**20  # logits; beyond, calls cost little, and chunks less memory


class OutOfRangeError(Exception):
    """The rows have to be computed: an argument may be wrong, or a number leaves the range of its dtype."""


class Mean(NamedTuple):
    """The mean of the row losses, and what its gradient follows from."""

    value: Tensor  # 0-d
    divisor: float  # the gradient of the mean is grad / divisor
    grad: Tensor  # (N, C) in float32 at least, if asked for


class MeanForm(NamedTuple):
    """How to compute the mean of a loss. `settings` is what both functions need besides the tensors."""

    compute: Callable[[Tensor, Tensor, Any, bool], Mean]  # logits, target, settings, with_grad
    rows: Callable[[Tensor, Tensor, Any], RowLosses]  # for derivatives of higher order


def short_mean(
    row_function: Callable[..., RowLosses], input: Tensor, target: Tensor, *settings: Any, **named: Any
) -> Tensor | None:
    """The mean by `MEANS`, in the dtype of F.cross_entropy, or None."""
    mean_function = MEANS.get(row_function)
    if mean_function is None or torch.compiler.is_compiling():
        return None
    mean = mean_function(input, target, *settings, **named)
    return mean if mean is None or mean.dtype is input.dtype else mean.to(loss_dtype(input))


def small_mean(form: MeanForm, logits: Tensor, target: Tensor, settings: Any) -> Tensor | None:
    """The mean loss of arguments that `is_small` accepts, or None where the rows have to be computed."""
    try:  # gather raises RuntimeError for a target that is no class
        if logits.requires_grad and torch.is_grad_enabled():
            return _apply(logits, target, form, settings)  # type: ignore[no-any-return]
        return form.compute(logits, target, settings, False).value
    except (OutOfRangeError, RuntimeError):
        return None


def is_small(logits: Tensor, target: Tensor, ignore_index: int) -> bool:
    """`is_small_matrix` with one index per row."""
    return (
        is_small_matrix(logits, target, ignore_index)
        and target.shape == logits.shape[:1]
        and target.dtype is torch.int64
    )


def is_small_matrix(logits: Tensor, target: Tensor, ignore_index: int) -> bool:
    """Whether these are plain tensors on CPU, and few logits of at least two classes.

    torch.compile has to be excluded before, and torch.func and forward-mode AD are here.
    """
    if type(logits) not in (Tensor, nn.Parameter) or type(target) is not Tensor:
        return False
    shape = logits.shape
    return (
        len(shape) == 2
        and shape[1] > 1
        and 0 < shape[0] * shape[1] <= MAX_SIZE
        and logits.is_floating_point()
        and logits.is_cpu
        and target.is_cpu
        and type(ignore_index) is int
        and ignore_index < 0
        and forward_ad._current_level < 0
        and not torch._C._are_functorch_transforms_active()
    )


def read_targets(target: Tensor, ignore_index: int) -> tuple[Tensor, Tensor | None]:
    """Return targets that are safe to index with, and the mask of valid rows, or None if all are."""
    return (target, None) if target.min().item() >= 0 else valid_targets(target, ignore_index)


def mean_of(loss: Tensor, valid: Tensor | None, grad: Tensor, *, with_grad: bool) -> Mean:
    """The mean of (N, 1) row losses. Where rows are ignored, `grad` is changed in place."""
    if valid is None:
        mean = Mean(loss.mean(), len(loss), grad)
    else:
        factor = valid.to(loss.dtype)
        factor.div_(max(1.0, factor.sum().item()))
        mean = Mean(loss.squeeze(1).dot(factor), 1, grad.mul_(factor[:, None]) if with_grad else grad)
    if not mean.value.item() < math.inf:  # also for NaN
        raise OutOfRangeError
    return mean


class _MeanNode(torch.autograd.Function):
    """Forward computes the gradients along with the losses; backward scales them."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor, form: MeanForm, settings: Any) -> Tensor:
        mean, ctx.divisor, ctx.grad = form.compute(logits, target, settings, True)
        ctx.form = form
        ctx.settings = settings
        ctx.dtype = logits.dtype
        ctx.save_for_backward(logits, target)
        return mean

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            return _differentiable_gradient(ctx, upstream), None, None, None
        grad = ctx.grad
        ctx.grad = None  # the buffer itself is returned
        if grad is None:  # a second backward through the same graph
            logits, target = ctx.saved_tensors
            grad = ctx.form.compute(logits, target, ctx.settings, True).grad
        if in_vmap(upstream):
            return (grad * (upstream / ctx.divisor)).to(ctx.dtype), None, None, None
        scale = upstream.item() / ctx.divisor
        if not math.isfinite(scale):
            grad = torch.where(grad == 0, 0, grad * scale)  # a row that is not active stays 0
        elif scale != 1:
            grad.mul_(scale)
        return grad if grad.dtype is ctx.dtype else grad.to(ctx.dtype), None, None, None


# Function.apply in Python only prepares for transforms of torch.func, which `is_small` excludes
_apply = super(torch.autograd.Function, _MeanNode).apply


def _differentiable_gradient(ctx: Any, upstream: Tensor) -> Tensor:
    """For create_graph."""
    logits, target = ctx.saved_tensors
    mean = ctx.form.rows(logits, target, ctx.settings).mean()
    gradient: Tensor = torch.autograd.grad(mean, logits, create_graph=True)[0]
    return gradient * upstream
