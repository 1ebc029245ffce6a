"""Speed presets: what a run is made of, by one word.

- ``off``: every sample has a forward and a backward pass in every epoch.
- ``skip``: no backward pass for won samples. Exact: the weights are those of ``off``, to rounding. For plain
  softmax, and other losses that no sample wins, it is ``off``.
- ``fast``: training begins with a fitted last layer, where that has less than three quarters of the loss on
  held-out samples without large weights, and samples rest, that is, some epochs leave them out; not with
  BatchNorm, and not before it saves time. With plain softmax, and other losses without a δ, a sample with a
  large margin rests up to four epochs, at most a quarter of the training, and counts for them when it comes
  back (`WeightedScorecard`); not in short trainings, unless their head is fitted. With AS-Softmax, won
  samples rest up to two epochs, rests become shorter where samples come back lost, and training settles: at
  its end, plain softmax trains every sample. A loss that is given by name has δ = 0.6, and 0.8 with the other
  presets.

``docs/results/frontier`` has measurements of ``fast``, ``docs/results/speed`` of ``skip``.
"""

from __future__ import annotations

import copy
from typing import Any, NamedTuple, TypeVar, cast

from torch import nn

from sparring.backward.skipper import has_batch_norm
from sparring.heads.linear import LinearLoss
from sparring.losses import Loss, list_losses, make_loss
from sparring.losses.checks import check_range
from sparring.losses.concede import CONCEDE_WARMUP, with_warmup
from sparring.losses.delta import SETTLE_SHARE, TRAINING_DELTA, SettleDelta, delta_value
from sparring.training.accumulation import AdaptiveAccumulation
from sparring.training.progress import settle_step, settles_at
from sparring.training.resting.scorecard import DEFAULT_REST, MIN_RESTING, Scorecard
from sparring.training.resting.weighted import WeightedScorecard

L = TypeVar("L", bound=nn.Module)


class Speed(NamedTuple):
    """A preset."""

    skip: str  # mode of the Skipper
    rest: bool = False  # won samples rest, unless the model has BatchNorm
    settle: float = 0.0  # share of training that settles
    delta: float = TRAINING_DELTA  # of a loss that is given by name
    fit_head: bool = False  # training begins with a fitted last layer


SPEEDS = {
    "off": Speed("off"),
    "skip": Speed("rows"),
    "fast": Speed("rows", rest=True, settle=SETTLE_SHARE, delta=0.6, fit_head=True),
}
SPEEDS["all"] = SPEEDS["fast"]  # an earlier name
# Losses whose rows always have a gradient.
ALWAYS_ACTIVE = (
    "softmax", "t-softmax", "label-smoothing", "am-softmax", "focal", "gce", "sce", "multilabel-softmax",
    "multilabel-t-softmax",
)  # fmt: skip


class RunParts(NamedTuple):
    """The parts of a run that a speed preset decides on."""

    loss: Loss | LinearLoss
    skip: str
    scorecard: Scorecard | None  # None: no sample rests or is checked
    accumulation: AdaptiveAccumulation | None  # None: the window length is fixed
    settle: float = 0.0  # share of training that settles
    note: str = ""  # what the preset does here, and why
    fit_head: bool = False  # training begins with a fitted last layer

    def with_length(self, total_steps: int, n_planned: int) -> RunParts:
        """The same parts for a training of known length: κ has its warm-up, and δ settles.

        Args:
            total_steps: Planned batches of the whole training.
            n_planned: Planned batches of an epoch.
        """
        concede = getattr(self.loss, "concede", None)
        if with_warmup(concede, total_steps) is concede and not settles(self.loss, self.settle):
            return self
        loss = _copy(self.loss)
        set_length(loss, total_steps, n_planned, settle=self.settle)
        return self._replace(loss=loss)


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
    settle: float | None = None,
    fit_head: bool | None = None,
    seed: int = 0,
) -> RunParts:
    """Combine a speed preset with the user's settings, which come first.

    ``rest`` may be a scorecard. ``accumulation`` may be the most batches of one optimizer step.
    ``n_samples`` is None where the data set is not known yet. ``seed`` is that of a `WeightedScorecard`.

    >>> parts = resolve_speed(nn.Linear(4, 2), 100, loss="as-softmax", speed="fast", max_rest=1)
    >>> parts.skip, parts.scorecard.max_rest, parts.loss.delta, parts.settle
    ('rows', 1, 0.6, 0.25)
    """
    preset = find_speed(speed)
    loss = check_loss(loss, preset.delta)
    if isinstance(loss, LinearLoss):
        _check_layer(loss.linear, model)
    if isinstance(accumulation, int):
        accumulation = AdaptiveAccumulation(lam, accumulation)
    scorecard = rest if isinstance(rest, Scorecard) else None
    if scorecard is None:
        rests = preset.rest and not has_batch_norm(model) if rest is None else bool(rest)
        if max_rest is not None and not rests:
            raise ValueError(f'max_rest={max_rest}, but no sample rests; use rest=True or speed="fast"')
        if rests and not check and not drops_opponents(loss):
            scorecard = WeightedScorecard(n_samples or 1, max_rest=max_rest, seed=seed)
        elif rests or check:
            most = (DEFAULT_REST if max_rest is None else max_rest) if rests else 0
            narrow = most if preset.rest else 0  # any win at the larger δ of the preset is a clear one
            rules = {"check": bool(check), "watch": preset.rest}
            scorecard = Scorecard(n_samples or 1, max_rest=most, narrow=narrow, **rules)
    if scorecard is not None and n_samples is not None:
        scorecard.check_for(n_samples, model)
    if settle is None:  # samples that count for their rest need no settling
        settle = 0.0 if isinstance(scorecard, WeightedScorecard) else preset.settle
    check_range("settle", settle, 0, 1, note="of training")
    if (
        fit_head is None
    ):  # eval mode, in which it is fitted, may give other features where BatchNorm is trained
        fit_head = preset.fit_head and not has_batch_norm(model)
    mode = skip or (preset.skip if has_won_rows(loss) else "off")  # there would be nothing to skip
    parts = RunParts(loss, mode, scorecard, accumulation, settle, fit_head=fit_head)
    if preset.rest:
        return parts._replace(note=_describe(parts, model))
    if settle and scorecard is None and not hasattr(loss, "delta"):
        return parts._replace(note=f"settle={settle:g} changes nothing: {loss.name} has no δ")
    return parts


def _describe(parts: RunParts, model: nn.Module) -> str:
    """What the preset ``fast`` does in a run, in one line."""
    delta = getattr(parts.loss, "delta", None)
    what = f"speed fast: {parts.loss.name}"
    if delta is not None:
        what += f", δ {delta_value(delta):.3g}"
    if parts.skip != "off" and drops_opponents(parts.loss):
        what += ", no backward pass for won samples"
    if isinstance(parts.scorecard, WeightedScorecard):
        limit = ""
        if parts.scorecard.follows_length:
            limit = ", at most a quarter of the planned ones (none in short trainings)"
        what += (
            f"; once {MIN_RESTING:.0%} would rest, samples with a large margin rest up to"
            f" {parts.scorecard.max_rest} epochs{limit}, and count for these when they come back"
        )
    elif parts.scorecard is not None:
        what += f"; once {MIN_RESTING:.0%} are won, won samples rest up to {parts.scorecard.max_rest} epochs"
    elif has_batch_norm(model):
        what += "; no sample rests, since BatchNorm would see the statistics of hard samples alone"
    if parts.settle and delta is not None:
        what += f"; the last {parts.settle:.0%} are plain softmax for every sample"
    elif parts.settle and parts.scorecard is not None:
        what += f"; in the last {parts.settle:.0%} no sample rests"
    return what


def has_won_rows(loss: Loss | LinearLoss) -> bool:
    """Whether rows of a loss can have a gradient of exactly 0, so that a backward pass can be skipped."""
    return loss.name not in ALWAYS_ACTIVE or getattr(loss, "concede", None) is not None


def drops_opponents(loss: Loss | LinearLoss) -> bool:
    """Whether a loss is of the AS-Softmax family: won samples have no gradient, so they need no weights."""
    return "as" in loss.name.split("-")


def find_speed(speed: str) -> Speed:
    """A preset by its name."""
    if speed not in SPEEDS:
        raise ValueError(f"speed must be one of off, skip, fast; got {speed!r}")
    return SPEEDS[speed]


def check_loss(loss: Loss | LinearLoss | str, delta: float = TRAINING_DELTA) -> Loss | LinearLoss:
    """A loss by its name, with a δ if it takes one, or as it is."""
    if isinstance(loss, str):
        by_name: Any = make_loss(loss)
        if hasattr(by_name, "delta"):
            by_name.delta = delta
        return cast("Loss", by_name)
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


def set_length(
    loss: Loss | LinearLoss,
    total_steps: int,
    n_planned: int | None = None,
    *,
    settle: float = 0.0,
    concede_warmup: float = CONCEDE_WARMUP,
) -> None:
    """Tell a loss the length of its training, in place: κ gets its warm-up, and δ settles.

    Args:
        loss: The loss. Schedules of κ, and a δ that settles, stay as they are.
        total_steps: Planned batches of the whole training.
        n_planned: Planned batches of an epoch, if they are known: then whole epochs settle.
        settle: Share of the training that settles.
        concede_warmup: Share of the training in which nothing is conceded.
    """
    inner: Any = loss.loss if isinstance(loss, LinearLoss) else loss
    concede = getattr(inner, "concede", None)
    if (warmed := with_warmup(concede, total_steps, concede_warmup)) is not concede:
        inner.concede = warmed
    if settles(inner, settle):
        n_settle = total_steps - settle_step(total_steps, n_planned or 1, settle)
        inner.delta = SettleDelta(inner.delta, total_steps=total_steps, share=n_settle / total_steps)


def settles(loss: Loss | LinearLoss, settle: float) -> bool:
    """Whether the δ of a loss is to settle, and does not yet."""
    return bool(settle) and hasattr(loss, "delta") and settles_at(loss, 1, 1) is None


def _copy(loss: L) -> L:
    """A copy that can have other settings; the user's schedules and the layer of a head stay the same."""
    copied = copy.copy(loss)
    copied._buffers = dict(loss._buffers)
    copied._modules = dict(loss._modules)
    if isinstance(copied, LinearLoss):
        copied.loss = _copy(copied.loss)
    return copied


def check_accelerator(accelerator: Any) -> None:
    """Raise ValueError for an Accelerator that accumulates or shards the model."""
    if accelerator.gradient_accumulation_steps != 1:
        raise ValueError(
            "leave the Accelerator's gradient_accumulation_steps at 1; the loop has accumulation= for that"
        )
    wrapper = accelerator.distributed_type.value
    if wrapper in ("DEEPSPEED", "FSDP", "MEGATRON_LM"):
        raise ValueError(f"the loop keeps a whole model on every process, which {wrapper} does not; use DDP")
