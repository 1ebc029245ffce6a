"""Errors that tell what was expected, what came, and the next move.

Shapes and dtypes are always checked; values only on CPU, where looking at them costs no device sync.
"""

from __future__ import annotations

import numbers

import torch
from torch import Tensor

_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


def _shape(x: Tensor | torch.Size) -> str:
    return str(tuple(x.shape if isinstance(x, Tensor) else x))


def _dtype(x: Tensor) -> str:
    return str(x.dtype).removeprefix("torch.")


def under_autocast(x: Tensor) -> bool:
    """Whether autocast is on for the device of x."""
    return x.device.type != "meta" and torch.is_autocast_enabled(x.device.type)


def _check_tensors(input: Tensor, target: Tensor, labels: str, *, holds: str = "logits") -> None:
    for name, x, what in (("input", input, holds), ("target", target, labels)):
        if not isinstance(x, Tensor):
            raise ValueError(f"{name} must be a Tensor of {what}, got {type(x).__name__}")
    if not input.is_floating_point():
        raise ValueError(f"input must be floating-point {holds}, got {_dtype(input)}")
    if input.device != target.device:
        raise ValueError(
            f"input is on {input.device} and target on {target.device}; move one: target.to(input.device)"
        )
    if target is not input and target.requires_grad:
        raise ValueError("target requires a gradient, and labels have none here: target.detach()")


def _check_ignore_index(ignore_index: int) -> None:
    if isinstance(ignore_index, bool) or not isinstance(ignore_index, (int, numbers.Integral)):
        raise ValueError(
            f"ignore_index must be a whole number, got {ignore_index!r}: -100 where nothing is to be ignored"
        )


def check_class_input(input: Tensor, target: Tensor, weight: Tensor | None, ignore_index: int) -> None:
    """(C,), (N, C) or (N, C, d1, …) logits with one class index per row."""
    _check_tensors(input, target, "class indices")
    if input.dim() == 0:
        raise ValueError("input is a scalar, expected logits of shape (C,), (N, C) or (N, C, d1, …)")
    n_classes = input.shape[min(1, input.dim() - 1)]
    rows = input.shape[:1] + input.shape[2:] if input.dim() > 1 else torch.Size()
    if target.is_floating_point() and target.shape == input.shape:
        raise ValueError(
            f"target holds {_dtype(target)} values in the input's shape {_shape(target)}, expected {_shape(rows)} class indices. "
            "For class probabilities use nn.CrossEntropyLoss or target.argmax(1), for 0/1 label rows MultilabelASSoftmaxLoss"
        )
    if n_classes == 0:
        raise ValueError(f"input has shape {_shape(input)}: no classes in dim {min(1, input.dim() - 1)}")
    _check_indices(target, rows, n_classes, weight, ignore_index, _shape_hint(input, target))


def _check_indices(
    target: Tensor, rows: torch.Size, n_classes: int, weight: Tensor | None, ignore_index: int, hint: str
) -> None:
    if target.shape != rows:
        raise ValueError(
            f"target has shape {_shape(target)}, expected {_shape(rows)}: one class index per row. {hint}"
        )
    if target.dtype not in _INTEGERS:
        raise ValueError(f"target is {_dtype(target)}, expected integer class indices: target.long()")
    if weight is not None and weight.shape != (n_classes,):
        raise ValueError(f"weight has shape {_shape(weight)}, expected ({n_classes},): one weight per class")
    _check_ignore_index(ignore_index)
    check_class_values(target, n_classes, ignore_index)


def check_linear_input(
    input: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    linear_bias: Tensor | None,
    weight: Tensor | None,
    ignore_index: int,
    *,
    multilabel: bool,
) -> None:
    """(…, H) features, (C, H) weight, (C,) bias, and one class index, or C labels, per row."""
    _check_tensors(input, target, "0/1 labels" if multilabel else "class indices", holds="features")
    if not isinstance(linear_weight, Tensor) or linear_weight.dim() != 2:
        came = _shape(linear_weight) if isinstance(linear_weight, Tensor) else type(linear_weight).__name__
        raise ValueError(
            f"linear_weight must be a (num_classes, in_features) Tensor, as nn.Linear keeps it; got {came}"
        )
    n_classes, n_features = linear_weight.shape
    if input.dim() == 0 or input.shape[-1] != n_features:
        raise ValueError(
            f"input has shape {_shape(input)} and linear_weight {_shape(linear_weight)}: expected (…, {n_features}) features, "
            "not logits. The weight is (num_classes, in_features)"
        )
    for name, x in (("linear_bias", linear_bias), ("weight", weight)):
        if x is not None and not isinstance(x, Tensor):
            raise ValueError(f"{name} must be a Tensor with one number per class, got {type(x).__name__}")
    for name, x in (("linear_weight", linear_weight), ("linear_bias", linear_bias)):
        if x is not None and x.device != input.device:
            raise ValueError(
                f"input is on {input.device} and {name} on {x.device}; move one: input.to({name}.device)"
            )
        if x is not None and x.dtype != input.dtype and not under_autocast(input):
            raise ValueError(
                f"input is {_dtype(input)} and {name} {_dtype(x)}: expected one dtype, or torch.autocast around the call"
            )
    if linear_bias is not None and linear_bias.shape != (n_classes,):
        raise ValueError(
            f"linear_bias has shape {_shape(linear_bias)}, expected ({n_classes},): one per class"
        )
    if n_classes == 0:
        raise ValueError(f"linear_weight has shape {_shape(linear_weight)}: no classes")
    if multilabel:
        check_label_rows(target, (*input.shape[:-1], n_classes), ignore_index)
    else:
        _check_indices(
            target,
            input.shape[:-1],
            n_classes,
            weight,
            ignore_index,
            "One class index for each row of features",
        )


def check_features(
    input: Tensor,
    target: Tensor | None,
    n_features: int,
    n_classes: int,
    ignore_index: int,
    dtype: torch.dtype,
) -> None:
    """(…, H) features for weights of a dtype, and one class index a row, where there are targets."""
    _check_tensors(input, input if target is None else target, "class indices", holds="features")
    if input.dim() == 0 or input.shape[-1] != n_features:
        raise ValueError(f"input has shape {_shape(input)}, expected (…, {n_features}) features, not logits")
    if input.dtype != dtype and not under_autocast(input):
        raise ValueError(
            f"input is {_dtype(input)} and the weight {str(dtype)[6:]}: expected one dtype, or torch.autocast around the call"
        )
    if target is not None:
        _check_indices(
            target,
            input.shape[:-1],
            n_classes,
            None,
            ignore_index,
            "One class index for each row of features",
        )


def _shape_hint(input: Tensor, target: Tensor) -> str:
    if target.shape == input.shape:
        return "For 0/1 label rows use MultilabelASSoftmaxLoss"
    if input.dim() > 2 and target.shape == input.shape[:-1]:
        return (
            "Classes belong in dim 1: logits.movedim(-1, 1), or logits.flatten(0, -2) with target.flatten()"
        )
    return "Classes belong in dim 1 of the input"


def _values_readable(x: Tensor) -> bool:
    return x.is_cpu and x.numel() > 0 and not torch.compiler.is_compiling()


def check_class_values(target: Tensor, n_classes: int, ignore_index: int) -> None:
    """Every index is a class, or ignored; looked at on CPU only."""
    if not _values_readable(target):
        return
    try:
        low, high = (int(x) for x in target.aminmax())
        if low < 0 or high >= n_classes:
            wide = target.long()  # 156 as uint8 equals -100 to torch, which compares in the target's dtype
            low, high = (int(x) for x in wide.masked_fill(wide == ignore_index, 0).aminmax())
    except RuntimeError:  # inside vmap there is no single value to look at
        return
    if low < 0 or high >= n_classes:
        wrong = low if low < 0 else high
        raise ValueError(
            f"target {wrong} is out of range for {n_classes} classes: expected 0 to {n_classes - 1}, or ignore_index={ignore_index}"
        )


def check_multilabel_input(input: Tensor, target: Tensor, ignore_index: int) -> None:
    """(…, C) logits with (…, C) labels."""
    _check_tensors(input, target, "0/1 labels")
    if input.dim() == 0 or input.shape[-1] == 0:
        raise ValueError(f"input has shape {_shape(input)}, expected logits of shape (…, C)")
    check_label_rows(target, input.shape, ignore_index)


def check_label_rows(target: Tensor, shape: tuple[int, ...], ignore_index: int) -> None:
    """Labels 0 and 1 in the shape of the logits."""
    if target.shape != shape:
        raise ValueError(
            f"target has shape {_shape(target)}, expected {tuple(shape)}: one 0/1 label per class. For class indices use ASSoftmaxLoss"
        )
    _check_ignore_index(ignore_index)
    if not _values_readable(target) or target.dtype == torch.bool:
        return
    try:
        if _only_zeros_and_ones(target):
            return
        wide = target if target.is_floating_point() else target.long()  # see check_class_values
        wrong = wide[(wide != 0) & (wide != 1) & (wide != ignore_index)]
        first = wrong[0].item() if len(wrong) else None
    except RuntimeError:  # inside vmap
        return
    if first is not None:
        raise ValueError(f"target holds {first:g}, expected labels 0, 1 or ignore_index={ignore_index}")


def _only_zeros_and_ones(target: Tensor) -> bool:
    """The quick look: between 0 and 1, and for floats Σ x² = Σ x, which between 0 and 1 only 0 and 1 satisfy."""
    low, high = target.aminmax()
    if low < 0 or high > 1:
        return False
    return not target.is_floating_point() or bool((target * target).sum() == target.sum())


def check_range(name: str, value: float, low: float, high: float = float("inf"), *, note: str = "") -> float:
    """A number in [low, high]; `note` says what the ends mean."""
    if isinstance(value, bool) or not isinstance(value, (int, float, numbers.Real)):
        raise ValueError(
            f"{name} must be a number, got {type(value).__name__} {value!r}{note and f' ({note})'}"
        )
    if not low <= value <= high:
        bounds = f"lie in [{low:g}, {high:g}]" if high != float("inf") else f"be at least {low:g}"
        raise ValueError(f"{name} must {bounds}, got {value}{note and f' ({note})'}")
    return value


def check_positive(name: str, value: float, *, note: str = "") -> float:
    """A finite number above 0."""
    check_range(name, value, 0, note=note)
    if value == 0:
        raise ValueError(f"{name} must be above 0, got 0{note and f' ({note})'}")
    if value == float("inf"):
        raise ValueError(f"{name} must be finite, got inf{note and f' ({note})'}")
    return value


def check_count(name: str, value: int, *, note: str = "") -> int:
    """A whole number of at least 1."""
    if isinstance(value, bool) or not isinstance(value, (int, numbers.Integral)) or value < 1:
        raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}{note and f' ({note})'}")
    return value
