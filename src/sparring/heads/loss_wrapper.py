"""LossWrapper: a module with a loss inside, such as a head, that has the attributes of the loss."""

from typing import Any, cast

from torch import nn

from sparring.losses.base import Loss
from sparring.losses.delta import DeltaSchedule


class LossWrapper(nn.Module):
    """Base class of modules with a `loss`: its settings can be read from the module."""

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
        """The δ of the loss. Losses without one raise AttributeError."""
        return cast("float | DeltaSchedule", self.loss.delta)

    @property
    def concede(self) -> float | DeltaSchedule | None:
        """The κ of the loss. Losses without one raise AttributeError."""
        return cast("float | DeltaSchedule | None", self.loss.concede)
