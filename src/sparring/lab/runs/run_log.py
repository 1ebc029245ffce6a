"""What a run writes and shows while it trains: journals, TensorBoard events, and its progress."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from sparring.lab.errors import UserError
from sparring.lab.runs.records import Journal
from sparring.training.record import Record

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

    from sparring.lab.runs.plan import Plan


class Observer(Protocol):
    """Follows a run: a progress bar, or a queue to another process."""

    def begin(self, total: int) -> None:
        """Training starts, with this number of batches."""

    def note(self, text: str) -> None:
        """What a speed preset changes, before training."""

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


# ------------------------------------------------------------ progress


class RunProgress:
    """The progress of a run, which observes it."""

    def __init__(self, display: Display, plan: Plan) -> None:
        self.display = display
        self.name = plan.name
        self.label = plan.config.label
        self.metric = str(plan.config.metric)
        self.share = 0.0  # of the run that is done
        self.total = 1
        self.now = self.dev = ""

    def begin(self, total: int) -> None:
        self.total = total
        self.display.update(self)

    def note(self, text: str) -> None:
        self.display.say(self.label, text)

    def step(self, entry: dict[str, Any]) -> bool:
        self.share = entry["step"] / self.total
        won = f"won {entry['won_share']:.0%}"
        self.now = f"loss {entry['loss']:.3f} · {won} · accumulation {entry['accumulation']}"
        self.display.update(self)
        return False

    def evaluation(self, entry: dict[str, Any]) -> None:
        self.dev = f" · dev {self.metric} {100 * entry[self.metric]:.2f}"

    def end(self, now: str = "done") -> None:
        self.now = now
        self.share = 1.0
        self.display.update(self)


class Display(Protocol):
    """Shows the progress of runs."""

    def update(self, run: RunProgress) -> None:
        """A run is at ``run.share``."""

    def say(self, label: str, text: str) -> None:
        """Show what a contestant's runs do, once for all seeds."""


class Bars:
    """A progress bar for each run, on a terminal."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self.lines: dict[RunProgress, Any] = {}
        self.notes: set[tuple[str, str]] = set()

    def update(self, run: RunProgress) -> None:
        if run not in self.lines:
            self.lines[run] = self.progress.add_task(run.name, total=None, now="")
        done = round(run.share * run.total)
        now = f"{run.now}{run.dev}"
        self.progress.update(self.lines[run], completed=done, total=run.total, now=now)

    def say(self, label: str, text: str) -> None:
        if (label, text) not in self.notes:
            self.notes.add((label, text))
            self.progress.console.print(f"{label}: {text}", markup=False)


class Lines:
    """Lines of text where there is no terminal: one for each tenth of the work, and at least every 30 s.

    Lines are at least 5 s apart, so that short work has none.
    """

    def __init__(self, console: Console, n_runs: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.console = console
        self.n_runs = n_runs
        self.clock = clock
        self.start = self.last_time = clock()
        self.last_tenth = 0
        self.shares: dict[RunProgress, float] = {}
        self.notes: set[tuple[str, str]] = set()

    def update(self, run: RunProgress) -> None:
        self.shares[run] = run.share
        share = sum(self.shares.values()) / self.n_runs
        now = self.clock()
        is_next = int(10 * share) > self.last_tenth and now - self.last_time >= 5
        if not 0 < share < 1 or not (is_next or now - self.last_time >= 30):
            return
        self.last_time, self.last_tenth = now, int(10 * share)
        n_done = sum(value == 1 for value in self.shares.values())
        seconds = (now - self.start) * (1 - share) / share
        left = f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
        self._print(
            f"{share:.0%} done, {n_done} of {self.n_runs} runs, about {left} left; "
            f"{run.name}: {run.now}{run.dev}"
        )

    def say(self, label: str, text: str) -> None:
        if (label, text) not in self.notes:
            self.notes.add((label, text))
            self._print(f"{label}: {text}")

    def _print(self, text: str) -> None:
        self.console.print(text, markup=False, soft_wrap=True)
