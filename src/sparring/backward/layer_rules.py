"""Rules for elementwise operations and layers: see node_rules."""

from __future__ import annotations

import torch

from sparring.backward.node_rules import Node, Outs, Values, dims_of, grads, rule, run_on, saved_by, shape_of
from sparring.backward.surviving_rows import Survivors


@rule(
    *(
        "Abs",
        "Alias",
        "Clamp",
        "ClampMax",
        "ClampMin",
        "Clone",
        "Cos",
        "Elu",
        "Erf",
        "Exp",
        "Gelu",
        "Hardsigmoid",
        "Hardswish",
    ),
    *(
        "Hardtanh",
        "LeakyRelu",
        "Log",
        "Log1P",
        "Mish",
        "Neg",
        "Reciprocal",
        "Relu",
        "Rsqrt",
        "Sigmoid",
        "Silu",
        "Sin",
    ),
    *("Softplus", "Sqrt", "Square", "Tanh", "Threshold", "ToCopy", "LogSigmoid", "NativeDropout"),
    *("Add", "Div", "Maximum", "Minimum", "Mul", "Pow", "Rsub", "Sub", "Where"),
)
def _elementwise(node: Node, values: Values, rows: Survivors, dim: int) -> Outs | None:
    """Saved tensors broadcast against the result: one runs over the samples iff it is as long there as the result."""
    saved = {}
    for name, x in saved_by(node).items():
        shape = shape_of(node)
        d = dim - (len(shape) - x.ndim)
        if d >= 0 and x.shape[d] == shape[dim]:
            saved[name] = d
    return grads(run_on(node, values, rows, saved), rows, dim)


@rule("MaskedFill")
def _masked_fill(node: Node, values: Values, rows: Survivors, dim: int) -> Outs | None:
    """Elementwise where the filling is a plain number; a tensor's gradient would be a sum over everything."""
    return _elementwise(node, values, rows, dim) if len(node.next_functions) == 1 else None


@rule("Softmax", "SafeSoftmax", "LogSoftmax")
def _softmax(node: Node, values: Values, rows: Survivors, dim: int) -> Outs | None:
    (over,) = dims_of(node._saved_dim, len(shape_of(node)))
    return None if over == dim else _elementwise(node, values, rows, dim)


@rule("Mm", "Bmm", "Addmm", "Baddbmm")
def _product(node: Node, values: Values, rows: Survivors, dim: int) -> Outs | None:
    """(bias +) a @ b, one or a batch of them. Samples may be whole products, or rows of a, or columns of b; the edge that carries the
    bias's gradient sums it."""
    a, b = {"Add": ("mat1", "mat2"), "Bad": ("batch1", "batch2")}.get(node.name()[:3], ("self", "mat2"))
    batch = len(shape_of(node)) - 2
    cut_a, cut_b = (dim if dim <= batch else None), (dim if dim != batch else None)
    cuts = {name: d for name, d in ((a, cut_a), (b, cut_b)) if d is not None and name in saved_by(node)}
    return grads(run_on(node, values, rows, cuts), rows, [dim, cut_a, cut_b][-len(node.next_functions) :])


@rule(
    *("AvgPool2D", "AvgPool3D", "AdaptiveAvgPool2D", "AdaptiveAvgPool3D"),
    *("MaxPool2DWithIndices", "MaxPool3DWithIndices", "AdaptiveMaxPool2D", "AdaptiveMaxPool3D"),
)
def _each(node: Node, values: Values, rows: Survivors, dim: int) -> Outs | None:
    """One by one along the first dimension, in everything that goes in or comes out."""
    if dim != 0:
        return None
    return grads(run_on(node, values, rows, dict.fromkeys(saved_by(node), 0)), rows, 0)


@rule("Convolution")
def _convolution(node: Node, values: Values, rows: Survivors, dim: int) -> Outs | None:
    return None if dim != 0 else grads(run_on(node, values, rows, {"input": 0}), rows, (0, None, None))


@rule("NativeLayerNorm", "FusedRmsNorm")
def _layer_norm(node: Node, values: Values, rows: Survivors, dim: int) -> Outs | None:
    if dim >= len(shape_of(node)) - len(node._saved_normalized_shape):
        return None
    saved = {name: dim for name in saved_by(node) if name not in ("weight", "bias")}
    return grads(run_on(node, values, rows, saved), rows, [dim, None, None][: len(node.next_functions)])


@rule("NativeGroupNorm")
def _group_norm(node: Node, values: Values, rows: Survivors, dim: int) -> Outs | None:
    """By torch's own kernel, since the node remembers the number of samples."""
    if dim != 0 or values[0] is None or any(edge[0] is None for edge in node.next_functions):
        return None
    x, mean, rstd = (
        rows.take(saved, 0) for saved in (node._saved_input, node._saved_result1, node._saved_result2)
    )
    sizes = (x.shape[0], node._saved_C, node._saved_HxW, node._saved_group)
    kernel = torch.ops.aten.native_group_norm_backward
    outs = kernel(
        values[0].contiguous(), x.contiguous(), mean, rstd, node._saved_weight, *sizes, [True, True, True]
    )
    return grads(outs, rows, (0, None, None))


@rule("NativeBatchNorm", "CudnnBatchNorm")
def _batch_norm(node: Node, values: Values, rows: Survivors, dim: int) -> Outs | None:
    """By running statistics samples do not meet; by their own they do."""
    if dim != 0 or node._saved_training:
        return None
    return grads(run_on(node, values, rows, {"input": 0}), rows, (0, None, None))


@rule("Embedding")
def _embedding(node: Node, values: Values, rows: Survivors, dim: int) -> Outs | None:
    if (
        dim >= node._saved_indices.ndim or node._saved_scale_grad_by_freq
    ):  # the frequencies are those of the whole batch
        return None
    return grads(run_on(node, values, rows, {"indices": dim}), rows, (None,))


@rule(
    *(
        "ScaledDotProductFlashAttentionForCpu",
        "ScaledDotProductFlashAttention",
        "ScaledDotProductEfficientAttention",
    ),
    "ScaledDotProductCudnnAttention",
)
def _attention(node: Node, values: Values, rows: Survivors, dim: int) -> Outs | None:
    """(n, heads, T, d); a mask may be shared. The kernels draw dropout by position in the batch, so with it they stay whole."""
    if dim != 0 or node._saved_dropout_p > 0:
        return None
    n = shape_of(node)[0]
    saved = {name: 0 for name, x in saved_by(node).items() if x.ndim >= 3 and x.shape[0] == n}
    return grads(run_on(node, values, rows, saved), rows, 0)
