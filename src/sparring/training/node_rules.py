"""What torch's backward nodes do to samples that are independent of each other.

Every operation recorded by autograd is a node with a name (``AddmmBackward0``) and saved tensors. A rule here knows one kind of
node well enough to run torch's own backward of it on the survivors alone: which saved tensors run over the
samples and along which dimension, and along which one each resulting gradient does. A node without a rule, or whose rule
declines (returns None), is run in full by the caller. So a missing rule costs time, never exactness.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

from sparring.training.survivors import Grad, Survivors

Node = Any  # torch.autograd.graph.Node: its saved tensors are attributes made by torch's code generator
Values = Sequence[Tensor | None]
Outs = Sequence[Grad | None]
Rule = Callable[[Node, Values, Survivors, int], Outs | None]

_RULES: dict[str, Rule] = {}


@cache
def rule_for(name: str) -> Rule | None:
    """The rule for a kind of node. Overloads (``MulBackward0`` by tensor, ``MulBackward1`` by scalar) share one."""
    return _RULES.get(re.sub(r"Backward\d*$", "", name))


def _rule(*names: str) -> Callable[[Rule], Rule]:
    def register(rule: Rule) -> Rule:
        _RULES.update(dict.fromkeys(names, rule))
        return rule

    return register


# ---------------------------------------------------------------- running torch's own node on the survivors


class _Saved:
    """A hook on one saved tensor: it comes out with the survivors only, while ``armed``."""

    def __init__(self, rows: Survivors, dim: int) -> None:
        self.rows, self.dim, self.armed = rows, dim, False

    def unpack(self, x: Tensor) -> Tensor:
        return self.rows.take(x, self.dim) if self.armed else x


def _identity(x: Tensor) -> Tensor:
    return x


def _run(node: Node, values: Values, rows: Survivors, saved: dict[str, int]) -> tuple[Tensor | None, ...] | None:
    """torch's backward of ``node`` with the named saved tensors cut to the survivors; None where they are hooked already."""
    hooks = []
    for name, dim in saved.items():
        hook = _Saved(rows, dim)
        try:
            getattr(node, "_raw_saved_" + name).register_hooks(_identity, hook.unpack)
        except RuntimeError:  # hooked already
            return None
        hooks.append(hook)
    for hook in hooks:
        hook.armed = True
    try:
        return run(node, values)
    finally:
        for hook in hooks:
            hook.armed = False


def run(node: Node, values: Values) -> tuple[Tensor | None, ...]:
    """torch's backward of ``node``, called by hand: one gradient per edge of ``node.next_functions``."""
    if isinstance(node, torch.autograd.function.BackwardCFunction):
        return _run_python(node, values)
    outs = node(*values)
    return outs if isinstance(outs, tuple) else (outs,)


def _run_python(node: Node, values: Values) -> tuple[Tensor | None, ...]:
    """A Function written in Python: its backward answers for every argument, also for those that have no edge."""
    metas = node._input_metadata
    given = [torch.zeros(m.shape, dtype=m.dtype, device=m.device) if v is None else v for v, m in zip(values, metas, strict=True)]
    outs = node.apply(*given)
    outs = outs if isinstance(outs, tuple) else (outs,)
    needed = iter([out for out, need in zip(outs, node.needs_input_grad, strict=True) if need])
    return tuple(None if edge[0] is None else next(needed) for edge in node.next_functions)


def _grads(outs: Values | None, rows: Survivors, dims: int | Sequence[int | None]) -> Outs | None:
    """Each edge's gradient: along which dimension it holds the survivors, None for what all samples share."""
    if outs is None:
        return None
    if isinstance(dims, int):
        return [None if out is None else Grad(out, rows, dims) for out in outs]
    return [None if out is None else Grad(out) if d is None else Grad(out, rows, d) for out, d in zip(outs, dims, strict=True)]


def _saved(node: Node) -> dict[str, Tensor]:
    """The node's saved tensors by name, those it needs for this graph only."""
    tensors = {name: getattr(node, attribute) for name, attribute in _saved_names(node.__class__)}
    return {name: x for name, x in tensors.items() if isinstance(x, Tensor)}


@cache
def _saved_names(kind: Any) -> list[tuple[str, str]]:
    names = [name.removeprefix("_raw_saved_") for name in dir(kind) if name.startswith("_raw_saved_")]
    return [(name, f"_saved_{name}") for name in names]


def _signed(number: int) -> int:
    """Negative dimensions are read back as unsigned 64-bit numbers."""
    return number - 2**64 if number >= 2**63 else number


def _dims(numbers: int | Sequence[int], ndim: int) -> tuple[int, ...]:
    many = (numbers,) if isinstance(numbers, int) else numbers
    return tuple(_signed(number) % ndim for number in many)


def _shape(node: Node) -> tuple[int, ...]:
    """Shape of the node's (first) result in the forward."""
    return tuple(node._input_metadata[0].shape)


def _cut(shape: Sequence[int], rows: Survivors, dim: int) -> list[int]:
    return [*shape[:dim], shape[dim] // rows.n * rows.k, *shape[dim + 1 :]]


# ---------------------------------------------------------------- elementwise


@_rule(
    *("Abs", "Add", "Alias", "Clamp", "ClampMax", "ClampMin", "Clone", "Cos", "Div", "Elu", "Erf", "Exp", "Gelu", "Hardsigmoid"),
    *("Hardswish", "Hardtanh", "LeakyRelu", "Log", "Log1P", "LogSigmoid", "Maximum", "Minimum", "Mish", "Mul", "NativeDropout"),
    *("Neg", "Pow", "Reciprocal", "Relu", "Rsqrt", "Rsub", "Sigmoid", "Silu", "Sin", "Softplus", "Sqrt", "Square", "Sub", "Tanh"),
    *("Threshold", "ToCopy", "Where"),
)
def _elementwise(node: Node, values: Values, rows: Survivors, dim: int) -> Outs | None:
    """Saved tensors broadcast against the result: one runs over the samples iff it is as long there as the result."""
    saved = {}
    for name, x in _saved(node).items():
        shape = _shape(node)
        d = dim - (len(shape) - x.ndim)
        if d >= 0 and x.shape[d] == shape[dim]:
            saved[name] = d
    return _grads(_run(node, values, rows, saved), rows, dim)


@_rule("MaskedFill")
def _masked_fill(node: Node, values: Values, rows: Survivors, dim: int) -> Outs | None:
    """Elementwise where the filling is a plain number; a tensor's gradient would be a sum over everything."""
    return _elementwise(node, values, rows, dim) if len(node.next_functions) == 1 else None


@_rule("Softmax", "SafeSoftmax", "LogSoftmax")
def _softmax(node: Node, values: Values, rows: Survivors, dim: int) -> Outs | None:
    (over,) = _dims(node._saved_dim, len(_shape(node)))
    return None if over == dim else _elementwise(node, values, rows, dim)


# ---------------------------------------------------------------- layers


@_rule("Addmm", "Mm")
def _mm(node: Node, values: Values, rows: Survivors, dim: int) -> Outs | None:
    """bias + x @ W, with samples along the rows of x. The edge that carries the bias's gradient sums it."""
    if dim != 0:
        return None
    x, dims = ("mat1", (0, 0, None)) if node.name().startswith("Addmm") else ("self", (0, None))
    return _grads(_run(node, values, rows, {x: 0} if x in _saved(node) else {}), rows, dims)


@_rule("Bmm", "Baddbmm", "MaxPool2DWithIndices", "AvgPool2D", "AdaptiveAvgPool2D", "AdaptiveMaxPool2D")
def _each(node: Node, values: Values, rows: Survivors, dim: int) -> Outs | None:
    """One by one along the first dimension, in everything that goes in or comes out."""
    if dim != 0:
        return None
    return _grads(_run(node, values, rows, dict.fromkeys(_saved(node), 0)), rows, 0)


@_rule("Convolution")
def _convolution(node: Node, values: Values, rows: Survivors, dim: int) -> Outs | None:
    return None if dim != 0 else _grads(_run(node, values, rows, {"input": 0}), rows, (0, None, None))


@_rule("NativeLayerNorm", "FusedRmsNorm")
def _layer_norm(node: Node, values: Values, rows: Survivors, dim: int) -> Outs | None:
    if dim >= len(_shape(node)) - len(node._saved_normalized_shape):
        return None
    saved = {name: dim for name in _saved(node) if name not in ("weight", "bias")}
    return _grads(_run(node, values, rows, saved), rows, [dim, None, None][: len(node.next_functions)])


@_rule("NativeGroupNorm")
def _group_norm(node: Node, values: Values, rows: Survivors, dim: int) -> Outs | None:
    """By torch's own kernel, since the node remembers the number of samples."""
    if dim != 0 or values[0] is None or any(edge[0] is None for edge in node.next_functions):
        return None
    x, mean, rstd = (rows.take(saved, 0) for saved in (node._saved_input, node._saved_result1, node._saved_result2))
    sizes = (x.shape[0], node._saved_C, node._saved_HxW, node._saved_group)
    kernel = torch.ops.aten.native_group_norm_backward
    outs = kernel(values[0].contiguous(), x.contiguous(), mean, rstd, node._saved_weight, *sizes, [True, True, True])
    return _grads(outs, rows, (0, None, None))


@_rule("Embedding")
def _embedding(node: Node, values: Values, rows: Survivors, dim: int) -> Outs | None:
    if dim >= node._saved_indices.ndim or node._saved_scale_grad_by_freq:  # the frequencies are those of the whole batch
        return None
    return _grads(_run(node, values, rows, {"indices": dim}), rows, (None,))


@_rule(
    *("ScaledDotProductFlashAttentionForCpu", "ScaledDotProductFlashAttention", "ScaledDotProductEfficientAttention"),
    "ScaledDotProductCudnnAttention",
)
def _attention(node: Node, values: Values, rows: Survivors, dim: int) -> Outs | None:
    """(n, heads, T, d); a mask may be shared. The kernels draw dropout by position in the batch, so with it they stay whole."""
    if dim != 0 or node._saved_dropout_p > 0:
        return None
    n = _shape(node)[0]
    saved = {name: 0 for name, x in _saved(node).items() if x.ndim >= 3 and x.shape[0] == n}
    return _grads(_run(node, values, rows, saved), rows, 0)


# ---------------------------------------------------------------- shapes


@_rule("View", "UnsafeView", "ReshapeAlias", "Squeeze")
def _reshape(node: Node, values: Values, rows: Survivors, dim: int) -> Outs | None:
    """Row-major order stays, so the samples have as many entries before them as they had."""
    shape, before = tuple(node._saved_self_sym_sizes), rows.before * math.prod(_shape(node)[:dim])
    (grad,) = values
    for d in range(len(shape)):
        outside = math.prod(shape[:d])
        if grad is not None and before % outside == 0 and shape[d] > 1 and (at := rows.at(before // outside)).fits(shape, d):
            return [Grad(grad.reshape(_cut(shape, rows, d)), at, d)]
    return None


@_rule("Expand")
def _expand(node: Node, values: Values, rows: Survivors, dim: int) -> Outs | None:
    """The edge sums what was repeated."""
    return _grads(values, rows, dim)


@_rule("Unsqueeze")
def _unsqueeze(node: Node, values: Values, rows: Survivors, dim: int) -> Outs | None:
    (new,) = _dims(node._saved_dim, len(_shape(node)))
    return _grads(run(node, values), rows, dim - (new < dim))


@_rule("T", "Transpose", "Permute")
def _permute(node: Node, values: Values, rows: Survivors, dim: int) -> Outs | None:
    source = list(range(len(_shape(node))))
    if hasattr(node, "_saved_dims"):
        source = list(_dims(node._saved_dims, len(source)))
    else:
        a, b = (0, -1) if node.name() == "TBackward0" else _dims((node._saved_dim0, node._saved_dim1), len(source))
        source[a], source[b] = source[b], source[a]
    return _grads(run(node, values), rows, source[dim])


@_rule("Select")
def _select(node: Node, values: Values, rows: Survivors, dim: int) -> Outs | None:
    shape = node._saved_self_sym_sizes
    (at,) = _dims(node._saved_dim, len(shape))
    dim += at <= dim
    return [Grad(torch.ops.aten.select_backward(values[0], _cut(shape, rows, dim), at, _signed(node._saved_index)), rows, dim)]


@_rule("Slice")
def _slice(node: Node, values: Values, rows: Survivors, dim: int) -> Outs | None:
    shape = node._saved_self_sym_sizes
    (at,) = _dims(node._saved_dim, len(shape))
    if at == dim:
        return _grads(values, rows, dim) if shape[dim] == _shape(node)[dim] else None  # x[:]
    limits = (_signed(node._saved_start), _signed(node._saved_end), node._saved_step)
    return [Grad(torch.ops.aten.slice_backward(values[0], _cut(shape, rows, dim), at, *limits), rows, dim)]


@_rule("Cat", "Stack")
def _join(node: Node, values: Values, rows: Survivors, dim: int) -> Outs | None:
    (along,) = _dims(node._saved_dim, len(_shape(node)))
    if along == dim:
        return None
    dim -= node.name().startswith("Stack") and along < dim
    return _grads(run(node, values), rows, dim)


@_rule("Split", "SplitWithSizes", "Unbind")
def _split(node: Node, values: Values, rows: Survivors, dim: int) -> Outs | None:
    """Joins the parts' gradients again, with zeros for parts nobody used."""
    stacked = node.name().startswith("Unbind")
    (along,) = _dims(node._saved_dim, len(_shape(node)) + stacked)
    if along == dim and not stacked:
        return None
    like = next(value for value in values if value is not None)
    shapes = [_cut(meta.shape, rows, dim) for meta in node._input_metadata]
    parts = [like.new_zeros(shape) if value is None else value for value, shape in zip(values, shapes, strict=True)]
    return [Grad(torch.stack(parts, along) if stacked else torch.cat(parts, along), rows, dim + (stacked and along <= dim))]


@_rule("Sum", "Mean")
def _reduce(node: Node, values: Values, rows: Survivors, dim: int) -> Outs | None:
    """Over other dimensions than the samples'."""
    (grad,) = values
    if not hasattr(node, "_saved_dim") or grad is None:
        return None
    shape = node._saved_self_sym_sizes
    over = sorted(_dims(node._saved_dim or range(len(shape)), len(shape)))
    for d in () if node._saved_keepdim else over:
        grad = grad.unsqueeze(d)
        dim += d <= dim
    if dim in over:
        return None
    if node.name().startswith("Mean"):
        grad = grad / math.prod(shape[d] for d in over)
    return [Grad(grad.expand(_cut(shape, rows, dim)), rows, dim)]
