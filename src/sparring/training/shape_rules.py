"""Rules for operations that change shapes, join, split or sum: see node_rules."""

from __future__ import annotations

import math

import torch

from sparring.training.node_rules import Node, Outs, Values, cut, dims_of, grads, rule, run, shape_of, signed
from sparring.training.survivors import Grad, Survivors


@rule("View", "UnsafeView", "ReshapeAlias", "Squeeze")
def _reshape(node: Node, values: Values, rows: Survivors, dim: int) -> Outs | None:
    """Row-major order stays, so the samples have as many entries before them as they had."""
    shape, before = tuple(node._saved_self_sym_sizes), rows.before * math.prod(shape_of(node)[:dim])
    (grad,) = values
    for d in range(len(shape)):
        outside = math.prod(shape[:d])
        if grad is not None and before % outside == 0 and shape[d] > 1 and (at := rows.at(before // outside)).fits(shape, d):
            return [Grad(grad.reshape(cut(shape, rows, d)), at, d)]
    return None


@rule("Expand")
def _expand(node: Node, values: Values, rows: Survivors, dim: int) -> Outs | None:
    """The edge sums what was repeated."""
    return grads(values, rows, dim)


@rule("Unsqueeze")
def _unsqueeze(node: Node, values: Values, rows: Survivors, dim: int) -> Outs | None:
    (new,) = dims_of(node._saved_dim, len(shape_of(node)))
    return grads(run(node, values), rows, dim - (new < dim))


@rule("T", "Transpose", "Permute")
def _permute(node: Node, values: Values, rows: Survivors, dim: int) -> Outs | None:
    source = list(range(len(shape_of(node))))
    if hasattr(node, "_saved_dims"):
        source = list(dims_of(node._saved_dims, len(source)))
    else:
        a, b = (0, -1) if node.name() == "TBackward0" else dims_of((node._saved_dim0, node._saved_dim1), len(source))
        source[a], source[b] = source[b], source[a]
    return grads(run(node, values), rows, source[dim])


@rule("Select")
def _select(node: Node, values: Values, rows: Survivors, dim: int) -> Outs | None:
    shape = node._saved_self_sym_sizes
    (at,) = dims_of(node._saved_dim, len(shape))
    dim += at <= dim
    return [Grad(torch.ops.aten.select_backward(values[0], cut(shape, rows, dim), at, signed(node._saved_index)), rows, dim)]


@rule("Slice")
def _slice(node: Node, values: Values, rows: Survivors, dim: int) -> Outs | None:
    shape = node._saved_self_sym_sizes
    (at,) = dims_of(node._saved_dim, len(shape))
    if at == dim:
        return grads(values, rows, dim) if shape[dim] == shape_of(node)[dim] else None  # x[:]
    limits = (signed(node._saved_start), signed(node._saved_end), node._saved_step)
    return [Grad(torch.ops.aten.slice_backward(values[0], cut(shape, rows, dim), at, *limits), rows, dim)]


@rule("Cat", "Stack")
def _join(node: Node, values: Values, rows: Survivors, dim: int) -> Outs | None:
    (along,) = dims_of(node._saved_dim, len(shape_of(node)))
    if along == dim:
        return None
    dim -= node.name().startswith("Stack") and along < dim
    return grads(run(node, values), rows, dim)


@rule("Split", "SplitWithSizes", "Unbind")
def _split(node: Node, values: Values, rows: Survivors, dim: int) -> Outs | None:
    """Joins the parts' gradients again, with zeros for parts nobody used."""
    stacked = node.name().startswith("Unbind")
    (along,) = dims_of(node._saved_dim, len(shape_of(node)) + stacked)
    if along == dim and not stacked:
        return None
    like = next(value for value in values if value is not None)
    shapes = [cut(meta.shape, rows, dim) for meta in node._input_metadata]
    parts = [like.new_zeros(shape) if value is None else value for value, shape in zip(values, shapes, strict=True)]
    return [Grad(torch.stack(parts, along) if stacked else torch.cat(parts, along), rows, dim + (stacked and along <= dim))]


@rule("Sum", "Mean")
def _reduce(node: Node, values: Values, rows: Survivors, dim: int) -> Outs | None:
    """Over other dimensions than the samples'."""
    (grad,) = values
    if not hasattr(node, "_saved_dim") or grad is None:
        return None
    shape = node._saved_self_sym_sizes
    over = sorted(dims_of(node._saved_dim or range(len(shape)), len(shape)))
    for d in () if node._saved_keepdim else over:
        grad = grad.unsqueeze(d)
        dim += d <= dim
    if dim in over:
        return None
    if node.name().startswith("Mean"):
        grad = grad / math.prod(shape[d] for d in over)
    return [Grad(grad.expand(cut(shape, rows, dim)), rows, dim)]
