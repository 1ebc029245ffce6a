"""What tables and figures are made from: of each run its summary, and thinned curves. Small enough to be committed."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sparring.lab.errors import UserError
from sparring.lab.runs.config import IDENTITY
from sparring.lab.runs.records import RunFolder, read_lines, write_lines
from sparring.lab.runs.schema import N_BINS, WHOLE, check_record, is_study
from sparring.lab.runs.summaries import Spread, spread

CURVES = ("steps", "evaluations", "margins")  # over training; on dev; on test
POINTS = 60  # of a curve over training
Record = dict[str, Any]


def record(folder: RunFolder, study: str, method: str, curves: Sequence[str] = CURVES) -> Record:
    """A finished run, for a study in which it goes by a name; with those of its curves that the study draws."""
    summary = folder.summary()
    return {
        "study": study,
        "method": method,
        **{name: value for name, value in summary.items() if name not in ("folder", "config", "checksums")},
        "config": {name: summary["config"].get(name) for name in IDENTITY},  # without where it lay
        "machine": folder.read("machine"),
        "n_test": folder.read("data")["sizes"]["test"],
        **{name: _CURVES[name](folder, summary["metric"]) for name in curves},
    }


def _steps(folder: RunFolder, metric: str) -> list[dict[str, float]]:
    return _thinned(folder.lines("steps"), ("step", "loss", "won_share"))


def _evaluations(folder: RunFolder, metric: str) -> list[dict[str, float]]:
    return [{"step": e["step"], "loss": e["loss"], "value": e[metric]} for e in folder.lines("evaluations")]


def _margins(folder: RunFolder, metric: str) -> list[int]:
    return histogram(
        [line["margin"] for line in folder.lines("predictions") if line.get("margin") is not None]
    )


_CURVES = {"steps": _steps, "evaluations": _evaluations, "margins": _margins}


def _thinned(lines: Sequence[dict[str, Any]], names: Sequence[str]) -> list[dict[str, float]]:
    """At most ``POINTS`` of them, each the mean of its neighbours, to the digits that can be seen."""
    size = max(1, -(-len(lines) // POINTS))
    parts = [lines[i : i + size] for i in range(0, len(lines), size)]
    known = [
        [line for line in part if None not in (line[name] for name in names)] for part in parts
    ]  # null: it diverged
    return [
        {name: float(f"{statistics.mean(line[name] for line in part):.5g}") for name in names}
        for part in known
        if part
    ]


def histogram(values: Sequence[float]) -> list[int]:
    """Counts of margins, in ``N_BINS`` bins from -1 to 1."""
    counts = [0] * N_BINS
    for value in values:
        counts[min(N_BINS - 1, max(0, int((value + 1) / 2 * N_BINS)))] += 1
    return counts


class Results:
    """The records of one study."""

    def __init__(self, study: str, records: Sequence[Record], words: dict[str, str]) -> None:
        self.study, self.records, self.words = (
            study,
            list(records),
            words,
        )  # words: what is said of a task's runs

    @property
    def tasks(self) -> list[str]:
        return list(dict.fromkeys(each["task"] for each in self.records))

    def methods(self, task: str | None = None) -> list[str]:
        return list(dict.fromkeys(each["method"] for each in self.records if task in (None, each["task"])))

    def of(self, task: str, method: str) -> list[Record]:
        """One for each seed."""
        return [each for each in self.records if (each["task"], each["method"]) == (task, method)]

    def figure(self, task: str, method: str, name: str | None = None) -> Spread | None:
        """A figure on test (None: the one that decides), mean and spread over seeds, in percent; None where the task does not have it."""
        values = []
        for each in self.of(task, method):
            wanted = name or each["metric"]
            if wanted == "micro_f1" and "matthews" in each["test"]:
                wanted = "accuracy"  # the same where each sample has one label
            if wanted in each["test"]:
                values.append(100 * each["test"][wanted])
        return spread(values)

    def over_seeds(self, task: str, method: str, name: str) -> Spread | None:
        """A number of the summaries."""
        return spread([each[name] for each in self.of(task, method) if each[name] is not None])

    def seconds(self, task: str, method: str) -> dict[int, float]:
        """Of training, by seed: processor seconds where there is no GPU, since other work on the machine disturbs those least."""
        return {
            each["seed"]: each["seconds" if each["machine"]["gpu"] else "cpu_seconds"]
            for each in self.of(task, method)
        }


def write_results(path: Path, results: Results) -> None:
    write_lines(path, [{"words": results.words, "study": results.study}, *results.records])


def read_results(path: Path) -> Results:
    """What `write_results` wrote."""
    try:
        head, *records = read_lines(path)
        is_study(head, WHOLE)
        for row in records:
            check_record(row)
        if not records:
            raise ValueError("it has no line of a run")
    except (OSError, ValueError) as error:
        raise UserError(
            f"{path}: no records of a study ({error}); sparring paper writes them with --save"
        ) from None
    return Results(head["study"], records, head["words"])


@contextmanager
def made_from(path: Path | None) -> Iterator[None]:
    """Name the file where its records, each of the right shape, do not make a table together: a method or a task is missing.

    None: they are of runs that were just made, and an error is one of this program."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        if path is None:
            raise
        words = f"{type(error).__name__}: {error}"
        raise UserError(
            f"{path}: no table or figure can be made of these records ({words}); --save writes them anew"
        ) from error
