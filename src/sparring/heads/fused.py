"""`fused_rows`: the row losses of a linear head, by the form that fits: chunked, traced or unfused."""

import torch
from torch import Tensor, nn

from sparring.heads.autograd import FusedRows, unfused_rows, valid_rows
from sparring.heads.dispatch import RULES, HeadInputs, HeadSpec
from sparring.heads.gradients import NeedsGrad
from sparring.losses.base import at_least_float32, in_forward_mode
from sparring.losses.kernels.dense_mean import MAX_SIZE
from sparring.losses.kernels.margin_softmax_dense import MAX_CLASSES
from sparring.losses.rows import RowLosses


def fused_rows(inputs: HeadInputs, spec: HeadSpec, reduction: str = "mean") -> RowLosses:
    """``spec.rows(F.linear(features, weight, bias), target)`` without materialised logits.

    ``inputs.coefficient`` holds the class weights of the targets. With ``reduction="none"`` the forward pass
    computes no gradients, because each row may get another gradient from above.
    """
    features, weight, bias, target, row_weights = inputs
    tensors = [tensor for tensor in (features, weight, bias) if tensor is not None]
    compiling = torch.compiler.is_compiling()
    is_plain = all(type(tensor) in (Tensor, nn.Parameter) for tensor in tensors)
    traced = not is_plain or features.device.type == "meta" or in_forward_mode()
    untraceable = compiling and spec.row_function not in RULES
    if traced or untraceable or _is_small(features, weight, spec) or 0 in features.shape or len(weight) < 2:
        return unfused_rows(spec, target, features, weight, bias)._replace(weight=row_weights)
    valid = valid_rows(target, spec.ignore_index)
    if reduction == "mean" and spec.dtype.itemsize > 2:  # half precision would lose digits
        inputs = inputs._replace(coefficient=_mean_gradient(valid, row_weights, spec.dtype))
    needs = NeedsGrad.of(features, weight, bias, enabled=torch.is_grad_enabled() and reduction != "none")
    if compiling:
        from sparring.heads.custom_ops import (  # torch.compile's part of torch is slow to import
            rows_operator,
            spec_arguments,
        )

        value, active, conceded, *_ = rows_operator(*inputs, *spec_arguments(spec, needs))
    else:
        value, active, conceded, *_ = FusedRows.apply(*inputs, spec, needs)
    concedes = spec.settings.get("concede", 1.0) < 1
    return RowLosses(value, valid, active, row_weights, conceded if concedes else None)


def _is_small(features: Tensor, weight: Tensor, spec: HeadSpec) -> bool:
    """Whether storing the logits costs less than chunks would save: few classes on CPU."""
    n_classes = len(weight)
    few = n_classes <= MAX_CLASSES and len(features) * n_classes <= MAX_SIZE
    return few and features.is_cpu and spec.impl == "torch" and spec.chunk_rows is None


def _mean_gradient(valid: Tensor, row_weights: Tensor | None, dtype: torch.dtype) -> Tensor:
    """The gradient of `RowLosses.mean` with respect to each row."""
    rows = RowLosses(valid.to(at_least_float32(dtype)), valid, valid, row_weights)
    total = rows.weighted().sum()
    return rows.weighted() / torch.where(total == 0, 1, total)
