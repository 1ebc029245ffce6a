"""The record of a run: one entry for each epoch and evaluation, and totals, as plain numbers."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from torch import Tensor

from sparring.backward.skipper import Counts

SHARED = (
    "n_forward",
    "n_backward",
    "n_rows",
    "n_won",
    "n_conceded",
    "mass",
    "loss",
)  # to be summed over processes
COUNTS = (*SHARED, "n_updates", "seconds", "cpu_seconds")


def _zeros() -> dict[str, float]:
    return dict.fromkeys(COUNTS, 0)


@dataclass
class Record:
    """The counts of a run.

    ``totals`` and each epoch count samples with a forward pass (twice where they were scored first),
    samples with a backward pass, updates, rows, won and conceded rows, and the seconds of training by the
    clock and on the processor, without evaluation and saving.
    """

    epochs: list[dict[str, Any]] = field(default_factory=list)
    evaluations: list[dict[str, Any]] = field(default_factory=list)
    totals: dict[str, float] = field(default_factory=_zeros)
    current: dict[str, Any] = field(default_factory=_zeros)  # of this epoch
    window: dict[str, float] = field(default_factory=_zeros)  # since the last update
    done: bool = False
    notes: list[str] = field(default_factory=list)  # what a speed preset did, and why

    @property
    def best(self) -> dict[str, Any] | None:
        """The best evaluation."""
        return next((entry for entry in reversed(self.evaluations) if entry["best"]), None)

    def begin_epoch(self, epoch: int, **facts: Any) -> None:
        self.current = {"epoch": epoch, **facts, **_zeros()}

    def add(self, **counts: float) -> None:
        for table in (self.current, self.totals, self.window):
            for name, value in counts.items():
                table[name] += value

    def add_batch(self, counts: Counts, n_forward: int, n_backward: int) -> None:
        self.add(n_rows=counts.n_valid, n_won=counts.n_won, n_conceded=counts.n_conceded)
        self.add(mass=counts.mass, loss=counts.loss)
        self.add(n_forward=n_forward, n_backward=n_backward)

    def start_clock(self) -> None:
        """Start to measure the time of training."""
        self._clock = (time.perf_counter(), time.process_time())

    def add_time(self) -> None:
        """Add the time since the clock was started."""
        seconds, cpu_seconds = self._clock
        self.start_clock()
        self.add(seconds=self._clock[0] - seconds, cpu_seconds=self._clock[1] - cpu_seconds)

    def clock(self) -> dict[str, float]:
        """The seconds of training so far."""
        return {"seconds": self.totals["seconds"]}

    def close_window(self, n_updates: int = 1) -> dict[str, float]:
        """Return the counts since the last window. ``n_updates`` is 0 for a window without an update."""
        self.add(n_updates=n_updates)
        window, self.window = self.window, _zeros()
        return window

    def end_epoch(self, total: Callable[[Sequence[float]], list[float]], **facts: Any) -> dict[str, Any]:
        """Close an epoch. ``total`` sums counts over the processes."""
        for name, value in zip(SHARED, total([self.current[name] for name in SHARED]), strict=True):
            self.totals[name] += value - self.current[name]
            self.current[name] = value
        entry = {**self.current, **facts}
        for name in ("won", "conceded"):
            entry[f"{name}_share"] = self.current[f"n_{name}"] / max(self.current["n_rows"], 1)
        entry["loss"] = self.current["loss"] / (self.current["mass"] or 1)
        self.epochs.append(entry)
        return entry

    def add_evaluation(self, entry: dict[str, Any], value: float) -> bool:
        """Return whether it is the best so far; ``value`` grows with quality."""
        best = self.best
        entry["value"] = value
        entry["best"] = not math.isnan(value) and (best is None or value > best["value"])
        self.evaluations.append(entry)
        return bool(entry["best"])

    def since_best(self) -> int:
        """Evaluations since the best one."""
        flags = [entry["best"] for entry in reversed(self.evaluations)]
        return flags.index(True) if True in flags else len(flags)

    def state_dict(self) -> dict[str, Any]:
        return asdict(self)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            counts = name in ("totals", "current", "window")  # older checkpoints have fewer of them
            setattr(self, name, {**_zeros(), **value} if counts else value)


def check_metrics(metrics: Any, name: str | None = None) -> tuple[dict[str, float], str]:
    """The metrics that an evaluation returned, and the one called ``name``; by default the first."""
    if isinstance(metrics, (int, float, Tensor)):
        metrics = {"metric": metrics}
    if not isinstance(metrics, dict) or not metrics:
        raise TypeError(
            f'evaluate must return a number, or numbers by name such as {{"accuracy": 0.9}}; got {metrics!r}'
        )
    name = name or next(iter(metrics))
    if name not in metrics:
        raise ValueError(f'evaluate returned {", ".join(metrics)}, but metric is "{name}"')
    return {key: float(value) for key, value in metrics.items()}, name
