"""A contestant's journals as rows to draw: seeds averaged, with the spread around the mean, and no more points than a page can hold."""

from __future__ import annotations

import statistics
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import Any

from sparring.lab.report.charts import bins
from sparring.lab.report.gather import Contestant
from sparring.lab.runs.records import RunFolder

Entry = dict[str, Any]
MOST_POINTS = 300  # of one line
MOST_LOOKS = 24  # at dev, in the histograms


def rounded(value: float, digits: int = 5) -> float:
    """As many digits as can be seen.

    >>> rounded(0.123456789), rounded(81234.5678)
    (0.12346, 81235.0)
    """
    return float(f"{value:.{digits}g}")


def spread(values: Sequence[float], scale: float = 1.0) -> dict[str, float]:
    """``value``, ``low``, ``high``: the mean, and a standard deviation to both sides (nothing for one value)."""
    mean, half = statistics.mean(values), statistics.stdev(values) if len(values) > 1 else 0.0
    return {
        name: rounded(scale * v) for name, v in (("value", mean), ("low", mean - half), ("high", mean + half))
    }


class Clock:
    """Where a step is in training, in epochs; an epoch in which winners rest has fewer steps than the first."""

    def __init__(self, steps: Sequence[Entry]) -> None:
        last: dict[int, int] = {}
        for entry in steps:
            last[entry["epoch"]] = entry["step"]
        starts = [0, *last.values()]
        self.span = {epoch: (starts[i], step - starts[i]) for i, (epoch, step) in enumerate(last.items())}

    def __call__(self, entry: Entry) -> float:
        start, length = self.span.get(entry["epoch"], (0, 0))
        return float(entry["epoch"] + (min(1.0, (entry["step"] - start) / length) if length > 0 else 1.0))


# ------------------------------------------------------------ steps


def steps(
    contestant: Contestant, figures: Sequence[str], points: int = MOST_POINTS
) -> dict[str, list[Entry]]:
    """A row for each bin of training with the mean of every figure in it; ``points`` bins at most."""
    runs = [run.lines("steps") for run in contestant.runs.values()]
    epochs = max((entry["epoch"] + 1 for lines in runs for entry in lines), default=1)
    n_bins = max(1, min([points, *(len(lines) for lines in runs if lines)]))
    edges = [epochs * (i + 1) / n_bins for i in range(n_bins)]
    return {name: _binned(contestant.name, runs, name, edges) for name in figures}


def _binned(name: str, runs: Sequence[Sequence[Entry]], figure: str, edges: Sequence[float]) -> list[Entry]:
    per_run = []
    for lines in runs:
        clock, sums = Clock(lines), [(0.0, 0)] * len(edges)
        for entry in lines:
            if entry.get(figure) is not None:
                i = min(bisect_left(edges, clock(entry) - 1e-9), len(edges) - 1)
                sums[i] = (sums[i][0] + entry[figure], sums[i][1] + 1)
        per_run.append([total / n if n else None for total, n in sums])
    joined = (
        (edge, [v for v in values if v is not None]) for edge, *values in zip(edges, *per_run, strict=True)
    )
    return [
        {"contestant": name, "epochs": rounded(edge), **spread(values)} for edge, values in joined if values
    ]


# ------------------------------------------------------------ evaluations and epochs


def evaluations(contestant: Contestant, figure: str, scale: float = 1.0) -> list[Entry]:
    """A row a look at dev: epochs and seconds of training before it, and the figure."""
    rows = []
    for same in _together(_with_epochs(run) for run in contestant.runs.values()):
        found = [entry for entry in same if entry.get(figure) is not None]
        if found:
            times = {
                name: rounded(statistics.mean(entry.get(name) or 0.0 for entry in found))
                for name in ("epochs", "seconds")
            }
            rows.append(
                {"contestant": contestant.name, **times, **spread([entry[figure] for entry in found], scale)}
            )
    return rows


def points(
    contestant: Contestant, metric: str, scale: float = 1.0, most: int = MOST_POINTS // 2
) -> list[Entry]:
    """``loss`` and ``figure`` at every look at dev of every seed, not averaged; evenly thinned where they are many."""
    every = [entry for run in contestant.runs.values() for entry in run.lines("evaluations")]
    known = [entry for entry in every if entry.get("loss") is not None and entry.get(metric) is not None]
    kept = known[:: max(1, -(-len(known) // most))]
    return [
        {
            "contestant": contestant.name,
            "loss": rounded(entry["loss"]),
            "figure": rounded(scale * entry[metric]),
        }
        for entry in kept
    ]


def epochs(contestant: Contestant, figure: Callable[[Entry], float]) -> list[Entry]:
    """A row an epoch."""
    together = _together(run.lines("epochs") for run in contestant.runs.values())
    return [
        {"contestant": contestant.name, "epoch": i + 1, **spread([figure(e) for e in same])}
        for i, same in enumerate(together)
    ]


def margins(contestant: Contestant, looks: Sequence[int]) -> list[Entry]:
    """The histogram of margins on dev at these looks (from 1), seeds added up. ``evaluation`` numbers them without gaps."""
    together = dict(
        enumerate(_together(run.lines("evaluations") for run in contestant.runs.values()), start=1)
    )
    rows: list[Entry] = []
    for number, look in enumerate(looks, start=1):
        histograms = [entry["margins"] for entry in together.get(look, ()) if entry.get("margins")]
        if histograms:
            counts = [sum(column) for column in zip(*histograms, strict=True)]
            rows += _without_flats(bins(counts, contestant=contestant.name, evaluation=number))
    return [{**row, "share": rounded(row["share"], 3)} for row in rows]


def _without_flats(rows: Sequence[Entry]) -> list[Entry]:
    """A 0 between two others draws nothing; the ends stay."""
    shares = [row["share"] for row in rows]
    return [row for i, row in enumerate(rows) if i in (0, len(rows) - 1) or any(shares[i - 1 : i + 2])]


def n_looks(contestant: Contestant) -> int:
    return max((len(run.lines("evaluations")) for run in contestant.runs.values()), default=0)


def chosen(looks: Sequence[int], most: int) -> list[int]:
    """Not more than ``most`` of them, the first and the last among them.

    >>> chosen([1, 2, 3, 4, 5, 6, 7], 3)
    [1, 4, 7]
    """
    if len(looks) <= most:
        return list(looks)
    return [looks[round(i * (len(looks) - 1) / (most - 1))] for i in range(most)]


def varies(rows: Iterable[Mapping[str, Any]]) -> bool:
    """Whether a contestant's value changes in training.

    >>> varies([{"contestant": "a", "value": 0.1}, {"contestant": "b", "value": 0.3}])
    False
    """
    pairs = {(row["contestant"], row["value"]) for row in rows}
    return len(pairs) > len({name for name, _ in pairs})


def _with_epochs(run: RunFolder) -> list[Entry]:
    clock = Clock(run.lines("steps"))
    return [{**entry, "epochs": clock(entry)} for entry in run.lines("evaluations")]


def _together(runs: Iterable[Sequence[Entry]]) -> list[list[Entry]]:
    """The first entries of all runs, the second ones, and so on; runs that stopped early drop out."""
    return [[entry for entry in same if entry is not None] for same in zip_longest(*runs)]
