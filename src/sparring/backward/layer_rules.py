"""Rules for elementwise operations and layers: see ``node_rules``."""

from types import SimpleNamespace

import torch

from sparring.backward.node_rules import Grads, NodeVisit, kind_of, rule


@rule(
    """
    Abs Add Alias Clamp ClampMax ClampMin Clone Cos Div Elu Erf Exp Gelu Hardsigmoid Hardswish Hardtanh
    LeakyRelu Log Log1P LogSigmoid Maximum Minimum Mish Mul NativeDropout Neg Pow Reciprocal Relu Rsqrt Rsub
    Sigmoid Silu Sin Softplus Sqrt Square Sub Tanh Threshold ToCopy Where
    """
)
def _elementwise(visit: NodeVisit) -> Grads | None:
    """Saved tensors broadcast to the output. Those as long as the output in ``dim`` contain the samples."""
    shape = visit.shape
    saved = {}
    for name, x in visit.saved().items():
        dim = visit.dim - (len(shape) - x.ndim)
        if dim >= 0 and x.shape[dim] == shape[visit.dim]:
            saved[name] = dim
    return visit.run(visit.dim, saved)


@rule("MaskedFill")
def _masked_fill(visit: NodeVisit) -> Grads | None:
    fills_with_tensor = len(visit.node.next_functions) > 1  # whose gradient is a sum over all samples
    return None if fills_with_tensor else _elementwise(visit)


@rule("Mm Bmm Addmm Baddbmm")
def _matrix_product(visit: NodeVisit) -> Grads | None:
    """(bias +) a @ b. The samples are the products of a batch, the rows of a, or the columns of b."""
    names = {"Addmm": ("mat1", "mat2"), "Baddbmm": ("batch1", "batch2")}
    a, b = names.get(kind_of(visit.node.name()), ("self", "mat2"))
    dim = visit.dim
    row_dim = len(visit.shape) - 2
    a_dim = dim if dim <= row_dim else None
    b_dim = dim if dim != row_dim else None
    needed = visit.saved()
    saved = {name: d for name, d in ((a, a_dim), (b, b_dim)) if d is not None and name in needed}
    return visit.run([dim, a_dim, b_dim][-len(visit.node.next_functions) :], saved)


@rule("Convolution NativeBatchNorm CudnnBatchNorm")
def _convolution(visit: NodeVisit) -> Grads | None:
    """In training, batch norm computes its statistics over all samples."""
    if visit.dim != 0 or getattr(visit.node, "_saved_training", False):
        return None
    return visit.run((0, None, None), {"input": 0})


@rule(
    """
    AvgPool2D AvgPool3D AdaptiveAvgPool2D AdaptiveAvgPool3D
    MaxPool2DWithIndices MaxPool3DWithIndices AdaptiveMaxPool2D AdaptiveMaxPool3D
    ScaledDotProductFlashAttentionForCpu ScaledDotProductFlashAttention
    ScaledDotProductEfficientAttention ScaledDotProductCudnnAttention
    """
)
def _batch_first(visit: NodeVisit) -> Grads | None:
    """Inputs, outputs and saved activations have the samples first. An attention mask may be shared."""
    has_dropout = (
        getattr(visit.node, "_saved_dropout_p", 0) > 0
    )  # attention draws it by the position in the batch
    if visit.dim != 0 or has_dropout:
        return None
    n = visit.shape[0]
    saved = {name: 0 for name, x in visit.saved().items() if x.ndim >= 3 and x.shape[0] == n}
    return visit.run(0, saved)


@rule("NativeLayerNorm FusedRmsNorm")
def _layer_norm(visit: NodeVisit) -> Grads | None:
    if visit.dim >= len(visit.shape) - len(visit.node._saved_normalized_shape):
        return None
    saved = {name: visit.dim for name in visit.saved() if name not in ("weight", "bias")}
    return visit.run([visit.dim, None, None][: len(visit.node.next_functions)], saved)


@rule("NativeGroupNorm")
def _group_norm(visit: NodeVisit) -> Grads | None:
    """The node saves the number of samples, so the kernel is called instead."""
    node = visit.node
    if visit.dim != 0 or any(edge[0] is None for edge in node.next_functions):
        return None
    x, mean, rstd = (
        visit.rows.take(saved, 0) for saved in (node._saved_input, node._saved_result1, node._saved_result2)
    )
    sizes = (len(x), node._saved_C, node._saved_HxW, node._saved_group)
    tensors = (visit.grads[0].contiguous(), x.contiguous(), mean, rstd, node._saved_weight)
    values = torch.ops.aten.native_group_norm_backward(*tensors, *sizes, [True, True, True])
    return visit.results(values, (0, None, None))


@rule("Embedding")
def _embedding(visit: NodeVisit) -> Grads | None:
    node = visit.node
    if visit.dim >= node._saved_indices.ndim or node._saved_scale_grad_by_freq:
        return None  # frequencies are counted over the whole batch
    return visit.run([None], {"indices": visit.dim})


@rule("GeLUFunctionBackward")
def _bloom_gelu(visit: NodeVisit) -> Grads | None:
    """BLOOM's activation, an autograd Function in Python. Its backward is called with the input's rows."""
    function = visit.node._forward_cls
    if function.__module__ != "transformers.models.bloom.modeling_bloom":
        return None  # of the same name, but unknown
    saved = visit.node.saved_tensors
    if len(saved) != 1 or saved[0].shape != visit.shape:
        return None
    context = SimpleNamespace(saved_tensors=(visit.rows.take(saved[0], visit.dim),))
    return visit.results([function.backward(context, visit.grads[0])], visit.dim)
