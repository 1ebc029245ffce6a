"""`fused_rows`: the row losses of a linear head, by the form that fits: chunked, traced or unfused."""

import os
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sparring.heads.autograd import FusedRows, unfused_rows, valid_rows
from sparring.heads.dispatch import RULES, HeadInputs, HeadSpec
from sparring.heads.gradients import NeedsGrad
from sparring.losses.base import MEANS, RowFunction, at_least_float32, in_forward_mode
from sparring.losses.checks import under_autocast
from sparring.losses.kernels.dense_mean import MAX_SIZE
from sparring.losses.kernels.implementation import VARIABLE
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


def small_mean(
    row_function: RowFunction,
    features: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    linear_bias: Tensor | None = None,
    impl: str = "auto",
    ignore_index: int = -100,
    **settings: Any,
) -> Tensor | None:
    """The mean loss over few classes on CPU, by the loss on the logits. None if this is another case.

    The arguments are not checked yet. The features of an ignored row may be NaN, so there must be none.
    """
    options = (settings.pop("weight", None), settings.pop("chunk_rows", None))
    is_plain = options == (None, None) and not settings.pop("multilabel", False) and impl in ("auto", "torch")
    if not is_plain or row_function not in MEANS:
        return None
    tensors = [features, linear_weight] if linear_bias is None else [features, linear_weight, linear_bias]
    if torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active() or in_forward_mode():
        return None
    on_cpu = all(type(x) in (Tensor, nn.Parameter) and x.is_cpu and x.dtype == torch.float32 for x in tensors)
    if not on_cpu or VARIABLE in os.environ:
        return None
    is_matrix = features.dim() == 2 and linear_weight.dim() == 2
    if not is_matrix or features.shape[1] != linear_weight.shape[1] or under_autocast(features):
        return None
    if len(features) * len(linear_weight) > MAX_SIZE:
        return None
    if linear_bias is not None and linear_bias.shape != linear_weight.shape[:1]:
        return None
    if type(target) is not Tensor or target.numel() == 0 or target.is_floating_point() or target.min() < 0:
        return None
    logits = F.linear(features, linear_weight, linear_bias)
    return MEANS[row_function](logits, target, ignore_index=ignore_index, **settings)


def _is_small(features: Tensor, weight: Tensor, spec: HeadSpec) -> bool:
    """Whether storing the logits costs less than chunks would save: few classes on CPU."""
    n_classes = len(weight)
    few = n_classes <= MAX_CLASSES and len(features) * n_classes <= MAX_SIZE
    if torch.compiler.is_compiling():  # the operator checks targets
        return False
    return few and features.is_cpu and spec.impl == "torch" and spec.chunk_rows is None


def _mean_gradient(valid: Tensor, row_weights: Tensor | None, dtype: torch.dtype) -> Tensor:
    """The gradient of `RowLosses.mean` with respect to each row."""
    rows = RowLosses(valid.to(at_least_float32(dtype)), valid, valid, row_weights)
    total = rows.weighted().sum()
    return rows.weighted() / torch.where(total == 0, 1, total)
