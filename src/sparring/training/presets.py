"""What a run is made of, by name: speed presets, the optimizer, and learning-rate schedules.

Speed presets:

- ``off``: every sample has a forward and a backward pass in every epoch.
- ``skip``: no backward pass for won samples. Exact: the weights are those of ``off``, to rounding.
- ``all``: like ``skip``; in addition, samples that are won rest for the next epoch, or for two after a
  repeated win with a clear margin, and are then checked without gradients. δ decreases while few are won.

``docs/results/speed`` has the measured time and accuracy of each.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any, NamedTuple

from torch import nn
from torch.optim import AdamW, Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler

from sparring.backward.skipper import has_batch_norm
from sparring.heads.linear import LinearLoss
from sparring.losses import Loss, MultilabelASSoftmaxLoss, list_losses, make_loss
from sparring.losses.delta import AdaptiveDelta, DeltaSchedule, with_warmup
from sparring.training.accumulation import AdaptiveAccumulation
from sparring.training.scorecard import Scorecard

Schedule = Callable[[Optimizer, int], LRScheduler]  # of the optimizer and the number of planned batches

WARMUP = 0.1  # share of the steps in which the learning rate rises


class Speed(NamedTuple):
    """A preset."""

    skip: str  # mode of the Skipper
    rest: bool = False  # samples rest
    narrow: int = 0  # see Scorecard
    check: bool = False  # samples are checked, unless the model has BatchNorm
    adapt: bool = False  # δ is adaptive


SPEEDS = {
    "off": Speed("off"),
    "skip": Speed("rows"),
    "all": Speed("rows", rest=True, narrow=1, check=True, adapt=True),
}


class RunParts(NamedTuple):
    """The parts of a run that a speed preset decides on."""

    loss: Loss | LinearLoss
    skip: str
    scorecard: Scorecard | None  # None: no sample rests or is checked
    accumulation: AdaptiveAccumulation | None  # None: the window length is fixed


def resolve_speed(
    model: nn.Module,
    n_samples: int | None,
    *,
    loss: Loss | LinearLoss | str,
    speed: str = "skip",
    skip: str | None = None,
    rest: Scorecard | bool | None = None,
    check: bool | None = None,
    max_rest: int | None = None,
    accumulation: AdaptiveAccumulation | int | None = None,
    lam: float = 0.5,
) -> RunParts:
    """Combine a speed preset with the user's settings, which come first.

    ``rest`` may be a scorecard. ``accumulation`` may be the most batches of one optimizer step.
    ``n_samples`` is None where the data set is not known yet.

    >>> parts = resolve_speed(nn.Linear(4, 2), 100, loss="as-softmax", speed="all", max_rest=1)
    >>> parts.skip, parts.scorecard.max_rest, parts.loss.delta.value, parts.accumulation
    ('rows', 1, 0.3, None)
    """
    if speed not in SPEEDS:
        raise ValueError(f"speed must be one of {', '.join(SPEEDS)}; got {speed!r}")
    preset = SPEEDS[speed]
    loss = check_loss(loss)
    if isinstance(loss, LinearLoss):
        _check_layer(loss.linear, model)
    if preset.adapt:
        loss = _with_adaptive_delta(loss)
    if isinstance(accumulation, int):
        accumulation = AdaptiveAccumulation(lam, accumulation)
    scorecard = rest if isinstance(rest, Scorecard) else None
    if scorecard is None:
        rest = preset.rest if rest is None else bool(rest)
        check = preset.check and not has_batch_norm(model) if check is None else check
        if max_rest is not None and not rest:
            raise ValueError(f'max_rest={max_rest}, but no sample rests; use rest=True or speed="all"')
        if rest or check:
            most = {} if rest and max_rest is None else {"max_rest": max_rest or 0}
            scorecard = Scorecard(n_samples or 1, check=check, narrow=preset.narrow, **most)
    if scorecard is not None and n_samples is not None:
        scorecard.check_for(n_samples, model)
    return RunParts(loss, skip or preset.skip, scorecard, accumulation)


def check_loss(loss: Loss | LinearLoss | str) -> Loss | LinearLoss:
    """A loss by its name, or as it is."""
    if isinstance(loss, str):
        return make_loss(loss)
    if not isinstance(loss, (Loss, LinearLoss)):
        raise TypeError(
            f"loss must be a loss of sparring or a name ({', '.join(list_losses())}),"
            f" got {type(loss).__name__}; sparring.SoftmaxLoss is cross entropy"
        )
    return loss


def _check_layer(layer: nn.Linear, model: nn.Module) -> None:
    trained = {id(parameter) for parameter in model.parameters()}
    if any(id(parameter) not in trained for parameter in layer.parameters()):
        raise ValueError(
            "the loss's linear layer is not part of the model, so nothing would train it; use"
            " LinearLoss.on(model.head, loss) and a forward= that returns the input of the layer"
        )


def _with_adaptive_delta(loss: Loss | LinearLoss) -> Loss | LinearLoss:
    """A copy of the loss whose δ adapts.

    A schedule of the user's stays. So does the δ of multi-label losses: a smaller one costs them accuracy.
    """
    delta = getattr(loss, "delta", None)
    inner = loss.loss if isinstance(loss, LinearLoss) else loss
    if delta is None or isinstance(delta, DeltaSchedule) or isinstance(inner, MultilabelASSoftmaxLoss):
        return loss
    return _with_settings(loss, delta=AdaptiveDelta.below(delta))


def with_concede_warmup(loss: Loss | LinearLoss, total_steps: int) -> Loss | LinearLoss:
    """A copy of the loss whose κ has a warm-up; the loss itself where it has a schedule, or no κ."""
    concede = getattr(loss, "concede", None)
    warmed = with_warmup(concede, total_steps)
    return loss if warmed is concede else _with_settings(loss, concede=warmed)


def _with_settings(loss: Loss | LinearLoss, **settings: Any) -> Loss | LinearLoss:
    """A copy of the loss with other settings; the user's other schedules and the layer of a head stay."""
    changed = copy.copy(loss)
    changed._buffers = dict(loss._buffers)
    changed._modules = dict(loss._modules)
    if isinstance(changed, LinearLoss):
        settings = {"loss": _with_settings(changed.loss, **settings)}
    for name, value in settings.items():
        setattr(changed, name, value)
    return changed


def check_accelerator(accelerator: Any) -> None:
    """Raise ValueError for an Accelerator that accumulates or shards the model."""
    if accelerator.gradient_accumulation_steps != 1:
        raise ValueError(
            "leave the Accelerator's gradient_accumulation_steps at 1; the loop has accumulation= for that"
        )
    wrapper = accelerator.distributed_type.value
    if wrapper in ("DEEPSPEED", "FSDP", "MEGATRON_LM"):
        raise ValueError(f"the loop keeps a whole model on every process, which {wrapper} does not; use DDP")


# ------------------------------------------------------------ optimizer and learning rate


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
