"""A module that carries a loss, such as a head with its loss in one: what is asked of the loss is asked of it."""

from __future__ import annotations

from typing import Any, cast

from torch import nn

from sparring.losses.base import Loss
from sparring.losses.delta import DeltaSchedule


class CarriesLoss(nn.Module):
    """`loss` is the loss; the rest is the loss's own."""

    loss: Loss

    @property
    def name(self) -> str:
        return self.loss.name

    def settings(self) -> dict[str, Any]:
        return self.loss.settings()

    @property
    def reduction(self) -> str:
        return self.loss.reduction

    @property
    def ignore_index(self) -> int:
        return self.loss.ignore_index

    @property
    def delta(self) -> float | DeltaSchedule:
        """Where it has one."""
        return cast("float | DeltaSchedule", self.loss.delta)
