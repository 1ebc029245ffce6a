"""Sparsemax and 1.5-entmax with their Fenchel-Young losses, based on the `entmax` package.

The package computes the projection. This module adds the interface of nn.CrossEntropyLoss: ignored rows, N-d
input, float32 arithmetic for half precision, NaN and infinities, second derivatives, forward-mode AD,
torch.func, torch.compile and FakeTensor.
"""

from collections.abc import Callable
from typing import Any

import entmax
import torch
from torch import Tensor

from sparring.losses.base import ClassLoss, register, valid_targets
from sparring.losses.kernels.modes import in_float32, in_forward_mode
from sparring.losses.rows import RowLosses

_PROJECTIONS: dict[float, Callable[..., Tensor]] = {1.5: entmax.entmax15, 2.0: entmax.sparsemax}


def sparsemax_rows(logits: Tensor, target: Tensor, ignore_index: int = -100) -> RowLosses:
    """The sparsemax loss (Martins & Astudillo 2016): `entmax_rows` at α = 2."""
    return entmax_rows(logits, target, 2.0, ignore_index)


def entmax15_rows(logits: Tensor, target: Tensor, ignore_index: int = -100) -> RowLosses:
    """The 1.5-entmax loss (Peters et al. 2019): `entmax_rows` at α = 1.5."""
    return entmax_rows(logits, target, 1.5, ignore_index)


def entmax_rows(logits: Tensor, target: Tensor, alpha: float, ignore_index: int = -100) -> RowLosses:
    r"""The Fenchel-Young loss of α-entmax, α = 1.5 or 2.

        p    = α-entmax(o) = argmax_p ⟨p, o⟩ + H_α(p),      H_α(p) = (1 − Σ_i p_i^α) / (α (α−1))
        loss = ⟨p − onehot(t), o⟩ + H_α(p)

    A row is won if p_t = 1: then its loss and its gradient p − onehot(t) are exactly 0.
    """
    target, valid = valid_targets(target, ignore_index)
    if in_forward_mode():
        value, active = _differentiable(logits, target, valid, alpha)
    else:
        value, active, _ = _FenchelYoung.apply(logits, target, valid, alpha)
    return RowLosses(value, valid, active)


def _shifted(logits: Tensor) -> Tensor:
    """Logits in float32 at least, shifted so that the largest is 0: large logits then lose no digits.

    A row with NaN or +inf, or with -inf alone, becomes NaN.
    """
    logits = in_float32(logits)
    return logits - logits.detach().amax(-1, keepdim=True)


def _project(shifted: Tensor, alpha: float) -> Tensor:
    """α-entmax. A row with NaN becomes all NaN; the package fails on it."""
    is_nan = shifted.amax(-1, keepdim=True).isnan()
    return _PROJECTIONS[alpha](shifted.masked_fill(is_nan, 0), dim=-1).masked_fill_(is_nan, torch.nan)


def _project_on(support: Tensor, shifted: Tensor, alpha: float) -> tuple[Tensor, Tensor]:
    r"""Compute p and p^(α−1) in closed form from the support S, in differentiable operations.

    p_i^(α−1) = (α−1) o_i − τ  on S,        x = (α−1) o

    α = 2:     τ = m − 1/|S|,               m the mean of x on S
    α = 1.5:   τ = m − √(1/|S| − v),        v its variance
    """
    x = torch.where(support, shifted if alpha == 2 else shifted / 2, 0)
    size = support.sum(-1, keepdim=True)
    mean = x.sum(-1, keepdim=True) / size
    if alpha == 2:
        p = torch.where(support, x - mean + 1 / size, 0)
        return p, p
    variance = torch.where(support, x - mean, 0).square().sum(-1, keepdim=True) / size
    root = torch.where(support, x - mean + (1 / size - variance).sqrt(), 0)
    return root.square(), root


def _loss(
    p: Tensor, power: Tensor, shifted: Tensor, target: Tensor, valid: Tensor, alpha: float
) -> tuple[Tensor, Tensor]:
    """Return loss and active of each row; the loss is 0 if the row is won or ignored. `power` is p^(α−1)."""
    index = target[..., None]
    o_t, p_t = (x.gather(-1, index).squeeze(-1) for x in (shifted, p))
    entropy = (1 - (p * power).sum(-1)) / (alpha * (alpha - 1))
    mean = (p * shifted.clamp(min=-16)).sum(-1)  # p is 0 below -2, but 0 times -inf is NaN
    value = (mean - o_t + entropy).clamp(min=0)
    active = valid & (((p != 0).sum(-1) > (p_t != 0)) | value.isnan())  # p > 0 besides the target
    return torch.where(active, value, 0), active


def _differentiable(logits: Tensor, target: Tensor, valid: Tensor, alpha: float) -> tuple[Tensor, Tensor]:
    """Return loss and active through differentiable operations, for forward-mode AD."""
    _, active, p = _FenchelYoung.apply(logits.detach(), target, valid, alpha)
    shifted = _shifted(torch.where(active[..., None], logits, 0))
    return _loss(*_project_on(p != 0, shifted, alpha), shifted, target, valid, alpha)


class _FenchelYoung(torch.autograd.Function):
    """Forward: loss, active and p. Backward: p − onehot(target), 0 if the row is not active."""

    @staticmethod
    def forward(logits: Tensor, target: Tensor, valid: Tensor, alpha: float) -> tuple[Tensor, Tensor, Tensor]:
        shifted = _shifted(logits)
        p = _project(shifted, alpha)
        power = p if alpha == 2 else p.sqrt()
        return *_loss(p, power, shifted, target, valid, alpha), p

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        logits, target, _, ctx.alpha = inputs
        ctx.mark_non_differentiable(*output[1:])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(logits, target, *output[1:])

    @staticmethod
    def backward(ctx: Any, grad_value: Tensor | None, *_: Any) -> tuple[Tensor | None, None, None, None]:
        if grad_value is None:
            return None, None, None, None
        logits, target, active, p = ctx.saved_tensors
        active = active[..., None]
        if torch.is_grad_enabled():  # create_graph: p has to be a function of the logits
            p = _project_on(p != 0, _shifted(torch.where(active, logits, 0)), ctx.alpha)[0]
        scale = grad_value[..., None]
        grad = (p * scale).scatter_add(-1, target[..., None], -scale)
        return torch.where(active, grad, 0).to(logits.dtype), None, None, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *args: Any) -> tuple[Any, tuple[int, ...]]:
        tensors = [
            x.expand(info.batch_size, *x.shape) if dim is None else x.movedim(dim, 0)
            for x, dim in zip(args[:3], in_dims, strict=False)
        ]
        return _FenchelYoung.apply(*tensors, args[3]), (0, 0, 0)


@register("sparsemax", sparsemax_rows)
class SparsemaxLoss(ClassLoss):
    """The sparsemax loss: 0 once the target's logit leads all others by 1 (Martins & Astudillo 2016)."""


@register("entmax15", entmax15_rows)
class Entmax15Loss(ClassLoss):
    """The 1.5-entmax loss: 0 once the target's logit leads all others by 2 (Peters et al. 2019)."""
