"""Delta schedules: what δ is at each step of training. A loss takes a float or one of these.

A schedule is advanced as a learning-rate schedule is, once per optimizer step:

    loss = ASSoftmaxLoss(WarmupDelta(0.3, total_steps=1000))
    ...
    optimizer.step()
    loss.delta.step()

It is a module without parameters, so the loss's ``state_dict`` carries its state. `value` is a plain float that changes
only in `step`: torch.compile recompiles once for it, not at every step.
"""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor, nn

from sparring.losses.checks import check_count, check_range
from sparring.losses.rows import RowLosses

SOFTMAX_NOTE = "delta=1 is plain softmax"
LOW = 0.05  # a margin at all


def check_delta(delta: float | DeltaSchedule) -> float | DeltaSchedule:
    if isinstance(delta, DeltaSchedule):
        return delta
    return check_range("delta", delta, 0, 1, note=SOFTMAX_NOTE)


def delta_value(delta: float | DeltaSchedule) -> float:
    """The δ of now: a schedule's value, or the float itself."""
    return (
        delta.value
        if isinstance(delta, DeltaSchedule)
        else check_range("delta", delta, 0, 1, note=SOFTMAX_NOTE)
    )


class DeltaSchedule(nn.Module):
    """Base class. `value` is the δ of now, in [0, 1]; `step` moves on by one optimizer step."""

    value: float

    def __init__(self, **settings: float) -> None:
        super().__init__()
        self.n_steps = 0
        self._settings = settings

    def step(self, rows: RowLosses | Tensor | float | None = None) -> float:
        """One optimizer step is over; `rows` is what its loss returned (only `AdaptiveDelta` looks). Returns the new value."""
        self.n_steps += 1
        self.value = self._at(self.n_steps)
        return self.value

    def settled(self) -> float:
        """The δ it is about, to judge all of a run by one: its last, or for one that follows training its first."""
        return self.value

    def _at(self, n_steps: int) -> float:
        raise NotImplementedError

    def get_extra_state(self) -> dict[str, Any]:
        return {"n_steps": self.n_steps, "value": self.value}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        self.n_steps, self.value = state["n_steps"], state["value"]

    def extra_repr(self) -> str:
        return ", ".join(f"{k}={v}" for k, v in self._settings.items()) + f", value={self.value:.4g}"


class ConstantDelta(DeltaSchedule):
    """The same δ throughout, as in the paper's main results."""

    def __init__(self, delta: float = 0.3) -> None:
        super().__init__(delta=delta)
        self.value = check_range("delta", delta, 0, 1, note=SOFTMAX_NOTE)

    def _at(self, n_steps: int) -> float:
        return self.value


class WarmupDelta(DeltaSchedule):
    """δ = 1, plain softmax, for the first `share` of training, then `delta`: a number or another schedule.

    The paper's r (A.4): an untrained classifier would discard what it does not know yet. r was 0.15 for Clinc_oos, 0.25 for Conll2003.
    A schedule under it starts its own steps when the warm-up is over.

    >>> delta = WarmupDelta(0.3, total_steps=4, share=0.5)
    >>> [delta.value] + [delta.step() for _ in range(3)]
    [1.0, 1.0, 0.3, 0.3]
    """

    def __init__(self, delta: float | DeltaSchedule = 0.3, *, total_steps: int, share: float = 0.15) -> None:
        super().__init__(
            total_steps=check_count("total_steps", total_steps), share=check_range("share", share, 0, 1)
        )
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


class LinearDelta(DeltaSchedule):
    """δ from `start` to `end` along a line over `total_steps`, `end` after that.

    >>> delta = LinearDelta(1.0, 0.2, total_steps=4)
    >>> [round(delta.step(), 2) for _ in range(5)]
    [0.8, 0.6, 0.4, 0.2, 0.2]
    """

    def __init__(self, start: float = 1.0, end: float = 0.3, *, total_steps: int) -> None:
        super().__init__(start=start, end=end, total_steps=check_count("total_steps", total_steps))
        self.start = self.value = check_range("start", start, 0, 1, note=SOFTMAX_NOTE)
        self.end = check_range("end", end, 0, 1, note=SOFTMAX_NOTE)
        self.total_steps = total_steps

    def _at(self, n_steps: int) -> float:
        if n_steps >= self.total_steps:
            return self.end
        return self.start + (self.end - self.start) * self._progress(n_steps / self.total_steps)

    def settled(self) -> float:
        return self.end

    def _progress(self, done: float) -> float:
        return done


class CosineDelta(LinearDelta):
    """δ from `start` to `end` along half a cosine: slow at both ends."""

    def _progress(self, done: float) -> float:
        return (1 - math.cos(math.pi * done)) / 2


class AdaptiveDelta(DeltaSchedule):
    r"""δ that follows training: up while more than `won` of the rows are won, down while fewer are.

        δ ← clip(δ + rate · (won share − won), low, high)

    The paper fixes δ and finds by search that easy tasks want a larger one and hard tasks a smaller one (its section 4.5); it
    leaves choosing it to future work. The won share is what tells the two apart while training: where much is won, a larger
    margin keeps samples in the fight; where little is won, a smaller one lets the easy ones go.

    Args:
        start: δ at the first step.
        won: the share of won rows to hold, in [0, 1]. Larger is faster and asks less of each sample.
        rate: how far δ moves a step when the share is off by 1. At 0.01, a share off by a half moves δ by 0.1 in 20 steps.
        low, high: where δ may go. `low` above 0 keeps a margin at all; `high` below 1 keeps it a sparse softmax.

    `step` takes the step's RowLosses, or the won share itself (under data parallelism: averaged over the ranks, so that
    they keep the same δ). Reading the share waits for the device once a step.

    >>> delta = AdaptiveDelta(0.3, won=0.5, rate=0.1)
    >>> delta.step(1.0), delta.step(0.0)
    (0.35, 0.3)
    """

    def __init__(
        self, start: float = 0.3, *, won: float = 0.5, rate: float = 0.01, low: float = LOW, high: float = 0.9
    ) -> None:
        super().__init__(start=start, won=won, rate=rate, low=low, high=high)
        self.low, self.high = (
            check_range("low", low, 0, 1),
            check_range("high", high, low, 1, note="at least low"),
        )
        self.value = check_range("start", start, low, high, note="between low and high")
        self.won, self.rate = check_range("won", won, 0, 1), check_range("rate", rate, 0, 1)

    @classmethod
    def below(cls, delta: float) -> AdaptiveDelta:
        """One that starts at ``delta``, gives way while fewer than half of the rows are won, and never exceeds it: for speed.

        >>> delta = AdaptiveDelta.below(0.3)
        >>> round(delta.step(0.0), 3), delta.step(1.0), delta.step(1.0)
        (0.295, 0.3, 0.3)
        """
        return cls(delta, low=min(LOW, delta), high=delta)

    def settled(self) -> float:
        return self._settings["start"]

    def step(self, rows: RowLosses | Tensor | float | None = None) -> float:
        if rows is None:
            raise ValueError(
                "AdaptiveDelta.step needs what the step's loss returned: rows = loss.rows(input, target), then loss.delta.step(rows)"
            )
        if isinstance(rows, RowLosses) and not rows.valid.any():
            return self.value  # nothing was seen
        share = float(rows.won_share() if isinstance(rows, RowLosses) else rows)
        self.n_steps += 1
        self.value = min(
            max(self.value + self.rate * (check_range("won share", share, 0, 1) - self.won), self.low),
            self.high,
        )
        return self.value
