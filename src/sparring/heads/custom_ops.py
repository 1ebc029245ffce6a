"""The passes as opaque operators: what torch.compile sees, since chunks look at values and cannot be traced."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from sparring.heads.chunked import Found, pull_back, solve
from sparring.heads.dispatch import RULES, Head
from sparring.heads.gradients import Needs
from sparring.losses.base import at_least_float32

_TENSORS = "Tensor x, Tensor weight, Tensor? bias, Tensor target, Tensor? coefficient"
_HEAD = "str loss, Tensor setting, int ignore_index, ScalarType dtype, str impl, int chunk_rows, bool[] needs"
_BY_NAME = {function.__name__: function for function in RULES}


def plain_numbers(head: Head, needs: Needs) -> tuple[Any, ...]:
    """A head, for a schema. Its one setting, if any, as a tensor: a plain δ that changes would be compiled anew at every step."""
    setting = torch.zeros((), dtype=torch.float64, device="cpu") + sum(head.settings.values())
    return (
        head.row_function.__name__,
        setting,
        head.ignore_index,
        head.dtype,
        head.impl,
        head.chunk_rows or 0,
        list(needs),
    )


def _head(
    loss: str,
    setting: Tensor,
    ignore_index: int,
    dtype: torch.dtype,
    impl: str,
    chunk_rows: int,
    needs: list[bool],
) -> tuple[Head, Needs]:
    row_function = _BY_NAME[loss]
    name, _ = RULES[row_function]
    return Head(
        row_function, {name: setting.item()} if name else {}, ignore_index, dtype, impl, chunk_rows or None
    ), Needs(*needs)


def _empty(like: Tensor, shape: Any, need: bool, dtype: torch.dtype) -> Tensor:
    return like.new_empty(shape if need else (0,), dtype=dtype)


@torch.library.custom_op(
    "sparring::fused_rows",
    mutates_args=(),
    schema=f"({_TENSORS}, {_HEAD}) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
)
def rows_operator(
    x: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor, coefficient: Tensor | None, *numbers: Any
) -> tuple[Tensor, ...]:
    value, found = solve(x, weight, bias, target, coefficient, *_head(*numbers))
    return value, *found


@rows_operator.register_fake
def _(
    x: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor, coefficient: Tensor | None, *numbers: Any
) -> tuple[Tensor, ...]:
    *_, dtype, _, _, needs = numbers
    needs, dtype = Needs(*needs), at_least_float32(dtype)
    return (
        x.new_empty(x.shape[0], dtype=dtype),
        x.new_empty(x.shape[0], dtype=torch.bool),
        _empty(x, x.shape, needs.input, dtype),
        _empty(x, weight.shape, needs.weight, dtype),
        _empty(x, weight.shape[:1], needs.bias, dtype),
    )


@torch.library.custom_op(
    "sparring::fused_backward",
    mutates_args=(),
    schema=f"(Tensor upstream, {_TENSORS}, Tensor[] found, {_HEAD}) -> (Tensor, Tensor, Tensor)",
)
def backward_operator(upstream: Tensor, *args: Any) -> tuple[Tensor, ...]:
    x, weight, bias, target, coefficient, found, *numbers = args
    return pull_back(upstream, x, weight, bias, target, coefficient, Found(*found), *_head(*numbers))


@backward_operator.register_fake
def _(upstream: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None, *args: Any) -> tuple[Tensor, ...]:
    needs = Needs(*args[-1])
    return (
        _empty(x, x.shape, needs.input, x.dtype),
        _empty(x, weight.shape, needs.weight, weight.dtype),
        _empty(x, weight.shape[:1], needs.bias, weight.dtype if bias is None else bias.dtype),
    )


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    *tensors, ctx.loss, setting = inputs[:7]
    ctx.save_for_backward(*tensors, setting, *output[1:])
    ctx.numbers = inputs[7:-1]


def _backward(ctx: Any, upstream: Tensor, *_: Any) -> tuple[Any, ...]:
    *tensors, setting, active, x, weight, bias = ctx.saved_tensors
    needs = list(ctx.needs_input_grad[:3])
    grads = backward_operator(
        upstream, *tensors, [active, x, weight, bias], ctx.loss, setting, *ctx.numbers, needs
    )
    return *(grad if need else None for grad, need in zip(grads, needs, strict=True)), *(None,) * 9


rows_operator.register_autograd(_backward, setup_context=_setup_context)
