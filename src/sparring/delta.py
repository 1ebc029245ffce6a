"""Schedules of δ: another name of ``sparring.losses.delta``."""

from sparring.losses.delta import (
    AdaptiveDelta,
    ConstantDelta,
    CosineDelta,
    DeltaSchedule,
    LinearDelta,
    WarmupDelta,
    delta_value,
)

__all__ = [
    "AdaptiveDelta",
    "ConstantDelta",
    "CosineDelta",
    "DeltaSchedule",
    "LinearDelta",
    "WarmupDelta",
    "delta_value",
]
