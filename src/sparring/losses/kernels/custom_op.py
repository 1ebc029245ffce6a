"""`margin_softmax.py` for torch.compile on CPU, which cannot trace what depends on values.

With few classes, `traced_rows` has operations for inductor. With many, `compute_rows` is an opaque operator:
inductor's code for the equation would take several times as long.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from sparring.losses.kernels.margin_softmax_chunks import compute_rows
from sparring.losses.kernels.modes import at_least_float32, in_float32
from sparring.losses.kernels.rule import MarginRule, make_rule

_ARGUMENTS = "Tensor logits, Tensor target, Tensor valid, str family, Tensor settings, bool with_grad"


def call_operator(
    logits: Tensor, target: Tensor, valid: Tensor, rule: MarginRule
) -> tuple[Tensor, Tensor, Tensor]:
    """Return value, active and conceded of all rows. logits (N, C), C > 1.

    The numbers of the rule are passed as a tensor: torch.compile would recompile for every value of δ.
    """
    zero = torch.zeros((), dtype=torch.float64, device="cpu")
    settings = torch.stack([zero + rule.number, zero + rule.concede])
    with_grad = torch.is_grad_enabled() and logits.requires_grad
    value, active, conceded, _ = rows_operator(logits, target, valid, rule.family, settings, with_grad)
    return value, active, conceded


@torch.library.custom_op(
    "sparring::margin_softmax",
    mutates_args=(),
    schema=f"({_ARGUMENTS}) -> (Tensor, Tensor, Tensor, Tensor)",
)
def rows_operator(
    logits: Tensor, target: Tensor, valid: Tensor, family: str, settings: Tensor, with_grad: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    rule = make_rule(family, *settings.tolist())
    if not len(logits):
        value = logits.new_zeros(0, dtype=at_least_float32(logits.dtype))
        return value, valid.clone(), valid.clone(), torch.zeros_like(logits, dtype=value.dtype)
    return compute_rows(logits, target, valid, rule, with_grad, True)


@rows_operator.register_fake
def _(
    logits: Tensor, target: Tensor, valid: Tensor, family: str, settings: Tensor, with_grad: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    dtype = at_least_float32(logits.dtype)
    grad = logits.new_empty(logits.shape if with_grad else (0,), dtype=dtype)
    return logits.new_empty(len(logits), dtype=dtype), torch.empty_like(valid), torch.empty_like(valid), grad


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.save_for_backward(output[1], output[3])
    ctx.dtype = inputs[0].dtype


def _backward(ctx: Any, upstream: Tensor, *_: Any) -> tuple[Any, ...]:
    active, grad = ctx.saved_tensors
    scale = torch.where(active, upstream, 0)[:, None]  # 0 times an upstream NaN would be NaN
    return (grad * scale).to(ctx.dtype), None, None, None, None, None


rows_operator.register_autograd(_backward, setup_context=_setup_context)


def traced_rows(
    logits: Tensor, target: Tensor, valid: Tensor, rule: MarginRule
) -> tuple[Tensor, Tensor, Tensor]:
    """Return value, active and conceded of all rows, in operations that inductor fuses. logits (N, C), C > 1.

    Losses and gradients are computed together, as the kernels do it: the derivative of the equation would
    take several times as long.
    """
    index = target[:, None]
    numbers = in_float32(logits.detach())
    peak = numbers.amax(1, keepdim=True)
    weights = (numbers - peak).exp()  # once, for softmax and for the log of the sum
    total = weights.sum(1, keepdim=True)
    p = weights / total
    logsum = total.squeeze(1).log()
    logp_t = (numbers.gather(1, index) - peak).squeeze(1) - logsum
    conceded = torch.zeros_like(valid)
    if rule.concedes:
        conceded = rule.conceded(logp_t, -logsum) & valid
    tau = rule.threshold(logp_t)
    weak = p < tau.exp()[:, None]  # false for NaN, which stays
    n_weak = weak.to(p.dtype).sum(1)
    active = valid & ~conceded & (n_weak < logits.shape[1] - 1)
    kept = torch.where(weak, 0, p)
    kept_total = kept.sum(1, keepdim=True)  # the largest p is in it, so it is at least 1/C
    log_total = torch.where(tau == -torch.inf, 0, kept_total.squeeze(1).log())
    value = torch.where(active, log_total - logp_t, 0)
    grad = (kept / kept_total).scatter_add(1, index, torch.full_like(total, -1))
    return _WithGradient.apply(logits, value, active, grad), active, conceded


class _WithGradient(torch.autograd.Function):
    """The value, with a gradient for the logits that is known already."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, value: Tensor, active: Tensor, grad: Tensor) -> Tensor:
        ctx.save_for_backward(active, grad)
        ctx.dtype = logits.dtype
        return value.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        active, grad = ctx.saved_tensors
        # 0 times an upstream NaN, or the NaN of an ignored row, would be NaN
        scaled = torch.where(active[:, None], grad * upstream[:, None], 0)
        return scaled.to(ctx.dtype), None, None, None
