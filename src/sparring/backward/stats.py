"""Counters of what the backward passes of a compacted model did."""

from collections import Counter
from dataclasses import dataclass, field

import torch


class PassCounts:
    """What one backward pass did so far. The regions of one forward pass share an object."""

    def __init__(self) -> None:
        self.start(-1)

    def start(self, task: int) -> None:
        """Begin to count a new pass. ``task`` is its number in torch's engine."""
        self.task = task
        self.n_samples = 0
        self.n_covered = 0
        self.has_walked = False  # a region was run on survivors
        self.has_full = False  # a region was run in full, or in full from some operation on


@dataclass(eq=False)
class SkipStats:
    """What the backward passes of a compacted model did.

    >>> stats = SkipStats()
    >>> stats.count(PassCounts(), n_samples=32, n_covered=8)
    >>> stats.count(PassCounts(), n_samples=32, n_covered=32, walked=False, reason="few zero rows")
    >>> stats.n_backward, stats.n_skipping, stats.n_samples_backward
    (2, 1, 40)
    """

    n_backward: int = 0  # backward passes
    n_skipping: int = 0  # passes on surviving samples only
    n_partial: int = 0  # passes partly on survivors: in full from some operation on, or behind some output
    n_samples: int = 0  # samples in all passes
    n_samples_backward: int = 0  # samples that the passes covered
    in_full: Counter[str] = field(default_factory=Counter)  # operations that were run on all samples
    reasons: Counter[str] = field(default_factory=Counter)  # why passes did not skip, or not to the end
    compiled: bool = False  # torch.compile traced the model: its passes do not skip and are not counted

    @property
    def n_walks(self) -> int:
        """Backward passes that began on survivors."""
        return self.n_skipping + self.n_partial

    def count(
        self, counts: PassCounts, n_samples: int, n_covered: int, *, walked: bool = True, reason: str = ""
    ) -> None:
        """Count one region of a pass: ``walked`` on survivors, and to the end if there is no ``reason``."""
        task = torch._C._current_graph_task_id()
        if task == -1 or counts.task != task:
            counts.start(task)
            self.n_backward += 1
        self._classify(counts, -1)
        self.n_samples += max(n_samples - counts.n_samples, 0)
        self.n_samples_backward += max(n_covered - counts.n_covered, 0)
        counts.n_samples = max(n_samples, counts.n_samples)
        counts.n_covered = max(n_covered, counts.n_covered)
        counts.has_walked |= walked
        counts.has_full |= bool(reason)
        self._classify(counts, +1)
        if reason:
            self.reasons[reason] += 1

    def _classify(self, counts: PassCounts, amount: int) -> None:
        self.n_skipping += amount * (counts.has_walked and not counts.has_full)
        self.n_partial += amount * (counts.has_walked and counts.has_full)
