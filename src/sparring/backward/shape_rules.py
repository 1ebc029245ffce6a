"""Rules for operations that change shapes, join, split or sum: see node_rules."""

from __future__ import annotations

import math

import torch

from sparring.backward.node_rules import (
    Node,
    Outs,
    Values,
    cut,
    dims_of,
    grads,
    rule,
    run,
    run_on,
    shape_of,
    signed,
)
from sparring.backward.surviving_rows import Grad, Survivors


@rule("View", "UnsafeView", "ReshapeAlias", "Squeeze")
def _reshape(node: Node, values: Values, rows: Survivors, dim: int) -> Outs | None:
    """Row-major order stays, so the samples have as many entries before them as they had."""
    shape, before = tuple(node._saved_self_sym_sizes), rows.before * math.prod(shape_of(node)[:dim])
    (grad,) = values
    for d in range(len(shape)):
        outside = math.prod(shape[:d])
        if (
            grad is not None
            and outside
            and before % outside == 0
            and shape[d] > 1
            and (at := rows.at(before // outside)).fits(shape, d)
        ):
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
        a, b = (
            (0, -1)
            if node.name() == "TBackward0"
            else dims_of((node._saved_dim0, node._saved_dim1), len(source))
        )
        source[a], source[b] = source[b], source[a]
    return grads(run(node, values), rows, source[dim])


@rule("Select")
def _select(node: Node, values: Values, rows: Survivors, dim: int) -> Outs | None:
    shape = node._saved_self_sym_sizes
    (at,) = dims_of(node._saved_dim, len(shape))
    dim += at <= dim
    return [
        Grad(
            torch.ops.aten.select_backward(values[0], cut(shape, rows, dim), at, signed(node._saved_index)),
            rows,
            dim,
        )
    ]


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
    parts = [
        like.new_zeros(shape) if value is None else value for value, shape in zip(values, shapes, strict=True)
    ]
    return [
        Grad(
            torch.stack(parts, along) if stacked else torch.cat(parts, along),
            rows,
            dim + (stacked and along <= dim),
        )
    ]


@rule("Roll", "Flip", "Cumsum", "ConstantPadNd")
def _along_others(node: Node, values: Values, rows: Survivors, dim: int) -> Outs | None:
    """Whatever moves along other dimensions than the samples'."""
    ndim = len(shape_of(node))
    if hasattr(node, "_saved_pad"):
        along = tuple(range(ndim - len(node._saved_pad) // 2, ndim))
    else:
        along = dims_of(node._saved_dim if hasattr(node, "_saved_dim") else node._saved_dims, ndim)
    return grads(run(node, values), rows, dim) if along and dim not in along else None


@rule("Repeat")
def _repeat(node: Node, values: Values, rows: Survivors, dim: int) -> Outs | None:
    """Sums what was repeated. Samples are entries of what was, or the repeats themselves."""
    repeats, shape = tuple(node._saved_repeats), node._saved_self_sym_sizes
    (grad,) = values
    shape = (*(1,) * (len(repeats) - len(shape)), *shape)
    of_repeats = repeats[dim] != 1
    if grad is None or (of_repeats and repeats[dim] % (rows.before * rows.n)):
        return None
    count = (*repeats[:dim], repeats[dim] // rows.n * rows.k, *repeats[dim + 1 :]) if of_repeats else repeats
    sizes = shape if of_repeats else cut(shape, rows, dim)
    pairs = [size for pair in zip(count, sizes, strict=True) for size in pair]
    total = grad.reshape(pairs).sum(tuple(range(0, len(pairs), 2)))
    return [Grad(total) if of_repeats else Grad(total, rows, dim)]


@rule("Gather")
def _gather(node: Node, values: Values, rows: Survivors, dim: int) -> Outs | None:
    (along,) = dims_of(node._saved_dim, len(shape_of(node)))
    fits = along != dim and node._saved_self.shape[dim] == shape_of(node)[dim]
    return grads(run_on(node, values, rows, {"self": dim, "index": dim}), rows, dim) if fits else None


@rule("IndexSelect")
def _index_select(node: Node, values: Values, rows: Survivors, dim: int) -> Outs | None:
    shape = node._saved_self_sym_sizes
    (along,) = dims_of(node._saved_dim, len(shape))
    if along == dim:
        return None
    return [
        Grad(
            torch.ops.aten.index_select_backward(values[0], cut(shape, rows, dim), along, node._saved_index),
            rows,
            dim,
        )
    ]


@rule("Glu")
def _glu(node: Node, values: Values, rows: Survivors, dim: int) -> Outs | None:
    (along,) = dims_of(node._saved_dim, len(shape_of(node)))
    return None if along == dim else grads(run_on(node, values, rows, {"self": dim}), rows, dim)


def _before_reduction(node: Node, dim: int, ndim: int) -> tuple[list[int], int | None]:
    """Which dimensions a reduction runs over, and where the samples were before it: None where it runs over them."""
    saved = node._saved_dim
    over = sorted(dims_of(range(ndim) if saved is None or saved == () else saved, ndim))
    for d in () if node._saved_keepdim else over:
        dim += d <= dim
    return over, None if dim in over else dim


@rule("Amax", "Amin", "LinalgVectorNorm", "Logsumexp")
def _reduce_by_result(node: Node, values: Values, rows: Survivors, dim: int) -> Outs | None:
    _, before = _before_reduction(node, dim, node._saved_self.ndim)
    return (
        None
        if before is None
        else grads(run_on(node, values, rows, {"self": before, "result": dim}), rows, before)
    )


@rule("Max", "Min")
def _select_one(node: Node, values: Values, rows: Survivors, dim: int) -> Outs | None:
    if not hasattr(node, "_saved_dim"):
        return None
    shape = node._saved_self_sym_sizes
    (over,), before = _before_reduction(node, dim, len(shape))
    if before is None:
        return None
    indices = rows.take(node._saved_indices, dim)
    kernel = torch.ops.aten.value_selecting_reduction_backward
    return [
        Grad(kernel(values[0], over, indices, cut(shape, rows, before), node._saved_keepdim), rows, before)
    ]


@rule("Sum", "Mean")
def _reduce(node: Node, values: Values, rows: Survivors, dim: int) -> Outs | None:
    """Over other dimensions than the samples'."""
    (grad,) = values
    if not hasattr(node, "_saved_dim") or grad is None:
        return None
    shape = node._saved_self_sym_sizes
    over, before = _before_reduction(node, dim, len(shape))
    if before is None:
        return None
    for d in () if node._saved_keepdim else over:
        grad = grad.unsqueeze(d)
    if node.name().startswith("Mean"):
        grad = grad / math.prod(shape[d] for d in over)
    return [Grad(grad.expand(cut(shape, rows, before)), rows, before)]
