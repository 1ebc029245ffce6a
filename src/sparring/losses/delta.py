"""Schedules of δ, the margin of AS-Softmax. Losses take a number or one of these.

A schedule is advanced like a learning-rate schedule, once per optimizer step:

    loss = ASSoftmaxLoss(WarmupDelta(0.3, total_steps=1000))
    ...
    optimizer.step()
    loss.delta.step()

It is a module without parameters, so the loss's ``state_dict`` holds its state. `value` is a plain float that
changes only in `step`: torch.compile recompiles for it once, not at every step.
"""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor, nn

from sparring.losses.checks import check_count, check_range
from sparring.losses.rows import RowLosses

__all__ = [
    "DEFAULT_DELTA",
    "TRAINING_DELTA",
    "AdaptiveDelta",
    "ConstantDelta",
    "CosineDelta",
    "DeltaSchedule",
    "LinearDelta",
    "SettleDelta",
    "WarmupDelta",
    "delta_value",
]

DEFAULT_DELTA = 0.3  # of the losses: what the paper suggests for most tasks
TRAINING_DELTA = 0.8  # of a loss that training is given by name: dev chose it (docs/results, "delta")
SETTLE_SHARE = 0.25  # share of training that settles: plain softmax at its end
LOWEST_DELTA = 0.05  # the smallest δ that an adaptive schedule reaches by default


def _check_delta(name: str, value: float) -> float:
    return check_range(name, value, 0, 1, note="delta=1 is plain softmax")


def check_delta(delta: float | DeltaSchedule) -> float | DeltaSchedule:
    return delta if isinstance(delta, DeltaSchedule) else _check_delta("delta", delta)


def delta_value(delta: float | DeltaSchedule) -> float:
    """Return the current δ: the value of a schedule, or the float itself."""
    if type(delta) is float and 0 <= delta <= 1:
        return delta
    return delta.value if isinstance(delta, DeltaSchedule) else _check_delta("delta", delta)


class DeltaSchedule(nn.Module):
    """Base class of the schedules. `value` is the current δ or κ in [0, 1]; `n_steps` counts the steps."""

    value: float

    def __init__(self, **settings: float) -> None:
        super().__init__()
        self.n_steps = 0
        self._settings = settings

    def step(self, rows: RowLosses | Tensor | float | None = None) -> float:
        """Advance by one optimizer step.

        Args:
            rows: The row losses of the step, or its won share. Only `AdaptiveDelta` reads them.

        Returns:
            The new value.
        """
        self.n_steps += 1
        self.value = self._at(self.n_steps)
        return self.value

    def settled(self) -> float:
        """Return the δ used for evaluation, so that all evaluations of a run are comparable.

        Scheduled δ: its final value, before it settles. Adaptive δ: its initial value.
        """
        return self.value

    def settles_at(self) -> int | None:
        """The step at which δ becomes 1 until the end (`SettleDelta`); None for other schedules."""
        return None

    def _at(self, n_steps: int) -> float:
        return self.value

    def get_extra_state(self) -> dict[str, Any]:
        return {"n_steps": self.n_steps, "value": self.value}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        self.n_steps = state["n_steps"]
        self.value = state["value"]

    def extra_repr(self) -> str:
        return ", ".join(f"{k}={v}" for k, v in self._settings.items()) + f", value={self.value:.4g}"


class ConstantDelta(DeltaSchedule):
    """The same δ throughout, as in the paper's main results."""

    def __init__(self, delta: float = DEFAULT_DELTA) -> None:
        super().__init__(delta=delta)
        self.value = _check_delta("delta", delta)


class WarmupDelta(DeltaSchedule):
    """δ = 1 (plain softmax) for the first `share` of training, then `delta`.

    An untrained classifier would discard opponents that it cannot judge yet. The paper's share r (A.4) is
    0.15 for Clinc_oos and 0.25 for Conll2003.

    Args:
        delta: The δ after warm-up: a number, or a schedule that starts when the warm-up ends.
        total_steps: The number of optimizer steps of the whole training.
        share: The part of them that is warm-up, in [0, 1].

    >>> delta = WarmupDelta(0.3, total_steps=4, share=0.5)
    >>> [delta.value] + [delta.step() for _ in range(3)]
    [1.0, 1.0, 0.3, 0.3]
    """

    def __init__(
        self, delta: float | DeltaSchedule = DEFAULT_DELTA, *, total_steps: int, share: float = 0.15
    ) -> None:
        check_count("total_steps", total_steps)
        super().__init__(total_steps=total_steps, share=check_range("share", share, 0, 1))
        self.after = delta if isinstance(delta, DeltaSchedule) else ConstantDelta(delta)
        self.n_warmup = math.ceil(share * total_steps)
        self.value = 1.0 if self.n_warmup else self.after.value

    def step(self, rows: RowLosses | Tensor | float | None = None) -> float:
        self.n_steps += 1
        if self.n_steps > self.n_warmup:
            self.after.step(rows)
        self.value = 1.0 if self.n_steps < self.n_warmup else self.after.value
        return self.value

    def settled(self) -> float:
        return self.after.settled()

    def settles_at(self) -> int | None:
        step = self.after.settles_at()
        return None if step is None else step + self.n_warmup


class SettleDelta(DeltaSchedule):
    """`delta`, then δ = 1 (plain softmax) for the last `share` of training.

    AS-Softmax stops pushing at margin δ, so margins stay thin and probabilities low. A short last phase of
    plain softmax, while the learning rate is small, restores accuracy and calibration.

    Args:
        delta: The δ before that phase: a number, or a schedule such as `WarmupDelta` or `AdaptiveDelta`.
        total_steps: The number of optimizer steps of the whole training.
        share: The part of them that settles, in [0, 1].

    >>> delta = SettleDelta(0.6, total_steps=4, share=0.5)
    >>> [delta.value] + [delta.step() for _ in range(3)]
    [0.6, 0.6, 1.0, 1.0]
    """

    def __init__(
        self, delta: float | DeltaSchedule = DEFAULT_DELTA, *, total_steps: int, share: float = SETTLE_SHARE
    ) -> None:
        check_count("total_steps", total_steps)
        super().__init__(total_steps=total_steps, share=check_range("share", share, 0, 1))
        self.before = delta if isinstance(delta, DeltaSchedule) else ConstantDelta(delta)
        self.n_before = total_steps - round(share * total_steps)
        self.value = self.before.value if self.n_before else 1.0

    def step(self, rows: RowLosses | Tensor | float | None = None) -> float:
        self.n_steps += 1
        if self.n_steps < self.n_before:
            self.value = self.before.step(rows)
        else:
            self.value = 1.0
        return self.value

    def settled(self) -> float:
        return self.before.settled()

    def settles_at(self) -> int | None:
        return self.n_before

    def after_warmup(self, share: float) -> SettleDelta:
        """The same schedule with a warm-up before it: plain softmax for the first `share` of training."""
        total_steps = int(self._settings["total_steps"])
        before = WarmupDelta(self.before, total_steps=total_steps, share=share)
        return SettleDelta(before, total_steps=total_steps, share=self._settings["share"])


class LinearDelta(DeltaSchedule):
    """δ from `start` to `end` in a straight line over `total_steps`, and `end` after that.

    >>> delta = LinearDelta(1.0, 0.2, total_steps=4)
    >>> [round(delta.step(), 2) for _ in range(5)]
    [0.8, 0.6, 0.4, 0.2, 0.2]
    """

    def __init__(self, start: float = 1.0, end: float = DEFAULT_DELTA, *, total_steps: int) -> None:
        super().__init__(start=start, end=end, total_steps=check_count("total_steps", total_steps))
        self.start = self.value = _check_delta("start", start)
        self.end = _check_delta("end", end)
        self.total_steps = total_steps

    def _at(self, n_steps: int) -> float:
        if n_steps >= self.total_steps:
            return self.end
        return self.start + (self.end - self.start) * self._progress(n_steps / self.total_steps)

    def settled(self) -> float:
        return self.end

    def _progress(self, progress: float) -> float:
        return progress


class CosineDelta(LinearDelta):
    """δ from `start` to `end` along half a cosine: slow at both ends."""

    def _progress(self, progress: float) -> float:
        return (1 - math.cos(math.pi * progress)) / 2


class AdaptiveDelta(DeltaSchedule):
    r"""δ that follows training: it rises while more than a share `won` of the rows is won, else it falls.

        δ ← clip(δ + rate · (won share − won), low, high)

    The paper fixes δ, finds by search that easy tasks want a larger one (section 4.5), and leaves choosing it
    to future work. The won share tells easy tasks from hard ones during training.

    Args:
        start: δ at the first step.
        won: The share of won rows to aim at, in [0, 1]. A larger share trains faster.
        rate: The change of δ per step if the share is off by 1.
        low: The smallest δ. Above 0, some margin always remains.
        high: The largest δ. Below 1, the softmax always remains sparse.

    `step` needs the row losses of the step, which costs a device sync, or the won share itself. Under data
    parallelism, average the share over the ranks so that they keep the same δ.

    >>> delta = AdaptiveDelta(0.3, won=0.5, rate=0.1)
    >>> delta.step(1.0), delta.step(0.0)
    (0.35, 0.3)
    """

    def __init__(
        self,
        start: float = DEFAULT_DELTA,
        *,
        won: float = 0.5,
        rate: float = 0.01,
        low: float = LOWEST_DELTA,
        high: float = 0.9,
    ) -> None:
        super().__init__(start=start, won=won, rate=rate, low=low, high=high)
        self.low = check_range("low", low, 0, 1)
        self.high = check_range("high", high, low, 1, note="at least low")
        self.value = check_range("start", start, low, high, note="between low and high")
        self.won = check_range("won", won, 0, 1)
        self.rate = check_range("rate", rate, 0, 1)

    @classmethod
    def below(cls, delta: float) -> AdaptiveDelta:
        """Return a schedule that starts at `delta` and never exceeds it, to train faster.

        >>> delta = AdaptiveDelta.below(0.3)
        >>> round(delta.step(0.0), 3), delta.step(1.0), delta.step(1.0)
        (0.295, 0.3, 0.3)
        """
        return cls(delta, low=min(LOWEST_DELTA, delta), high=delta)

    def settled(self) -> float:
        return self._settings["start"]

    def step(self, rows: RowLosses | Tensor | float | None = None) -> float:
        if rows is None:
            raise ValueError(
                "AdaptiveDelta.step needs the row losses of the step, got None: "
                "rows = loss.rows(input, target), then loss.delta.step(rows)"
            )
        if isinstance(rows, RowLosses) and not rows.valid.any():
            return self.value
        share = check_range(
            "won share", float(rows.won_share() if isinstance(rows, RowLosses) else rows), 0, 1
        )
        self.n_steps += 1
        self.value = min(max(self.value + self.rate * (share - self.won), self.low), self.high)
        return self.value
