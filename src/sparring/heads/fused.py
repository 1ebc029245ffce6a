"""The row losses of a linear head, by the form that fits: chunked, traced or unfused."""

import math
import os
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sparring.heads.autograd import FusedRows, unfused_rows, valid_rows
from sparring.heads.dispatch import (
    RULES,
    HeadInputs,
    HeadSpec,
    check_class_weight,
    current_settings,
    product_dtype,
)
from sparring.heads.gradients import NeedsGrad
from sparring.losses import base
from sparring.losses.base import RowFunction
from sparring.losses.checks import check_count, check_linear_input, under_autocast
from sparring.losses.kernels.implementation import VARIABLE, choose_impl
from sparring.losses.kernels.margin_softmax_dense import MAX_CLASSES
from sparring.losses.kernels.mean_node import MAX_SIZE, MEANS
from sparring.losses.kernels.modes import at_least_float32, in_float32, in_forward_mode
from sparring.losses.rows import RowLosses, check_extras, row_extras


def fused_rows(
    inputs: HeadInputs, spec: HeadSpec, reduction: str = "mean", row_weight: Tensor | None = None
) -> RowLosses:
    """``spec.rows(F.linear(features, weight, bias), target)`` without materialised logits.

    ``inputs.coefficient`` holds the class weights of the targets, ``row_weight`` factors of rows. With
    ``reduction="none"`` the forward pass computes no gradients, because each row may get another gradient
    from above.
    """
    features, weight, bias, target, row_weights = inputs
    compiling = torch.compiler.is_compiling()
    untraceable = compiling and spec.row_function not in RULES
    stores_logits = _is_traced(inputs) or untraceable or _is_small(features, weight, spec)
    if stores_logits or 0 in features.shape or len(weight) < 2:
        rows = unfused_rows(spec, target, features, weight, bias)._replace(weight=row_weights)
        return rows.scaled(row_weight)
    valid = valid_rows(target, spec.ignore_index)
    if reduction == "mean" and spec.dtype.itemsize > 2:  # half precision would lose digits
        inputs = inputs._replace(coefficient=_mean_gradient(valid, row_weights, spec.dtype))
    if row_weight is not None:
        inputs = inputs._replace(coefficient=_scaled(inputs.coefficient, row_weight, spec.dtype))
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
    rows = RowLosses(value, valid, active, row_weights, conceded if concedes else None)
    return rows.scaled(row_weight)


def _is_traced(inputs: HeadInputs) -> bool:
    """Whether the chunks cannot run: tensor subclasses, no data, or forward-mode AD."""
    tensors = [tensor for tensor in inputs[:3] if tensor is not None]
    is_plain = all(type(tensor) in (Tensor, nn.Parameter) for tensor in tensors)
    return not is_plain or inputs.features.device.type == "meta" or in_forward_mode()


def _scaled(coefficient: Tensor | None, row_weight: Tensor, dtype: torch.dtype) -> Tensor:
    """Coefficients times the weights of rows."""
    row_weight = row_weight.detach().reshape(-1).to(at_least_float32(dtype))
    return row_weight if coefficient is None else coefficient * row_weight


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


def linear_rows(
    row_function: RowFunction,
    input: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    *,
    linear_bias: Tensor | None = None,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    multilabel: bool = False,
    impl: str = "auto",
    chunk_rows: int | None = None,
    reduction: str = "mean",
    row_weight: Tensor | None = None,
    extras: Sequence[str] = (),
    **settings: Any,
) -> RowLosses:
    """One loss per row of ``input @ linear_weight.T + linear_bias``, in the order of the target.

    Shapes are those of `LinearLoss`. The forward pass computes gradients for ``reduction``; another use of
    the rows gets correct gradients too, through a second pass.
    """
    check_linear_input(input, linear_weight, target, linear_bias, weight, ignore_index, multilabel=multilabel)
    if chunk_rows is not None:
        check_count("chunk_rows", chunk_rows)
    n_classes, n_features = linear_weight.shape
    check_class_weight(settings.get("pos_weight"), n_classes)
    n_rows = math.prod(input.shape[:-1])
    features = input.reshape(n_rows, n_features)
    target = target.reshape(n_rows, n_classes) if multilabel else target.reshape(n_rows).long()
    dtype = product_dtype(features)
    impl = choose_impl(impl, features.device, dtype, has_rule=row_function in RULES)
    row_weights = None
    if weight is not None:
        indices, valid = base.valid_targets(target, ignore_index)
        row_weights = base.row_weights(weight, indices, valid, at_least_float32(features.dtype))
    inputs = HeadInputs(features, linear_weight, linear_bias, target, row_weights)
    spec = HeadSpec(row_function, current_settings(settings), ignore_index, dtype, impl, chunk_rows)
    rows = fused_rows(inputs, spec, reduction, row_weight)
    return rows._replace(extras=_extras(inputs, spec, extras)) if extras else rows


def _extras(inputs: HeadInputs, spec: HeadSpec, extras: Sequence[str]) -> dict[str, Tensor]:
    """The extras of all rows, chunk by chunk where that is possible."""
    names = check_extras(extras)
    features, weight, bias, target, _ = inputs
    if target.dim() > 1:
        raise ValueError("extras need one target class for each row; a multi-label row has several")
    target, valid = base.valid_targets(target, spec.ignore_index)
    transformed = torch._C._functorch.peek_interpreter_stack() is not None or torch.compiler.is_compiling()
    if _is_traced(inputs) or transformed or 0 in features.shape:
        cast = inputs.cast(spec.dtype)
        clean = torch.where(valid[:, None], cast.features, 0)
        logits = F.linear(clean, cast.weight, cast.bias)
        return row_extras(in_float32(logits), target, valid, names)
    from sparring.heads.parallel.extras import single_rank_extras  # imports torch.distributed

    return single_rank_extras(features, weight, bias, target, valid, spec, names)


def linear_loss(
    row_function: RowFunction,
    input: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    *,
    reduction: str,
    multilabel: bool = False,
    row_weight: Tensor | None = None,
    **settings: Any,
) -> Tensor:
    """`linear_rows`, reduced."""
    if reduction == "mean" and row_weight is None:
        mean = small_mean(row_function, input, linear_weight, target, **settings)
        if mean is not None:
            return mean
    options: dict[str, Any] = {"multilabel": multilabel, "reduction": reduction, "row_weight": row_weight}
    rows = linear_rows(row_function, input, linear_weight, target, **options, **settings)
    return base.reduce(rows, reduction, input, input.shape[:-1])
