"""What a run writes while it trains: lines for steps, epochs and evaluations, and TensorBoard events."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any, Protocol

from sparring.lab.errors import UserError
from sparring.lab.runs.records import Journal
from sparring.training.record import Record


class Observer(Protocol):
    """Follows a run: a progress bar, or a queue to another process."""

    def begin(self, total: int) -> None:
        """Training starts, with this number of batches."""

    def step(self, entry: dict[str, Any]) -> bool:
        """An optimizer step is done. Return True to save and stop."""

    def evaluation(self, entry: dict[str, Any]) -> None:
        """The network was evaluated on dev."""


class RunLog:
    """The journals of a run folder, kept in step with the record of the training loop."""

    def __init__(self, folder: Path, tensorboard: bool) -> None:
        if tensorboard and importlib.util.find_spec("tensorboard") is None:
            raise UserError("TensorBoard events need tensorboard: pip install tensorboard")
        self.folder = folder
        self.tensorboard = tensorboard
        self.writer: Any = None
        self.journals = {
            "steps": Journal(folder / "steps.jsonl"),
            "epochs": Journal(folder / "epochs.jsonl", key="epoch"),
            "evaluations": Journal(folder / "evaluations.jsonl"),
        }

    def write(self, journal: str, entry: dict[str, Any], record: Record) -> None:
        """Add a line. Lines that a killed run wrote after its last checkpoint are replaced."""
        self.journals[journal].add(entry, self._n_lines(journal, record) - 1)

    def check(self, record: Record) -> None:
        """Raise `UserError` if lines were removed."""
        for name, journal in self.journals.items():
            journal.check(self._n_lines(name, record))

    @staticmethod
    def _n_lines(journal: str, record: Record) -> int:
        """How many lines a journal should have by now."""
        if journal == "steps":
            return int(record.totals["n_updates"])
        return len(record.epochs if journal == "epochs" else record.evaluations)

    def write_events(self, group: str, step: int, figures: dict[str, Any]) -> None:
        """Write TensorBoard events. Those that a killed run wrote after its last checkpoint are purged."""
        if not self.tensorboard:
            return
        if self.writer is None:
            from torch.utils.tensorboard import SummaryWriter

            self.writer = SummaryWriter(str(self.folder / "tensorboard"), purge_step=step)
        for name, value in figures.items():
            if value is not None:
                self.writer.add_scalar(f"{group}/{name}", value, step)

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()
