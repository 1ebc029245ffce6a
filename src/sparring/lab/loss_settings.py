"""The settings that each loss takes, as flags and files name them. Needs torch and entmax alone."""

import inspect
from collections.abc import Iterable
from typing import Any

from sparring.lab.errors import UserError
from sparring.losses.base import find_loss

LOSS_SETTINGS = (
    "delta", "warmup", "tau", "epsilon", "k", "scale", "margin", "q", "gamma", "alpha", "beta",
    "concede", "concede_warmup",
)  # fmt: skip
AS_SPEED = "as-speed"  # AS-Softmax with adaptive accumulation: a method of the paper's tables


def loss_settings(loss: str) -> dict[str, Any]:
    """The settings that a loss takes, with their defaults."""
    try:
        cls = find_loss("as-softmax" if loss == AS_SPEED else loss)
    except ValueError as error:
        raise UserError(str(error)) from None
    parameters = inspect.signature(cls).parameters
    takes = {name: parameter.default for name, parameter in parameters.items() if name in LOSS_SETTINGS}
    if "delta" in takes:
        takes["warmup"] = 0.0
    if "concede" in takes:
        takes["concede_warmup"] = None
    return takes


def check_taken(loss: str, names: Iterable[str]) -> None:
    """Raise UserError if a loss does not take these settings."""
    takes = loss_settings(loss)
    if extra := [name for name in names if name not in takes]:
        raise UserError(f'"{loss}" takes no {", ".join(extra)}; it takes {", ".join(takes) or "no setting"}')
