"""The record of a run: one entry per epoch and per evaluation, and totals. Plain numbers, so that it saves anywhere."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from torch import Tensor

from sparring.backward.skipper import Counts, Look, Pass

SHARED = ("n_forward", "n_backward", "n_rows", "n_won", "mass", "loss")  # every process has its part
COUNTS = (*SHARED, "n_updates", "seconds", "cpu_seconds")


def _zero() -> dict[str, float]:
    return dict.fromkeys(COUNTS, 0)


@dataclass
class Record:
    """``totals`` and each epoch count samples forwarded (twice where they were scored first), samples that had a
    backward, updates, rows looked at, rows won, and seconds of training (passed, and on the processor), evaluation and saving left out."""

    epochs: list[dict[str, Any]] = field(default_factory=list)
    evaluations: list[dict[str, Any]] = field(default_factory=list)
    totals: dict[str, float] = field(default_factory=_zero)
    current: dict[str, Any] = field(default_factory=_zero)
    window: dict[str, float] = field(default_factory=_zero)  # since the last update
    done: bool = False

    @property
    def best(self) -> dict[str, Any] | None:
        """The best evaluation."""
        return next((entry for entry in reversed(self.evaluations) if entry["best"]), None)

    def begin(self, epoch: int, **facts: Any) -> None:
        self.current = {"epoch": epoch, **facts, **_zero()}

    def _add(self, **counts: float) -> None:
        for name, value in counts.items():
            for kept in (self.current, self.totals, self.window):
                kept[name] += value

    def _looked(self, counts: Counts, n_forward: int, n_backward: int) -> None:
        self._add(n_rows=counts.n_valid, n_won=counts.n_won, mass=counts.mass, loss=counts.loss)
        self._add(n_forward=n_forward, n_backward=n_backward)

    def fought(self, done: Pass, counts: Counts, n_backward: int) -> None:
        again = done.fighting.n_samples if done.form == "two-pass" and done.fighting is not None else 0
        self._looked(counts, done.seen.n_samples + again, n_backward)

    def checked(self, seen: Look) -> None:
        self._looked(seen.counts(), seen.n_samples, 0)

    def spent(self, seconds: float, cpu_seconds: float) -> None:
        self._add(seconds=seconds, cpu_seconds=cpu_seconds)

    def stepped(self, n_updates: int = 1) -> dict[str, float]:
        """Close a window: its samples and its mean loss. Without an update: one in which nobody fought."""
        self._add(n_updates=n_updates)
        window, self.window = self.window, _zero()
        return {
            "loss": window["loss"] / (window["mass"] or 1),
            "n_forward": window["n_forward"],
            "n_backward": window["n_backward"],
        }

    def end(self, total: Callable[[Sequence[float]], list[float]], **facts: Any) -> dict[str, Any]:
        """Close an epoch; ``total`` sums counts over the processes, each of which saw its part."""
        for name, value in zip(SHARED, total([self.current[name] for name in SHARED]), strict=True):
            self.totals[name] += value - self.current[name]
            self.current[name] = value
        entry = {**self.current, **facts, "won_share": self.current["n_won"] / max(self.current["n_rows"], 1)}
        entry["loss"] = self.current["loss"] / (self.current["mass"] or 1)
        self.epochs.append(entry)
        return entry

    def evaluated(self, entry: dict[str, Any], value: float) -> bool:
        """Whether it is the best so far; ``value`` grows with quality."""
        best = self.best
        entry["value"], entry["best"] = (
            value,
            not math.isnan(value) and (best is None or value > best["value"]),
        )
        self.evaluations.append(entry)
        return bool(entry["best"])

    def since_best(self) -> int:
        """Evaluations since the best one."""
        return next(
            (i for i, entry in enumerate(reversed(self.evaluations)) if entry["best"]), len(self.evaluations)
        )

    def state_dict(self) -> dict[str, Any]:
        return asdict(self)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            setattr(self, name, value)


def figures_of(found: Any) -> dict[str, float]:
    """What an evaluation returned: a number, or several by name."""
    if isinstance(found, (int, float, Tensor)):
        return {"metric": float(found)}
    if not isinstance(found, dict) or not found:
        raise ValueError(
            f'evaluate must return a number, or numbers by name such as {{"accuracy": 0.9}}; got {found!r}'
        )
    return {name: float(value) for name, value in found.items()}
