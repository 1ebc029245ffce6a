"""Records of a study: of each run the summary and thinned curves, small enough to be committed."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sparring.lab.errors import UserError
from sparring.lab.paper.methods import SOFTMAX, Method, method_named
from sparring.lab.runs.config import IDENTITY
from sparring.lab.runs.records import RunFolder, read_lines, write_lines
from sparring.lab.runs.schema import N_BINS, WHOLE, check_record, is_study
from sparring.lab.runs.summaries import Spread, spread

CURVES = ("steps", "evaluations", "margins")  # over training, on dev, on test
POINTS = 60  # of a curve over training
TWO_METRICS = {"eurlex": ("macro_f1", "micro_f1"), "wos": ("macro_f1", "micro_f1")}
Record = dict[str, Any]


def record(folder: RunFolder, study: str, method: str, curves: Sequence[str] = CURVES) -> Record:
    """The record of a finished run by the method's name in a study, with the curves that the study needs."""
    summary = folder.summary()
    return {
        "study": study,
        "method": method,
        "run": folder.name,
        **{name: value for name, value in summary.items() if name not in ("folder", "config", "checksums")},
        "config": {name: summary["config"].get(name) for name in IDENTITY},  # without the run's folder
        "machine": folder.read("machine"),
        "n_test": folder.read("data")["sizes"]["test"],
        **{name: _curve(folder, name, summary["metric"]) for name in curves},
    }


def _curve(folder: RunFolder, name: str, metric: str) -> list[Any]:
    if name == "steps":
        return _thinned(folder.lines("steps"), ("step", "loss", "won_share"))
    if name == "evaluations":
        lines = folder.lines("evaluations")
        return [{"step": line["step"], "loss": line["loss"], "value": line[metric]} for line in lines]
    margins = [line.get("margin") for line in folder.lines("predictions")]
    return histogram([margin for margin in margins if margin is not None])


def _thinned(lines: Sequence[dict[str, Any]], names: Sequence[str]) -> list[dict[str, float]]:
    """At most ``POINTS`` lines, each the mean of its neighbours, rounded to five digits."""
    size = max(1, -(-len(lines) // POINTS))
    points = []
    for start in range(0, len(lines), size):
        group = [line for line in lines[start : start + size] if None not in (line[name] for name in names)]
        if group:  # a run that diverged has null
            points.append({name: float(f"{statistics.mean(x[name] for x in group):.5g}") for name in names})
    return points


def histogram(values: Sequence[float]) -> list[int]:
    """Counts of margins, in ``N_BINS`` bins from -1 to 1."""
    counts = [0] * N_BINS
    for value in values:
        counts[min(N_BINS - 1, max(0, int((value + 1) / 2 * N_BINS)))] += 1
    return counts


class Results:
    """The records of one study, one for each run; ``descriptions`` say what was run, by task."""

    def __init__(self, study: str, records: Sequence[Record], descriptions: dict[str, str]) -> None:
        self.study = study
        self.records = list(records)
        self.descriptions = descriptions

    @property
    def tasks(self) -> list[str]:
        return list(dict.fromkeys(record["task"] for record in self.records))

    @property
    def forms(self) -> list[str]:
        """The variants of the settings, read off the names of the softmax runs."""
        names = dict.fromkeys(record["method"] for record in self.records)
        return [
            name.removeprefix(SOFTMAX.name).removeprefix(", ")
            for name in names
            if name == SOFTMAX.name or name.startswith(f"{SOFTMAX.name}, ")
        ]

    def methods(self, task: str | None = None, form: str = "") -> list[Method]:
        """The methods in the order of their records; with a form, those that were run in it."""
        names = dict.fromkeys(record["method"] for record in self.records if task in (None, record["task"]))
        ending = f", {form}" if form else ""
        return [method_named(name.removesuffix(ending)) for name in names if name.endswith(ending)]

    def of(self, task: str, method: Method, form: str = "") -> list[Record]:
        """One record for each seed."""
        key = (task, method.printed(form))
        return [record for record in self.records if (record["task"], record["method"]) == key]

    def metric(self, task: str) -> str:
        """The metric that decides."""
        metrics = [record["metric"] for record in self.records if record["task"] == task]
        return str(metrics[0])

    def metrics(self, task: str) -> Sequence[str]:
        """The metrics that the papers' tables have of a task."""
        return TWO_METRICS.get(task) or (self.metric(task),)

    def by_seed(self, task: str, method: Method, metric: str, form: str = "") -> dict[int, float]:
        """A metric on test in percent, by seed; empty if the task does not have it."""
        scores = {}
        for record in self.of(task, method, form):
            test, name = record["test"], metric
            if metric == "micro_f1" and "matthews" in test:
                name = "accuracy"  # the same where each sample has one label
            if name in test:
                scores[record["seed"]] = 100 * test[name]
        return scores

    def score(self, task: str, method: Method, metric: str | None = None, form: str = "") -> Spread | None:
        """A metric on test in percent over seeds; by default the one that decides."""
        return spread(list(self.by_seed(task, method, metric or self.metric(task), form).values()))

    def correlations(self, task: str, method: Method) -> dict[int, float]:
        """Of loss and metric on dev, by seed."""
        correlations = {record["seed"]: record["correlation"] for record in self.of(task, method)}
        return {seed: value for seed, value in correlations.items() if value is not None}

    def seconds(self, task: str, method: Method, form: str = "") -> dict[int, float]:
        """Seconds of training by seed; without a GPU processor seconds, which other work disturbs less."""
        return {
            record["seed"]: record["seconds" if record["machine"]["gpu"] else "cpu_seconds"]
            for record in self.of(task, method, form)
        }

    def n_seeds(self) -> list[int]:
        """The numbers of seeds of all methods, sorted."""
        return sorted({len(self.of(task, method)) for task in self.tasks for method in self.methods(task)})


def write_results(path: Path, results: Results) -> None:
    write_lines(path, [{"words": results.descriptions, "study": results.study}, *results.records])


def read_results(path: Path) -> Results:
    """Read what `write_results` wrote. Raises UserError for anything else."""
    try:
        head, *records = read_lines(path)
        is_study(head, WHOLE)
        for row in records:
            check_record(row)
        if not records:
            raise ValueError("it has no line of a run")
    except (OSError, ValueError) as error:
        message = f"{path}: no records of a study ({error}); sparring paper writes them with --save"
        raise UserError(message) from None
    return Results(head["study"], records, head["words"])


@contextmanager
def errors_name(path: Path | None) -> Iterator[None]:
    """Raise UserError with the file's name where valid records make no table: a method or a task is missing.

    ``path`` is None for runs that were just made: an error is then a bug and passes through.
    """
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        if path is None:
            raise
        cause = f"{type(error).__name__}: {error}"
        message = (
            f"{path}: no table or figure can be made of these records ({cause}); --save writes them anew"
        )
        raise UserError(message) from error
