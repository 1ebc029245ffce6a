"""Checks of arguments. An error says what was expected, what it got, and what to do.

A wrong Python type raises TypeError; a wrong shape, dtype, device or value raises ValueError. Shapes and
dtypes are always checked; values only on CPU, where reading them costs no device sync.
"""

import numbers

import torch
from torch import Tensor

_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


def _shape(x: Tensor) -> str:
    return str(tuple(x.shape))


def _dtype(x: Tensor) -> str:
    return str(x.dtype).removeprefix("torch.")


def under_autocast(x: Tensor) -> bool:
    """Whether autocast is enabled for the device of x."""
    return x.device.type != "meta" and torch.is_autocast_enabled(x.device.type)


def _check_tensor(name: str, x: object, content: str) -> None:
    if not isinstance(x, Tensor):
        raise TypeError(f"{name} must be a Tensor {content}, got {type(x).__name__}")


def check_tensors(input: Tensor, target: Tensor, labels: str, *, content: str = "logits") -> None:
    """Floating-point input and a target on one device."""
    _check_tensor("input", input, f"of {content}")
    _check_tensor("target", target, f"of {labels}")
    if not input.is_floating_point():
        raise ValueError(f"input must be floating-point {content}, got {_dtype(input)}")
    if input.device != target.device:
        raise ValueError(
            f"input is on {input.device} and target on {target.device}; move one: target.to(input.device)"
        )
    if target is not input and target.requires_grad:
        raise ValueError("target requires a gradient, expected labels without one: target.detach()")


def _check_ignore_index(ignore_index: int) -> None:
    if isinstance(ignore_index, bool) or not isinstance(ignore_index, (int, numbers.Integral)):
        raise TypeError(
            f"ignore_index must be a whole number, got {ignore_index!r}: use -100 to ignore nothing"
        )


def check_label_ignore_index(ignore_index: int) -> None:
    """A whole number that is not one of the labels."""
    _check_ignore_index(ignore_index)
    if ignore_index in (0, 1):
        raise ValueError(f"ignore_index must differ from the labels 0 and 1, got {ignore_index}")


def check_class_input(input: Tensor, target: Tensor, weight: Tensor | None, ignore_index: int) -> None:
    """(C,), (N, C) or (N, C, d1, …) logits with one class index per row."""
    check_tensors(input, target, "class indices")
    if input.dim() == 0:
        raise ValueError("input is a scalar, expected logits of shape (C,), (N, C) or (N, C, d1, …)")
    class_dim = min(1, input.dim() - 1)
    n_classes = input.shape[class_dim]
    rows = input.shape[:class_dim] + input.shape[class_dim + 1 :]
    if target.is_floating_point() and target.shape == input.shape:
        raise ValueError(
            f"target holds {_dtype(target)} values in the input's shape {_shape(target)}, "
            f"expected {tuple(rows)} class indices. For class probabilities, as of Mixup, use SoftmaxLoss, "
            "TSoftmaxLoss, LabelSmoothingLoss or SparseSoftmaxLoss, or target.argmax(1); for 0/1 label rows "
            "MultilabelASSoftmaxLoss"
        )
    if n_classes == 0:
        raise ValueError(f"input has shape {_shape(input)}: no classes in dim {class_dim}")
    if target.shape == input.shape:
        hint = "For 0/1 label rows use MultilabelASSoftmaxLoss"
    elif input.dim() > 2 and target.shape == input.shape[:-1]:
        hint = (
            "Classes belong in dim 1: logits.movedim(-1, 1), or logits.flatten(0, -2) with target.flatten()"
        )
    else:
        hint = "Classes belong in dim 1 of the input"
    _check_indices(target, rows, n_classes, weight, ignore_index, hint)


def _check_indices(
    target: Tensor, rows: torch.Size, n_classes: int, weight: Tensor | None, ignore_index: int, hint: str
) -> None:
    if target.shape != rows:
        raise ValueError(
            f"target has shape {_shape(target)}, expected {tuple(rows)}: one class index per row. {hint}"
        )
    if target.dtype not in _INTEGERS:
        raise ValueError(f"target is {_dtype(target)}, expected integer class indices: target.long()")
    if weight is not None:
        _check_tensor("weight", weight, "with one number per class")
        if weight.shape != (n_classes,):
            raise ValueError(
                f"weight has shape {_shape(weight)}, expected ({n_classes},): one weight per class"
            )
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
    check_tensors(input, target, "0/1 labels" if multilabel else "class indices", content="features")
    _check_tensor("linear_weight", linear_weight, "of shape (num_classes, in_features), as in nn.Linear")
    if linear_weight.dim() != 2 or linear_weight.shape[0] == 0:
        raise ValueError(
            f"linear_weight has shape {_shape(linear_weight)}, expected (num_classes, in_features)"
        )
    n_classes, n_features = linear_weight.shape
    if linear_bias is not None:
        _check_tensor("linear_bias", linear_bias, "with one number per class")
        if linear_bias.shape != (n_classes,):
            raise ValueError(
                f"linear_bias has shape {_shape(linear_bias)}, expected ({n_classes},): one per class"
            )
    for name, parameter in (("linear_weight", linear_weight), ("linear_bias", linear_bias)):
        if parameter is None:
            continue
        if parameter.device != input.device:
            raise ValueError(
                f"input is on {input.device} and {name} on {parameter.device}; "
                f"move one: input.to({name}.device)"
            )
        _check_features(input, n_features, name, parameter.dtype)
    if multilabel:
        check_label_rows(target, (*input.shape[:-1], n_classes), ignore_index)
    else:
        hint = "One class index for each row of features"
        _check_indices(target, input.shape[:-1], n_classes, weight, ignore_index, hint)


def check_features(
    input: Tensor,
    target: Tensor | None,
    n_features: int,
    n_classes: int,
    ignore_index: int,
    dtype: torch.dtype,
) -> None:
    """(…, H) features for weights of a dtype, and one class index per row if there are targets."""
    check_tensors(input, input if target is None else target, "class indices", content="features")
    _check_features(input, n_features, "the weight", dtype)
    if target is not None:
        hint = "One class index for each row of features"
        _check_indices(target, input.shape[:-1], n_classes, None, ignore_index, hint)


def _check_features(input: Tensor, n_features: int, parameter: str, dtype: torch.dtype) -> None:
    if input.dim() == 0 or input.shape[-1] != n_features:
        raise ValueError(f"input has shape {_shape(input)}, expected (…, {n_features}) features, not logits")
    if input.dtype != dtype and not under_autocast(input):
        raise ValueError(
            f"input is {_dtype(input)} and {parameter} {str(dtype).removeprefix('torch.')}: "
            "expected one dtype, or torch.autocast around the call"
        )


def _values_readable(x: Tensor) -> bool:
    return x.is_cpu and x.numel() > 0 and not torch.compiler.is_compiling()


def is_known_true(mask: Tensor) -> bool:
    """Whether all values are true. False if they cannot be read without a device sync."""
    try:
        return _values_readable(mask) and bool(mask.all())
    except RuntimeError:  # inside vmap values cannot be read
        return False


def check_class_values(target: Tensor, n_classes: int, ignore_index: int) -> None:
    """Every index is a class or ignored; checked on CPU only."""
    if not _values_readable(target):
        return
    try:
        low, high = (int(x) for x in target.aminmax())
        if low < 0 or high >= n_classes:
            wide = target.long()  # torch compares in the target's dtype, in which 156 as uint8 equals -100
            low, high = (int(x) for x in wide.masked_fill(wide == ignore_index, 0).aminmax())
    except RuntimeError:  # inside vmap values cannot be read
        return
    if low < 0 or high >= n_classes:
        raise ValueError(
            f"target {low if low < 0 else high} is out of range for {n_classes} classes: "
            f"expected 0 to {n_classes - 1}, or ignore_index={ignore_index}"
        )


def check_pos_weight(pos_weight: Tensor | None) -> Tensor | None:
    """Numbers of at least 0, or None. Their count is checked with the input."""
    if pos_weight is not None:
        _check_tensor("pos_weight", pos_weight, "with one number per class")
        if pos_weight.dim() != 1 or not bool((pos_weight >= 0).all()):
            got = f"shape {_shape(pos_weight)}, minimum {pos_weight.min():g}"
            raise ValueError(f"pos_weight must hold one number of at least 0 per class, got {got}")
    return pos_weight


def check_multilabel_input(
    input: Tensor, target: Tensor, ignore_index: int, pos_weight: Tensor | None = None
) -> None:
    """(…, C) logits with (…, C) labels."""
    check_tensors(input, target, "0/1 labels")
    if input.dim() == 0 or input.shape[-1] == 0:
        raise ValueError(f"input has shape {_shape(input)}, expected logits of shape (…, C)")
    if pos_weight is not None and len(pos_weight) != input.shape[-1]:
        raise ValueError(
            f"pos_weight has {len(pos_weight)} numbers, expected one for each of {input.shape[-1]}"
        )
    check_label_rows(target, input.shape, ignore_index)


def check_label_rows(target: Tensor, shape: tuple[int, ...], ignore_index: int) -> None:
    """Labels 0 and 1, or ignored, in the shape of the logits; values are checked on CPU only."""
    if target.shape != shape:
        raise ValueError(
            f"target has shape {_shape(target)}, expected {tuple(shape)}: one 0/1 label per class. "
            "For class indices use ASSoftmaxLoss"
        )
    check_label_ignore_index(ignore_index)
    if not _values_readable(target) or target.dtype == torch.bool:
        return
    try:
        if _only_zeros_and_ones(target):
            return
        wide = target if target.is_floating_point() else target.long()  # see check_class_values
        wrong = wide[(wide != 0) & (wide != 1) & (wide != ignore_index)]
        first = wrong[0].item() if len(wrong) else None
    except RuntimeError:  # inside vmap values cannot be read
        return
    if first is not None:
        raise ValueError(f"target holds {first:g}, expected labels 0, 1 or ignore_index={ignore_index}")


def _only_zeros_and_ones(target: Tensor) -> bool:
    """Quick test: all values are in [0, 1], and for floats Σ x² = Σ x, which holds there for 0 and 1 only."""
    low, high = target.aminmax()
    if low < 0 or high > 1:
        return False
    return not target.is_floating_point() or bool((target * target).sum() == target.sum())


def check_range(name: str, value: float, low: float, high: float = float("inf"), *, note: str = "") -> float:
    """A number in [low, high]. The note, if any, ends the error message."""
    if isinstance(value, bool) or not isinstance(value, (int, float, numbers.Real)):
        raise TypeError(f"{name} must be a number, got {type(value).__name__} {value!r}{_remark(note)}")
    if not low <= value <= high:
        bounds = f"lie in [{low:g}, {high:g}]" if high != float("inf") else f"be at least {low:g}"
        raise ValueError(f"{name} must {bounds}, got {value}{_remark(note)}")
    return value


def check_not_negative(name: str, value: float, *, note: str = "") -> float:
    """A finite number of at least 0."""
    if check_range(name, value, 0, note=note) == float("inf"):
        raise ValueError(f"{name} must be finite, got inf{_remark(note)}")
    return value


def check_positive(name: str, value: float, *, note: str = "") -> float:
    """A finite number above 0."""
    if check_not_negative(name, value, note=note) == 0:
        raise ValueError(f"{name} must be above 0, got 0{_remark(note)}")
    return value


def check_count(name: str, value: int, *, note: str = "") -> int:
    """A whole number of at least 1."""
    if isinstance(value, bool) or not isinstance(value, (int, numbers.Integral)):
        raise TypeError(f"{name} must be a whole number, got {type(value).__name__} {value!r}{_remark(note)}")
    if value < 1:
        raise ValueError(f"{name} must be a whole number of at least 1, got {value}{_remark(note)}")
    return value


def _remark(note: str) -> str:
    return f" ({note})" if note else ""
