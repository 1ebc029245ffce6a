"""The tensors and the loss of one call of a fused head, and the implementation that runs it."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from sparring.losses.as_softmax import as_logit_rows, as_softmax_rows
from sparring.losses.base import Loss, RowFunction, make_loss
from sparring.losses.checks import check_range, under_autocast
from sparring.losses.concede import concede_value
from sparring.losses.delta import delta_value
from sparring.losses.kernels.rule import SOFTMAX_RULE, MarginRule, logit_rule, probability_rule
from sparring.losses.rows import RowLosses
from sparring.losses.softmax import softmax_rows

# Losses that keep opponents above a threshold: the name of their setting, and the rule for its value.
RULES: dict[RowFunction, tuple[str | None, Callable[..., MarginRule]]] = {
    softmax_rows: (None, lambda: SOFTMAX_RULE),
    as_softmax_rows: ("delta", probability_rule),
    as_logit_rows: ("margin", lambda margin: logit_rule(check_range("margin", margin, 0))),
}


class HeadInputs(NamedTuple):
    """The tensors of one call."""

    features: Tensor  # (N, H)
    weight: Tensor  # (C, H)
    bias: Tensor | None  # (C,)
    target: Tensor  # (N,) class indices, or (N, C) labels
    coefficient: Tensor | None  # (N,) gradients are those of Σ coefficient·value; None: all 1

    def cast(self, dtype: torch.dtype) -> "HeadInputs":
        bias = None if self.bias is None else self.bias.to(dtype)
        return self._replace(features=self.features.to(dtype), weight=self.weight.to(dtype), bias=bias)

    def select(self, rows: Tensor, coefficient: Tensor) -> "HeadInputs":
        """Some rows, with other coefficients."""
        features = self.features.index_select(0, rows)
        return self._replace(
            features=features, target=self.target.index_select(0, rows), coefficient=coefficient
        )


class HeadSpec(NamedTuple):
    """The loss on top of a linear layer, and how to compute it."""

    row_function: RowFunction
    settings: dict[str, Any]  # plain numbers for the row function
    ignore_index: int
    dtype: torch.dtype  # of the matrix products
    impl: str  # "torch" or "triton"
    chunk_rows: int | None  # None: derived from the shapes

    def rows(self, logits: Tensor, target: Tensor) -> RowLosses:
        return self.row_function(logits, target, ignore_index=self.ignore_index, **self.settings)

    def rule(self) -> MarginRule | None:
        return find_rule(self.row_function, self.settings)


def find_rule(row_function: RowFunction, settings: dict[str, Any]) -> MarginRule | None:
    """The rule that selects strong opponents and conceded rows; None for a loss without one."""
    if row_function not in RULES:
        return None
    name, make_rule = RULES[row_function]
    rule = make_rule(settings[name]) if name else make_rule()
    return rule._replace(concede=concede_value(settings.get("concede")))


def current_settings(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings as plain numbers: a schedule is replaced by its present value."""
    values = dict(settings)
    if "delta" in values:
        values["delta"] = delta_value(values["delta"])
    if "concede" in values:
        values["concede"] = concede_value(values["concede"])
    return values


def product_dtype(x: Tensor) -> torch.dtype:
    """The dtype of matrix products with x: autocast's where it is enabled, except for float64."""
    if under_autocast(x) and x.dtype != torch.float64:
        return torch.get_autocast_dtype(x.device.type)
    return x.dtype


def check_bias(bias: bool) -> None:
    if not isinstance(bias, bool):
        raise TypeError(f"bias must be True or False, got {bias!r}; pass the loss or delta by keyword")


def check_class_weight(weight: Tensor | None, num_classes: int) -> None:
    if weight is not None and weight.shape != (num_classes,):
        raise ValueError(
            f"weight has shape {tuple(weight.shape)}, expected ({num_classes},): one weight per class"
        )


def resolve_loss(loss: Loss | str, settings: dict[str, Any]) -> Loss:
    """A loss object, or the loss of a name with its settings."""
    if isinstance(loss, str):
        return make_loss(loss, **settings)
    if not isinstance(loss, Loss):
        raise TypeError(
            f'loss must be a name such as "as-softmax" or a loss of sparring, got {type(loss).__name__}'
        )
    if settings:
        raise ValueError(f"{', '.join(settings)}: pass it to the loss object {loss.name} instead")
    return loss
