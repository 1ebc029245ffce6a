"""The code that all losses share: shapes, class weights, reduction, the module base classes and the registry.

A loss file adds a pure row function, ``(N, C) logits, targets -> RowLosses``, and a module class of a few
lines.
"""

from __future__ import annotations

import difflib
import inspect
import operator
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor, nn

from sparring.losses.checks import (
    check_class_input,
    check_label_ignore_index,
    check_multilabel_input,
    check_pos_weight,
)
from sparring.losses.kernels.mean_node import MEANS, short_mean
from sparring.losses.kernels.modes import in_float32
from sparring.losses.rows import RowLosses, check_reduction, class_last, loss_dtype, row_extras, row_shape
from sparring.losses.rows import row_weights as row_weights
from sparring.losses.rows import valid_targets as valid_targets
from sparring.losses.soft_targets import soft_target_rows, takes_probabilities

RowFunction = Callable[..., RowLosses]


def class_rows(
    row_function: RowFunction,
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    row_weight: Tensor | None = None,
    extras: Sequence[str] = (),
    **settings: Any,
) -> RowLosses:
    """Check input in the shapes of nn.CrossEntropyLoss, flatten it to rows, and compute their losses."""
    if isinstance(target, Tensor) and takes_probabilities(row_function, input, target):
        return soft_target_rows(row_function, input, target, weight, row_weight, extras, **settings)
    check_class_input(input, target, weight, ignore_index)
    logits = class_last(input)
    if logits.dim() != 2:
        logits = logits.reshape(-1, logits.shape[-1])  # (rows, C)
        target = target.reshape(-1)  # (rows,)
    target = target.long()
    rows = row_function(logits, target, ignore_index=ignore_index, **settings)
    if row_weight is not None:
        rows = rows.scaled(row_weight)
    if weight is None and not extras:
        return rows
    safe, valid = valid_targets(target, ignore_index)
    if extras:
        rows = rows._replace(extras=row_extras(in_float32(logits), safe, valid, extras))
    if weight is None:
        return rows
    return rows._replace(weight=row_weights(weight, safe, valid, rows.value.dtype))


def multilabel_rows(
    row_function: RowFunction,
    input: Tensor,
    target: Tensor,
    ignore_index: int = -100,
    row_weight: Tensor | None = None,
    extras: Sequence[str] = (),
    **settings: Any,
) -> RowLosses:
    """Check (…, C) logits and (…, C) labels, flatten them to rows, and compute their losses."""
    if extras:
        raise ValueError("extras need one target class for each row; a multi-label row has several")
    check_multilabel_input(input, target, ignore_index, settings.get("pos_weight"))
    logits, labels = (x.reshape(-1, input.shape[-1]) for x in (input, target))
    rows = row_function(logits, labels, ignore_index=ignore_index, **settings)
    return rows if row_weight is None else rows.scaled(row_weight)


def reduce(rows: RowLosses, reduction: str, input: Tensor, shape: torch.Size) -> Tensor:
    """Reduce, in the dtype of F.cross_entropy."""
    loss = rows.reduce(reduction).to(loss_dtype(input))
    return loss.reshape(shape) if reduction == "none" else loss


def class_loss(
    row_function: RowFunction,
    input: Tensor,
    target: Tensor,
    weight: Tensor | None,
    ignore_index: int,
    reduction: str,
    **settings: Any,
) -> Tensor:
    if weight is None and reduction == "mean":
        mean = short_mean(row_function, input, target, ignore_index, **settings)
        if mean is not None:
            return mean
    rows = class_rows(row_function, input, target, weight, ignore_index, **settings)
    return reduce(rows, reduction, input, row_shape(input, target))


class Loss(nn.Module):
    """Base class of all losses: a row function with its settings. `register` sets the class attributes."""

    name: ClassVar[str]
    row_function: ClassVar[RowFunction]
    setting_names: ClassVar[tuple[str, ...]] = ()
    mean_settings: ClassVar[Callable[[Loss], tuple[Any, ...]]]  # ignore_index and the settings
    weight_name: ClassVar[str]
    has_own_rows: ClassVar[bool] = False  # a subclass with rows of its own: the mean follows from them

    def __init__(self, ignore_index: int = -100, reduction: str = "mean") -> None:
        super().__init__()
        self.ignore_index = ignore_index
        self.reduction = check_reduction(reduction)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "weight_name" not in vars(cls) and vars(cls).keys() & {"rows", "_rows", "settings"}:
            cls.has_own_rows = True

    def settings(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.setting_names}

    def rows(
        self,
        input: Tensor,
        target: Tensor,
        *,
        row_weight: Tensor | None = None,
        extras: Sequence[str] = (),
    ) -> RowLosses:
        """Return one loss per row, before reduction, and which rows are valid, won or active.

        Args:
            input, target: As those of `forward`.
            row_weight: A factor of each row's loss, in the shape of the row losses: an importance weight, a
                curriculum, ``p_t`` of DFT. "mean" divides by what it divides by without them: valid rows, or
                the sum of their class weights.
            extras: Names of further numbers of each row (see `RowLosses`); not for multi-label losses.
        """
        return self._rows(input, target, row_weight=row_weight, extras=extras, **self.settings())

    def _rows(self, input: Tensor, target: Tensor, **options: Any) -> RowLosses:
        raise NotImplementedError

    def _shape(self, input: Tensor, target: Tensor) -> torch.Size:
        """The shape of the row losses."""
        raise NotImplementedError

    def forward(self, input: Tensor, target: Tensor, *, row_weight: Tensor | None = None) -> Tensor:
        if row_weight is None and (mean := self._mean(input, target)) is not None:
            return mean
        options: dict[str, Any] = {} if row_weight is None else {"row_weight": row_weight}
        rows = self.rows(input, target, **options)
        return reduce(rows, self.reduction, input, self._shape(input, target))

    def _mean(self, input: Tensor, target: Tensor) -> Tensor | None:
        """The mean loss without its rows, where there is such a way."""
        cls = type(self)
        if torch.compiler.is_compiling() or cls.row_function not in MEANS or cls.has_own_rows:
            return None
        # self.weight would take longer than some operations on a small batch
        if self.reduction != "mean" or self._buffers.get(cls.weight_name, self) is not None:
            return None
        return short_mean(cls.row_function, input, target, *cls.mean_settings(self))

    def extra_repr(self) -> str:
        settings = self.settings().items()
        hidden = (nn.Module, Tensor)
        attributes = {k: v for k, v in settings if v is not None and not isinstance(v, hidden)}
        attributes |= {"ignore_index": self.ignore_index, "reduction": self.reduction}
        return ", ".join(f"{k}={v!r}" for k, v in attributes.items())


class ClassLoss(Loss):
    """Base class of the multi-class and token losses, with the interface of nn.CrossEntropyLoss.

    Predict with the softmax of the logits, whatever the loss in training was. With another loss than softmax
    these probabilities are not calibrated: scale them with a temperature that was fitted on other data, as
    `sparring predict` does.

    Shape:
        - input: ``(C,)``, ``(N, C)`` or ``(N, C, d1, …)`` logits
        - target: ``()``, ``(N,)`` or ``(N, d1, …)`` class indices; rows with ``ignore_index`` are left out.
          Softmax, t-softmax, label smoothing and Sparse-Softmax also take class probabilities in the input's
          shape, as nn.CrossEntropyLoss does.
        - output: a scalar, or the shape of class indices with ``reduction="none"``

    Raises:
        TypeError: An argument has the wrong Python type.
        ValueError: A shape, dtype or device is wrong, or, on CPU, a target is out of range.
    """

    weight: Tensor | None
    weight_name = "weight"

    def __init__(
        self, weight: Tensor | None = None, ignore_index: int = -100, reduction: str = "mean"
    ) -> None:
        super().__init__(ignore_index, reduction)
        self.register_buffer("weight", weight)

    def _rows(self, input: Tensor, target: Tensor, **options: Any) -> RowLosses:
        return class_rows(type(self).row_function, input, target, self.weight, self.ignore_index, **options)

    def _shape(self, input: Tensor, target: Tensor) -> torch.Size:
        return row_shape(input, target)


class MultilabelLoss(Loss):
    """Base class of the multi-label losses.

    Shape:
        - input: ``(…, C)`` logits
        - target: ``(…, C)`` labels, 0 or 1 in any dtype; entries with ``ignore_index`` are left out, as if
          the class did not exist. Any other label raises ValueError on CPU; elsewhere it makes the row's loss
          NaN.
        - output: a scalar, or ``(…)`` with ``reduction="none"``. Predict with ``input > 0``.
    """

    pos_weight: Tensor | None
    weight_name = "pos_weight"

    def __init__(
        self, ignore_index: int = -100, reduction: str = "mean", pos_weight: Tensor | None = None
    ) -> None:
        super().__init__(ignore_index, reduction)
        check_label_ignore_index(ignore_index)
        self.register_buffer("pos_weight", check_pos_weight(pos_weight))

    def settings(self) -> dict[str, Any]:
        settings = super().settings()
        return settings if self.pos_weight is None else {**settings, "pos_weight": self.pos_weight}

    def _rows(self, input: Tensor, target: Tensor, **options: Any) -> RowLosses:
        return multilabel_rows(type(self).row_function, input, target, self.ignore_index, **options)

    def _shape(self, input: Tensor, target: Tensor) -> torch.Size:
        return target.shape[:-1]


_REGISTRY: dict[str, type[Loss]] = {}
_L = TypeVar("_L", bound=type[Loss])


def register(name: str, row_function: RowFunction, *setting_names: str) -> Callable[[_L], _L]:
    """Class decorator: give a module its name, row function and settings, and add it to the registry."""

    def bind(cls: _L) -> _L:
        cls.name = name
        cls.setting_names = setting_names
        cls.mean_settings = operator.attrgetter("ignore_index", *setting_names)
        cls.row_function = staticmethod(row_function)
        _REGISTRY[name] = cls
        return cls

    return bind


def list_losses() -> list[str]:
    """Return the names that `make_loss` accepts."""
    return sorted(_REGISTRY)


def find_loss(name: str) -> type[Loss]:
    """Return the class registered under a name."""
    if name not in _REGISTRY:
        near = difflib.get_close_matches(name.lower().replace("_", "-"), list_losses(), n=1)
        hint = f'; did you mean "{near[0]}"?' if near else "."
        raise ValueError(f'no loss named "{name}"{hint} Known: {", ".join(list_losses())}')
    return _REGISTRY[name]


def make_loss(name: str, **settings: Any) -> Loss:
    """Create a loss by name.

    Args:
        name: One of `list_losses()`.
        settings: Arguments of the class, such as ``delta``, ``weight`` or ``reduction``.

    Raises:
        ValueError: The name or a setting is unknown, or a setting is out of its range.

    >>> make_loss("as-softmax", delta=0.2)
    ASSoftmaxLoss(delta=0.2, ignore_index=-100, reduction='mean')
    """
    cls = find_loss(name)
    known = list(inspect.signature(cls).parameters)
    if unknown := [key for key in settings if key not in known]:
        raise ValueError(f'"{name}" has no setting {", ".join(unknown)}; it takes {", ".join(known)}')
    return cls(**settings)
