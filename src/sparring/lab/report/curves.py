"""A contestant's journals as rows to draw: averaged over seeds, with a band around the mean, and thinned."""

from __future__ import annotations

import statistics
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import Any

from sparring.lab.report.charts import bins
from sparring.lab.report.gather import Contestant, Section
from sparring.lab.runs.summaries import spread

Line = dict[str, Any]
MOST_POINTS = 300  # of one curve
MOST_HISTOGRAMS = 24  # of one contestant
LEAST_ROWS = 10  # of a bin in a reliability diagram


def rounded(value: float, digits: int = 5) -> float:
    """As many digits as can be seen.

    >>> rounded(0.123456789), rounded(81234.5678)
    (0.12346, 81235.0)
    """
    return float(f"{value:.{digits}g}")


def band(values: Sequence[float], scale: float = 1.0) -> dict[str, float]:
    """The mean as ``value``, and a standard deviation to both sides as ``low`` and ``high``."""
    over_seeds = spread(values)
    assert over_seeds is not None
    mean, half = over_seeds["mean"], over_seeds["std"] or 0.0
    edges = {"value": mean, "low": mean - half, "high": mean + half}
    return {name: rounded(scale * edge) for name, edge in edges.items()}


class Clock:
    """Converts steps to epochs. An epoch in which samples rest has fewer steps than the first."""

    def __init__(self, steps: Sequence[Line]) -> None:
        last = {line["epoch"]: line["step"] for line in steps}
        starts = [0, *last.values()]
        self.span = {epoch: (starts[i], step - starts[i]) for i, (epoch, step) in enumerate(last.items())}

    def __call__(self, line: Line) -> float:
        start, length = self.span.get(line["epoch"], (0, 0))
        return float(line["epoch"] + (min(1.0, (line["step"] - start) / length) if length > 0 else 1.0))


def steps(contestant: Contestant, names: Sequence[str], points: int = MOST_POINTS) -> dict[str, list[Line]]:
    """By name: the mean of a value of the steps in each of at most ``points`` bins of training."""
    runs = [run.lines("steps") for run in contestant.runs.values()]
    n_epochs = max((line["epoch"] + 1 for lines in runs for line in lines), default=1)
    n_bins = max(1, min([points, *(len(lines) for lines in runs if lines)]))
    edges = [n_epochs * (i + 1) / n_bins for i in range(n_bins)]
    return {name: _binned(contestant.name, runs, name, edges) for name in names}


def _binned(contestant: str, runs: Sequence[Sequence[Line]], name: str, edges: Sequence[float]) -> list[Line]:
    means: list[list[float]] = [[] for _ in edges]  # of the runs, by bin
    for lines in runs:
        clock = Clock(lines)
        values: list[list[float]] = [[] for _ in edges]
        for line in lines:
            if line.get(name) is not None:
                i = min(bisect_left(edges, clock(line) - 1e-9), len(edges) - 1)
                values[i].append(line[name])
        for i, in_bin in enumerate(values):
            means[i] += [sum(in_bin) / len(in_bin)] if in_bin else []
    return [
        {"contestant": contestant, "epochs": rounded(edge), **band(values)}
        for edge, values in zip(edges, means, strict=True)
        if values
    ]


def evaluations(contestant: Contestant, name: str, scale: float = 1.0) -> list[Line]:
    """For each evaluation on dev: epochs and seconds of training before it, and a value of it."""
    runs = []
    for run in contestant.runs.values():
        clock = Clock(run.lines("steps"))
        runs.append([{**line, "epochs": clock(line)} for line in run.lines("evaluations")])
    rows = []
    for lines in _transposed(runs):
        lines = [line for line in lines if line.get(name) is not None]
        if lines:
            epochs, seconds = (
                statistics.mean(x.get(time) or 0.0 for x in lines) for time in ("epochs", "seconds")
            )
            times = {"epochs": rounded(epochs), "seconds": rounded(seconds)}
            values = band([line[name] for line in lines], scale)
            rows.append({"contestant": contestant.name, **times, **values})
    return rows


def points(contestant: Contestant, metric: str, most: int = MOST_POINTS // 2) -> list[Line]:
    """Loss and metric in percent of every evaluation of every seed, thinned to at most ``most``."""
    lines = [line for run in contestant.runs.values() for line in run.lines("evaluations")]
    lines = [line for line in lines if line.get("loss") is not None and line.get(metric) is not None]
    return [
        {"contestant": contestant.name, "loss": rounded(line["loss"]), "figure": rounded(100 * line[metric])}
        for line in lines[:: max(1, -(-len(lines) // most))]
    ]


def epochs(contestant: Contestant, value: Callable[[Line], float]) -> list[Line]:
    """A value of each epoch."""
    by_epoch = _transposed(run.lines("epochs") for run in contestant.runs.values())
    return [
        {"contestant": contestant.name, "epoch": i, **band([value(line) for line in lines])}
        for i, lines in enumerate(by_epoch, start=1)
    ]


def margins(contestant: Contestant, indices: Sequence[int]) -> list[Line]:
    """Histograms of margins on dev at the evaluations with these indices, seeds added up.

    ``evaluation`` numbers them from 1 without gaps.
    """
    by_evaluation = _transposed(run.lines("evaluations") for run in contestant.runs.values())
    rows: list[Line] = []
    for number, index in enumerate(indices, start=1):
        lines = by_evaluation[index] if index < len(by_evaluation) else []
        histograms = [line["margins"] for line in lines if line.get("margins")]
        if histograms:
            counts = [sum(column) for column in zip(*histograms, strict=True)]
            rows += _without_flats(bins(counts, contestant=contestant.name, evaluation=number))
    return [{**row, "share": rounded(row["share"], 3)} for row in rows]


def _without_flats(rows: Sequence[Line]) -> list[Line]:
    """Without each 0 between two others, which draws nothing; the ends stay."""
    shares = [row["share"] for row in rows]
    return [row for i, row in enumerate(rows) if i in (0, len(rows) - 1) or any(shares[i - 1 : i + 2])]


def reliability(section: Section) -> list[Line]:
    """Points of a reliability diagram, before and after temperature scaling, seeds added up."""
    rows: list[Line] = []
    for state, words in (("before", "as they are"), ("after", "after temperature scaling")):
        for contestant in section.contestants:
            records = [summary.get("calibration") or {} for summary in contestant.summaries.values()]
            tables = [record[state]["bins"] for record in records if record.get(state)]
            for bins_of_seeds in zip(*tables, strict=True):
                n = sum(count for count, _, _ in bins_of_seeds)
                if n < LEAST_ROWS:
                    continue
                confidence, accuracy = (
                    sum(entry[0] * entry[i] for entry in bins_of_seeds) / n for i in (1, 2)
                )
                values = {"confidence": rounded(confidence), "accuracy": rounded(accuracy), "rows": n}
                rows.append({"contestant": contestant.name, "probabilities": words, **values})
    return rows


def n_evaluations(contestant: Contestant) -> int:
    return max((len(run.lines("evaluations")) for run in contestant.runs.values()), default=0)


def thinned(n: int, most: int) -> list[int]:
    """At most ``most`` indices below ``n``, the first and the last among them.

    >>> thinned(7, 3)
    [0, 3, 6]
    """
    return list(range(n)) if n <= most else [round(i * (n - 1) / (most - 1)) for i in range(most)]


def varies(rows: Iterable[Mapping[str, Any]]) -> bool:
    """Whether a contestant's value changes in training.

    >>> varies([{"contestant": "a", "value": 0.1}, {"contestant": "b", "value": 0.3}])
    False
    """
    pairs = {(row["contestant"], row["value"]) for row in rows}
    return len(pairs) > len({name for name, _ in pairs})


def _transposed(runs: Iterable[Sequence[Line]]) -> list[list[Line]]:
    """The first lines of all runs, the second ones, and so on; runs that stopped early drop out."""
    return [[line for line in lines if line is not None] for lines in zip_longest(*runs)]
