"""`compute_rows` as an opaque operator for torch.compile on CPU, which cannot trace what depends on values.

The compiled equation would take several times as long: inductor computes the exponentials one by one.
"""

from typing import Any

import torch
from torch import Tensor

from sparring.losses.kernels.margin_softmax_chunks import compute_rows
from sparring.losses.kernels.modes import at_least_float32
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
