"""The chunked passes as opaque operators for torch.compile, which cannot trace what depends on values."""

from typing import Any

import torch
from torch import Tensor

from sparring.heads import chunked
from sparring.heads.autograd import N_INPUTS, pull_back
from sparring.heads.dispatch import RULES, HeadInputs, HeadSpec
from sparring.heads.gradients import HeadGradients, NeedsGrad
from sparring.losses.kernels.modes import at_least_float32

_INPUTS = "Tensor features, Tensor weight, Tensor? bias, Tensor target, Tensor? coefficient"
_SPEC = (
    "str loss, Tensor settings, int ignore_index, ScalarType dtype, str impl, int chunk_rows, bool[] needs"
)
_ROW_FUNCTIONS = {function.__name__: function for function in RULES}


def spec_arguments(spec: HeadSpec, needs: NeedsGrad) -> tuple[Any, ...]:
    """The arguments of the schema `_SPEC`.

    The settings of the loss are passed as a tensor: torch.compile would recompile for every value of δ.
    """
    zero = torch.zeros((), dtype=torch.float64, device="cpu")
    name, _ = RULES[spec.row_function]
    values = [spec.settings[name]] if name else []
    settings = torch.stack([zero + value for value in (*values, spec.settings.get("concede", 1.0))])
    loss = spec.row_function.__name__
    return loss, settings, spec.ignore_index, spec.dtype, spec.impl, spec.chunk_rows or 0, list(needs)


def _spec(
    loss: str, settings: Tensor, ignore_index: int, dtype: torch.dtype, impl: str, chunk_rows: int
) -> HeadSpec:
    """The inverse of `spec_arguments`."""
    row_function = _ROW_FUNCTIONS[loss]
    name, _ = RULES[row_function]
    names = [name, "concede"] if name else ["concede"]
    numbers = dict(zip(names, settings.tolist(), strict=True))
    return HeadSpec(row_function, numbers, ignore_index, dtype, impl, chunk_rows or None)


def _fake_gradients(
    features: Tensor, weight: Tensor, needs: list[bool], dtypes: list[torch.dtype]
) -> tuple[Tensor, ...]:
    shapes = (features.shape, weight.shape, weight.shape[:1])
    triples = zip(shapes, needs, dtypes, strict=True)
    return tuple(features.new_empty(shape if need else (0,), dtype=dtype) for shape, need, dtype in triples)


@torch.library.custom_op(
    "sparring::fused_rows",
    mutates_args=(),
    schema=f"({_INPUTS}, {_SPEC}) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
)
def rows_operator(*args: Any) -> tuple[Tensor, ...]:
    *spec, needs = args[N_INPUTS:]
    inputs = HeadInputs(*args[:N_INPUTS])
    value, active, conceded, gradients = chunked.solve(inputs, _spec(*spec), NeedsGrad(*needs))
    return value, active, conceded, *gradients


@rows_operator.register_fake
def _(features: Tensor, weight: Tensor, *args: Any) -> tuple[Tensor, ...]:
    *_, dtype, _, _, needs = args
    dtype = at_least_float32(dtype)
    value = features.new_empty(features.shape[0], dtype=dtype)
    active = features.new_empty(features.shape[0], dtype=torch.bool)
    return value, active, torch.empty_like(active), *_fake_gradients(features, weight, needs, [dtype] * 3)


@torch.library.custom_op(
    "sparring::fused_backward",
    mutates_args=(),
    schema=f"(Tensor upstream, {_INPUTS}, Tensor active, Tensor[] gradients, {_SPEC})"
    " -> (Tensor, Tensor, Tensor)",
)
def backward_operator(upstream: Tensor, *args: Any) -> tuple[Tensor, ...]:
    active, gradients, *spec, needs = args[N_INPUTS:]
    inputs = HeadInputs(*args[:N_INPUTS])
    return pull_back(upstream, inputs, active, HeadGradients(*gradients), _spec(*spec), NeedsGrad(*needs))


@backward_operator.register_fake
def _(
    upstream: Tensor, features: Tensor, weight: Tensor, bias: Tensor | None, *args: Any
) -> tuple[Tensor, ...]:
    bias_dtype = weight.dtype if bias is None else bias.dtype
    return _fake_gradients(features, weight, args[-1], [features.dtype, weight.dtype, bias_dtype])


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.loss, settings = inputs[N_INPUTS : N_INPUTS + 2]
    ctx.save_for_backward(*inputs[:N_INPUTS], settings, output[1], *output[3:])
    ctx.numbers = inputs[N_INPUTS + 2 : -1]


def _backward(ctx: Any, upstream: Tensor, *_: Any) -> tuple[Any, ...]:
    inputs = ctx.saved_tensors[:N_INPUTS]
    settings, active, *gradients = ctx.saved_tensors[N_INPUTS:]
    needs = list(ctx.needs_input_grad[:3])
    spec = (ctx.loss, settings, *ctx.numbers, needs)
    result = backward_operator(upstream, *inputs, active, gradients, *spec)
    needed = (gradient if need else None for gradient, need in zip(result, needs, strict=True))
    return *needed, *(None,) * (N_INPUTS - 3 + len(spec))


rows_operator.register_autograd(_backward, setup_context=_setup_context)
