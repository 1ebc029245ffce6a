"""The optimizer and the learning-rate schedules of a run, by name."""

from __future__ import annotations

import math
from collections.abc import Callable

from torch import nn
from torch.optim import AdamW, Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler

Schedule = Callable[[Optimizer, int], LRScheduler]  # of the optimizer and the number of planned batches

WARMUP = 0.1  # share of the steps in which the learning rate rises


def adamw(model: nn.Module, lr: float, weight_decay: float = 0.01) -> AdamW:
    """AdamW for the parameters of a model that require gradients, fused where the device allows it.

    A model may name layers with a higher learning rate, such as a new layer on top of a pretrained encoder:
    ``model.faster = {"classifier": 100.0}`` multiplies the learning rate of that layer by 100.
    """
    factors: dict[str, float] = getattr(model, "faster", {})
    groups: dict[float, list[nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            factor = next((value for layer, value in factors.items() if name.startswith(f"{layer}.")), 1.0)
            groups.setdefault(factor, []).append(parameter)
    devices = {parameter.device.type for group in groups.values() for parameter in group}
    param_groups = [{"params": group, "lr": factor * lr} for factor, group in groups.items()]
    return AdamW(param_groups, lr=lr, weight_decay=weight_decay, fused=devices <= {"cpu", "cuda"})


def linear_schedule(optimizer: Optimizer, total_steps: int, warmup: float = WARMUP) -> LRScheduler:
    """A warm-up, then linearly down to 0."""
    return _schedule(optimizer, total_steps, warmup, lambda done: 1 - done)


def cosine_schedule(optimizer: Optimizer, total_steps: int, warmup: float = WARMUP) -> LRScheduler:
    """A warm-up, then down to 0 along half a cosine."""
    return _schedule(optimizer, total_steps, warmup, lambda done: 0.5 + 0.5 * math.cos(math.pi * done))


def constant_schedule(optimizer: Optimizer, total_steps: int, warmup: float = WARMUP) -> LRScheduler:
    """A warm-up, then constant."""
    return _schedule(optimizer, total_steps, warmup, lambda _: 1.0)


def _schedule(
    optimizer: Optimizer, total_steps: int, warmup: float, decay: Callable[[float], float]
) -> LRScheduler:
    n_warmup = max(1, round(warmup * total_steps))

    def factor(step: int) -> float:
        if step < n_warmup:
            return (step + 1) / n_warmup
        return decay(min(1.0, (step - n_warmup) / max(1, total_steps - n_warmup)))

    return LambdaLR(optimizer, factor)


SCHEDULES: dict[str, Schedule] = {
    "linear": linear_schedule,
    "cosine": cosine_schedule,
    "constant": constant_schedule,
}


def find_schedule(schedule: Schedule | str) -> Schedule:
    """A learning-rate schedule by its name, or as it is."""
    if not isinstance(schedule, str):
        return schedule
    if schedule not in SCHEDULES:
        raise ValueError(
            f'no schedule named "{schedule}"; known: {", ".join(SCHEDULES)}, or a function of the optimizer'
            " and the number of steps"
        )
    return SCHEDULES[schedule]
