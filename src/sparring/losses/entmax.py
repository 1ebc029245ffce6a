"""Sparsemax and 1.5-entmax with their Fenchel-Young losses, on the `entmax` package, called as nn.CrossEntropyLoss is.

The package finds the projection. What it lacks for a drop-in stands here: ignored rows, N-d input, float32 for half
precision, second derivatives, torch.func and torch.compile.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import entmax
import torch
from torch import Tensor

from sparring.losses.base import ClassLoss, finite, register, valid_targets
from sparring.rows import RowLosses

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

    Won when p puts everything on the target: then loss and gradient p − onehot(t) are exactly 0.
    """
    target, valid = valid_targets(target, ignore_index)
    value, p = _FenchelYoung.apply(logits, target, alpha)
    p_t = p.gather(1, target[:, None]).squeeze(1)
    active = valid & ((p != 0).sum(1) > (p_t != 0))  # somebody besides the target
    return RowLosses(torch.where(active, value, 0), valid, active)


def _shifted(logits: Tensor) -> Tensor:
    """A fresh copy in float32 at least with the largest logit at 0: the loss does not change, and large logits lose no digits."""
    logits = finite(logits)
    return logits.sub_(logits.amax(-1, keepdim=True))


def _project(shifted: Tensor, alpha: float) -> Tensor:
    lost = shifted.amax(-1, keepdim=True).isnan()  # the package looks for a threshold that NaN does not have
    if not torch.compiler.is_compiling() and shifted.is_cpu and not lost.any():
        return _PROJECTIONS[alpha](shifted, dim=-1)
    p = _PROJECTIONS[alpha](shifted.masked_fill(lost, 0), dim=-1)
    return p.masked_fill(lost, torch.nan)


class _FenchelYoung(torch.autograd.Function):
    """Forward: loss and p. Backward: p − onehot(target)."""

    @staticmethod
    def forward(logits: Tensor, target: Tensor, alpha: float) -> tuple[Tensor, Tensor]:
        o = _shifted(logits)
        o_t = o.gather(-1, target[..., None]).squeeze(-1)
        o.clamp_(min=-16)  # p is 0 from -2 on; 0 times -inf is not
        p = _project(o, alpha)
        power = p * p if alpha == 2 else p * p.sqrt()
        entropy = (1 - power.sum(-1)) / (alpha * (alpha - 1))
        return ((p * o).sum(-1) - o_t + entropy).clamp_(min=0), p

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        logits, target, ctx.alpha = inputs
        ctx.mark_non_differentiable(output[1])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(logits, target, output[1])

    @staticmethod
    def backward(ctx: Any, grad_value: Tensor | None, _: Any) -> tuple[Tensor | None, None, None]:
        if grad_value is None:
            return None, None, None
        logits, target, p = ctx.saved_tensors
        if torch.is_grad_enabled():  # a second derivative is wanted: p as a function of the logits
            p = _Projection.apply(logits, ctx.alpha)
        scale = grad_value[..., None]
        return (p * scale).scatter_add(-1, target[..., None], -scale).to(logits.dtype), None, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], logits: Tensor, target: Tensor, alpha: float) -> tuple[Any, tuple[int, int]]:
        logits, target = (
            x.expand(info.batch_size, *x.shape) if dim is None else x.movedim(dim, 0)
            for x, dim in zip((logits, target), in_dims, strict=False)
        )
        return _FenchelYoung.apply(logits, target, alpha), (0, 0)


class _Projection(torch.autograd.Function):
    r"""α-entmax with a derivative that can be derived again: J = diag(s) − s sᵀ / Σ s, s = p^(2−α) on the support."""

    @staticmethod
    def forward(logits: Tensor, alpha: float) -> Tensor:
        return _project(_shifted(logits), alpha)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.alpha = inputs[1]
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx: Any, grad_p: Tensor) -> tuple[Tensor, None]:
        (p,) = ctx.saved_tensors
        s = torch.where(p > 0, torch.where(p > 0, p, 1).pow(2 - ctx.alpha), 0)
        return s * (grad_p - (s * grad_p).sum(-1, keepdim=True) / s.sum(-1, keepdim=True)), None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int, None], logits: Tensor, alpha: float) -> tuple[Tensor, int]:
        return _Projection.apply(logits.movedim(in_dims[0], 0), alpha), 0


@register("sparsemax", sparsemax_rows)
class SparsemaxLoss(ClassLoss):
    """The sparsemax loss: zero once the target's logit leads all others by 1."""


@register("entmax15", entmax15_rows)
class Entmax15Loss(ClassLoss):
    """The 1.5-entmax loss: between softmax and sparsemax, zero once the target's logit leads all others by 2."""
