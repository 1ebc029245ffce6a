"""The optimizer, and learning-rate schedules over planned batches, by name: functions of the optimizer and the number of steps."""

from __future__ import annotations

import math
from collections.abc import Callable

from torch import nn
from torch.optim import AdamW, Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler

Schedule = Callable[[Optimizer, int], LRScheduler]

WARMUP = 0.1  # share of the steps over which the rate rises


def adamw(model: nn.Module, lr: float, weight_decay: float = 0.01) -> AdamW:
    """For what is to be trained of a model; fused where the device can: a third of the time, most of all for wide embeddings.

    A model may name layers that learn so many times as fast as the others, such as a new one on top: ``faster = {"classifier": 100.0}``."""
    rates: dict[str, float] = getattr(model, "faster", {})
    weights: dict[float, list[nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            factor = next((factor for layer, factor in rates.items() if name.startswith(f"{layer}.")), 1.0)
            weights.setdefault(factor, []).append(parameter)
    groups = [{"params": some, "lr": factor * lr} for factor, some in weights.items()]
    fused = all(weight.device.type in ("cpu", "cuda") for some in weights.values() for weight in some)
    return AdamW(groups, lr=lr, weight_decay=weight_decay, fused=fused)


def _warmed(total_steps: int, warmup: float, after: Callable[[float], float]) -> Callable[[int], float]:
    up = max(1, round(warmup * total_steps))
    return lambda step: (
        (step + 1) / up if step < up else after(min(1.0, (step - up) / max(1, total_steps - up)))
    )


def linear_schedule(optimizer: Optimizer, total_steps: int, warmup: float = WARMUP) -> LRScheduler:
    """Up over a first share of the steps, then down to 0."""
    return LambdaLR(optimizer, _warmed(total_steps, warmup, lambda done: 1 - done))


def cosine_schedule(optimizer: Optimizer, total_steps: int, warmup: float = WARMUP) -> LRScheduler:
    """Up over a first share of the steps, then down to 0 along half a cosine."""
    return LambdaLR(
        optimizer, _warmed(total_steps, warmup, lambda done: 0.5 + 0.5 * math.cos(math.pi * done))
    )


def constant_schedule(optimizer: Optimizer, total_steps: int, warmup: float = WARMUP) -> LRScheduler:
    """Up over a first share of the steps, then level."""
    return LambdaLR(optimizer, _warmed(total_steps, warmup, lambda _: 1.0))


SCHEDULES: dict[str, Schedule] = {
    "linear": linear_schedule,
    "cosine": cosine_schedule,
    "constant": constant_schedule,
}


def find_schedule(schedule: Schedule | str) -> Schedule:
    """A schedule by its name, or as it is."""
    if not isinstance(schedule, str):
        return schedule
    if schedule not in SCHEDULES:
        raise ValueError(
            f'no schedule named "{schedule}"; known: {", ".join(SCHEDULES)}, or a function of optimizer and steps'
        )
    return SCHEDULES[schedule]
