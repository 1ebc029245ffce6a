"""What happened in the backward passes of a compacted model, counted."""

from __future__ import annotations

from collections import Counter

import torch


class Tally:
    """What one backward pass did, over the regions of one forward's graph."""

    def __init__(self) -> None:
        self.begin(-1)

    def begin(self, task: int) -> None:
        """A new pass: ``task`` is the engine's number of it."""
        self.task = task
        self.n_samples = self.n_covered = 0
        self.has_walked = self.has_full = (
            False  # regions on survivors; regions in full, or in full from some operation on
        )


class SkipStats:
    """What happened in the backward passes of a compacted model.

    >>> stats = SkipStats()
    >>> stats.count(Tally(), n_samples=32, n_covered=8)
    >>> stats.count(Tally(), n_samples=32, n_covered=32, walked=False, reason="few zero rows")
    >>> stats.n_backward, stats.n_skipping, stats.n_samples_backward
    (2, 1, 40)
    """

    def __init__(self) -> None:
        self.n_backward = 0  # backward passes
        self.n_skipping = 0  # of them, on survivors only
        self.n_partial = (
            0  # of them, on survivors in part: in full from some operation on, or behind some output
        )
        self.n_samples = 0  # samples they could have covered
        self.n_samples_backward = 0  # samples they did cover
        self.in_full: Counter[str] = Counter()  # operations that were run in full all the same
        self.reasons: Counter[str] = Counter()  # why a pass did not skip, or not to the end
        self.compiled = (
            False  # whether torch.compile has taken the model: there no pass skips, and none is counted
        )

    @property
    def n_walks(self) -> int:
        """Backward passes that began on survivors."""
        return self.n_skipping + self.n_partial

    def count(
        self, tally: Tally, n_samples: int, n_covered: int, *, walked: bool = True, reason: str = ""
    ) -> None:
        """Add what a backward pass did in one region: on survivors (``walked``), to the end unless there is a ``reason``."""
        task = torch._C._current_graph_task_id()
        if task == -1 or tally.task != task:
            tally.begin(task)
            self.n_backward += 1
        self._classify(tally, -1)
        self.n_samples += max(n_samples - tally.n_samples, 0)
        self.n_samples_backward += max(n_covered - tally.n_covered, 0)
        tally.n_samples = max(n_samples, tally.n_samples)
        tally.n_covered = max(n_covered, tally.n_covered)
        tally.has_walked |= walked
        tally.has_full |= bool(reason)
        self._classify(tally, +1)
        if reason:
            self.reasons[reason] += 1

    def _classify(self, tally: Tally, amount: int) -> None:
        self.n_skipping += amount * (tally.has_walked and not tally.has_full)
        self.n_partial += amount * (tally.has_walked and tally.has_full)

    def __repr__(self) -> str:
        return f"SkipStats({', '.join(f'{name}={value}' for name, value in vars(self).items())})"
