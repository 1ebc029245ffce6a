"""Rules for operations that reshape, join, split, move or reduce: see ``node_rules``."""

import math

import torch

from sparring.backward.node_rules import Grads, NodeVisit, kind_of, rule, signed
from sparring.backward.surviving_rows import CompactGrad


@rule("View UnsafeView ReshapeAlias Squeeze")
def _reshape(visit: NodeVisit) -> Grads | None:
    """Row-major order stays, so the product of all sizes before the samples stays."""
    shape = visit.node._saved_self_sym_sizes
    n_before = visit.rows.outer * math.prod(visit.shape[: visit.dim])
    for dim, size in enumerate(shape):
        n_outside = math.prod(shape[:dim])
        if n_outside == 0 or n_before % n_outside or size <= 1:
            continue
        rows = visit.rows.with_outer(n_before // n_outside)
        if size % (rows.outer * rows.n) == 0:
            return [CompactGrad(visit.grads[0].reshape(rows.cut(shape, dim)), rows, dim)]
    return None


@rule("Expand")
def _expand(visit: NodeVisit) -> Grads | None:
    return visit.results(visit.grads, visit.dim)  # it is summed to the shape of the input later


@rule("T Transpose Permute")
def _permute(visit: NodeVisit) -> Grads | None:
    node = visit.node
    order = list(range(len(visit.shape)))
    if hasattr(node, "_saved_dims"):
        order = list(visit.dims(node._saved_dims))
    else:
        a, b = visit.dims((node._saved_dim0, node._saved_dim1)) if hasattr(node, "_saved_dim0") else (0, -1)
        order[a], order[b] = order[b], order[a]
    return visit.run(order[visit.dim])


@rule("Unsqueeze Stack")
def _new_dimension(visit: NodeVisit) -> Grads | None:
    (new,) = visit.dims(visit.node._saved_dim)
    return None if new == visit.dim else visit.run(visit.dim - (new < visit.dim))


@rule("Softmax SafeSoftmax LogSoftmax Cat ConstantPadNd Cumsum Flip Gather Glu Roll")
def _along_other_dimensions(visit: NodeVisit) -> Grads | None:
    """Operations along some dimensions, which treat the others as a batch."""
    node = visit.node
    ndim = len(visit.shape)
    is_pad = hasattr(node, "_saved_pad")
    if is_pad:  # pairs of sizes, the last dimension first; a dimension with zeros is not padded
        padding = [signed(size) for size in node._saved_pad]
        along = tuple(ndim - 1 - i // 2 for i, size in enumerate(padding) if size)
    else:
        along = visit.dims(node._saved_dim if hasattr(node, "_saved_dim") else node._saved_dims)
    saved = visit.saved()
    length = visit.shape[visit.dim]
    mixes = visit.dim in along or not (along or is_pad)
    if mixes or any(x.shape[visit.dim] != length for x in saved.values()):
        return None
    return visit.run(visit.dim, dict.fromkeys(saved, visit.dim))


@rule("FftC2C FftC2R FftR2C ViewAsComplex ViewAsReal")
def _fourier(visit: NodeVisit) -> Grads | None:
    """Transforms along other dimensions. A pair of numbers and a complex one differ in the last dimension."""
    along = visit.dims(visit.node._saved_dim) if hasattr(visit.node, "_saved_dim") else ()
    return None if visit.dim in along else visit.run(visit.dim)


@rule("Col2Im Im2Col")
def _patches(visit: NodeVisit) -> Grads | None:
    """Patches of images: (n, channels · kernel, positions) and (n, channels, height, width)."""
    has_samples = len(visit.shape) == (3 if kind_of(visit.node.name()) == "Im2Col" else 4)
    return visit.run(0) if has_samples and visit.dim == 0 else None


@rule("Select Slice IndexSelect")
def _part(visit: NodeVisit) -> Grads | None:
    """A part along another dimension. The nodes save the input's shape, so the kernels are called instead."""
    node = visit.node
    operation = kind_of(node.name())
    shape = node._saved_self_sym_sizes
    (along,) = visit.dims(node._saved_dim, len(shape))
    dim = visit.dim + (operation == "Select" and along <= visit.dim)
    if along == dim:
        is_whole = operation == "Slice" and shape[dim] == visit.shape[dim]  # x[:]
        return visit.results(visit.grads, dim) if is_whole else None
    arguments = visit.grads[0], visit.rows.cut(shape, dim), along
    if operation == "Select":
        grad = torch.ops.aten.select_backward(*arguments, signed(node._saved_index))
    elif operation == "Slice":
        limits = signed(node._saved_start), signed(node._saved_end)
        grad = torch.ops.aten.slice_backward(*arguments, *limits, node._saved_step)
    else:
        grad = torch.ops.aten.index_select_backward(*arguments, node._saved_index)
    return visit.results([grad], dim)


@rule("Split SplitWithSizes Unbind")
def _split(visit: NodeVisit) -> Grads | None:
    """Join the gradients of the parts. Unused parts get zeros."""
    removes_dim = kind_of(visit.node.name()) == "Unbind"
    (along,) = visit.dims(visit.node._saved_dim, len(visit.shape) + removes_dim)
    if along == visit.dim and not removes_dim:
        return None
    example = next(grad for grad in visit.grads if grad is not None)
    parts = [
        example.new_zeros(visit.rows.cut(meta.shape, visit.dim)) if grad is None else grad
        for grad, meta in zip(visit.grads, visit.node._input_metadata, strict=True)
    ]
    if removes_dim:
        return visit.results([torch.stack(parts, along)], visit.dim + (along <= visit.dim))
    return visit.results([torch.cat(parts, along)], visit.dim)


@rule("Repeat")
def _repeat(visit: NodeVisit) -> Grads | None:
    """Sum over the repeats. The samples are entries of the repeated tensor, or the repeats themselves."""
    repeats = list(visit.node._saved_repeats)
    shape = visit.node._saved_self_sym_sizes
    shape = [1] * (len(repeats) - len(shape)) + list(shape)
    rows = visit.rows
    samples_are_repeats = repeats[visit.dim] != 1
    if samples_are_repeats and repeats[visit.dim] % (rows.outer * rows.n):
        return None
    if samples_are_repeats:
        repeats = rows.cut(repeats, visit.dim)
    else:
        shape = rows.cut(shape, visit.dim)
    sizes = [size for pair in zip(repeats, shape, strict=True) for size in pair]
    total = visit.grads[0].reshape(sizes).sum(tuple(range(0, len(sizes), 2)))
    return visit.results([total], None if samples_are_repeats else visit.dim)


@rule("Amax Amin LinalgVectorNorm Logsumexp Max Min Mean Sum")
def _reduction(visit: NodeVisit) -> Grads | None:
    """Reductions over other dimensions than that of the samples."""
    node = visit.node
    if not hasattr(node, "_saved_dim"):
        return None  # over everything
    shape = node._saved_self_sym_sizes if hasattr(node, "_saved_self_sym_sizes") else node._saved_self.shape
    reduced = range(len(shape)) if node._saved_dim in (None, ()) else node._saved_dim
    reduced = sorted(visit.dims(reduced, len(shape)))
    removed = [] if node._saved_keepdim else reduced
    dim = visit.dim
    for removed_dim in removed:
        dim += removed_dim <= dim
    if dim in reduced:
        return None
    if hasattr(node, "_saved_result"):
        return visit.run(dim, {"self": dim, "result": visit.dim})
    grad = visit.grads[0]
    compact_shape = visit.rows.cut(shape, dim)
    if hasattr(node, "_saved_indices"):
        indices = visit.rows.take(node._saved_indices, visit.dim)
        kernel = torch.ops.aten.value_selecting_reduction_backward
        return visit.results([kernel(grad, reduced[0], indices, compact_shape, node._saved_keepdim)], dim)
    for removed_dim in removed:
        grad = grad.unsqueeze(removed_dim)
    if kind_of(node.name()) == "Mean":
        grad = grad / math.prod(shape[d] for d in reduced)
    return visit.results([grad.expand(compact_shape)], dim)
