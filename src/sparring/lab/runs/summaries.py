"""Summaries of runs put together: mean and spread over seeds, and comparisons of contestants."""

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypedDict

from sparring.lab.calibration import FIGURES
from sparring.lab.differences import Difference, difference, verdict
from sparring.lab.table import MISSING, Cell, Table, number, percent

Summary = dict[str, Any]
Row = dict[str, Any]


class Spread(TypedDict):
    """Values over seeds; ``std`` is None for a single one."""

    mean: float
    std: float | None
    values: list[float]


def spread(values: Sequence[float]) -> Spread | None:
    """Mean and standard deviation of values over seeds; None without values."""
    if not values:
        return None
    std = statistics.stdev(values) if len(values) > 1 else None
    return {"mean": statistics.mean(values), "std": std, "values": list(values)}


def spread_cell(values: Spread | None, form: str = "{:.2f}", scale: float = 1.0) -> Cell:
    """Mean ± standard deviation, each times ``scale`` and in a format such as ``{:.2f}`` or ``{:+.0f}%``."""
    if values is None:
        return MISSING
    text = form.format(scale * values["mean"])
    if values["std"] is not None:
        text += f" ± {form.replace('+', '').replace('%', '').format(scale * values['std'])}"
    return Cell(text, values)


def percent_cell(values: Spread | None) -> Cell:
    """Mean ± standard deviation of shares between 0 and 1, in percent."""
    return spread_cell(values, scale=100)


def row(name: str, group: Sequence[Summary], base: Mapping[int, Summary], metric: str) -> Row:
    """One contestant's runs; ``base`` holds the runs, by seed, that they are compared with."""

    def mean(value: str) -> float:
        return float(statistics.mean(summary[value] for summary in group))

    def per_planned(count: str) -> float:
        return float(statistics.mean(summary[count] / summary["n_planned"] for summary in group))

    ratios = [
        base[summary["seed"]]["seconds"] / summary["seconds"]
        for summary in group
        if summary["seed"] in base and summary["seconds"]
    ]
    correlations = [summary["correlation"] for summary in group if summary["correlation"] is not None]
    scores = {part: _scores(group, part, metric) for part in ("test", "dev")}
    part = "test" if scores["test"] else "dev"
    gap = difference(scores[part], _scores(base.values(), part, metric))
    return {
        "contestant": name,
        "seeds": [summary["seed"] for summary in group],
        "metric": metric,
        "test": spread(list(scores["test"].values())),
        "dev": spread(list(scores["dev"].values())),
        "difference": None if gap is None or group[0] in base.values() else gap._asdict(),
        "seconds": mean("seconds"),
        "faster": statistics.median(ratios) if ratios else None,
        "forwards": per_planned("n_forward"),
        "backwards": per_planned("n_backward"),
        "updates": mean("n_updates"),
        "won_share": mean("won_share"),
        "correlation": statistics.mean(correlations) if correlations else None,
        "calibration": calibration_of(group),
        "folders": [summary["folder"] for summary in group],
    }


def _scores(summaries: Iterable[Summary], part: str, metric: str) -> dict[int, float]:
    return {s["seed"]: s[part][metric] for s in summaries if metric in (s[part] or {})}


def calibration_of(group: Sequence[Summary]) -> Row | None:
    """The calibration of the runs over seeds; None if no run has it, as those of earlier versions."""
    records = [summary["calibration"] for summary in group if summary.get("calibration")]
    if not records:
        return None
    figures = {
        state: {name: spread([r[state][name] for r in records if r[state]]) for name in FIGURES}
        for state in ("before", "after")
    }
    temperatures = [record["temperature"] for record in records if record["temperature"] is not None]
    return {"split": records[0]["split"], "temperature": spread(temperatures), **figures}


# ------------------------------------------------------------ tables and verdicts

LEGEND = (
    "seconds: training alone, mean over seeds. forwards, backwards: samples, against one of each per sample "
    "and epoch. r: correlation of dev loss and metric over a run, -1 is best."
)
WON_LEGEND = "won: share of the last epoch's rows that have no strong opponent left."
CALIBRATION_LEGEND = (
    "Lower is better. Before → after scaling with the temperature T, which is fitted on dev. "
    "AURC: area under the risk-coverage curve."
)


def metric_name(line: Row) -> str:
    """The metric that decides, and the split that it is of: ``test accuracy``."""
    part = "test" if line["test"] else "dev"
    return f"{part} {line['metric'].replace('_', ' ')}"


def comparison(title: str, rows: Sequence[Row], diverged: Sequence[str] = (), *, wide: bool = False) -> Table:
    """One line for each contestant, and one for each run that diverged.

    Args:
        title: The table's title.
        rows: What `row` returns, the contestant that the others are compared with first.
        diverged: Names of runs that diverged.
        wide: All columns. The default fits 80 characters.
    """
    first = rows[0]["contestant"].split()[0]
    columns: dict[str, Callable[[Row], Cell]] = {}
    if wide:
        columns["seeds"] = lambda line: number(len(line["seeds"]), 0)
    columns[f"{metric_name(rows[0])} %"] = lambda line: percent_cell(line["test"] or line["dev"])
    if rows[0]["test"] and (wide or len(rows) == 1):
        columns["dev %"] = lambda line: percent_cell(line["dev"])
    if len(rows) > 1:
        columns[f"against {first}"] = lambda line: difference_cell(line["difference"])
    columns["seconds"] = lambda line: number(line["seconds"], 1)
    if len(rows) > 1:
        columns[f"faster than {first}" if wide else "faster"] = lambda line: number(line["faster"], unit="x")
    if wide:
        columns["forwards %"] = lambda line: percent(line["forwards"], 0)
        columns["backwards %"] = lambda line: percent(line["backwards"], 0)
        columns["updates"] = lambda line: number(line["updates"], 0)
    columns["won %"] = lambda line: percent(line["won_share"], 0)
    if wide:
        columns["r"] = lambda line: number(line["correlation"])
    cells: list[Any] = [[line["contestant"], *(cell(line) for cell in columns.values())] for line in rows]
    before = [MISSING] * int(wide)
    cells += [[name, *before, "diverged", *[MISSING] * (len(columns) - 1 - int(wide))] for name in diverged]
    note = " ".join([*_plus_minus(rows), WON_LEGEND, *([LEGEND] if wide else [])])
    return Table(title, ["", *columns], cells, [note])


def _plus_minus(rows: Sequence[Row]) -> list[str]:
    """What stands after ± in a comparison of these rows."""
    notes = []
    if any(len(line["seeds"]) > 1 for line in rows):
        notes.append("After a score, ± is the standard deviation over seeds.")
    if any(line["difference"] and line["difference"]["low"] is not None for line in rows):
        notes.append("After a difference, ± is its 95 % interval.")
    return notes


def difference_cell(gap: Row | None) -> Cell:
    """A difference in points, and half of its 95 % interval."""
    if gap is None:
        return MISSING
    half = "" if gap["low"] is None else f" ± {50 * (gap['high'] - gap['low']):.2f}"
    return Cell(f"{100 * gap['mean']:+.2f}{half}", gap)


def calibration_table(rows: Sequence[Row]) -> Table | None:
    """Calibration before and after temperature scaling; None if no contestant has it."""
    lines = [line for line in rows if line["calibration"]]
    if not lines:
        return None
    split = lines[0]["calibration"]["split"]
    cells = []
    for line in lines:
        figures = line["calibration"]
        before, after, temperature = figures["before"], figures["after"], figures["temperature"]
        changes = [change(before[name], after[name], in_percent=name == "ece") for name in FIGURES[:3]]
        temperature = None if temperature is None else temperature["mean"]
        cells.append([line["contestant"], *changes, change(before["aurc"]), number(temperature)])
    columns = ["", "ECE %", "Brier", "NLL", "AURC", "T"]
    return Table(f"Calibration on {split}", columns, cells, [CALIBRATION_LEGEND])


def change(before: Spread | None, after: Spread | None = None, *, in_percent: bool = False) -> Cell:
    """The mean before and, if there is one, after: "before → after"."""
    if before is None:
        return MISSING
    means = [values["mean"] for values in (before, after) if values is not None]
    text = " → ".join(f"{100 * mean:.1f}" if in_percent else f"{mean:.3f}" for mean in means)
    return Cell(text, {"mean": means[0], "before": before, "after": after})


def verdicts(rows: Sequence[Row]) -> list[str]:
    """A sentence for each contestant against the first; none for one contestant alone."""
    first, *others = rows
    sentences = []
    for line in others:
        gap = None if line["difference"] is None else Difference(**line["difference"])
        sentences.append(verdict(line["contestant"], first["contestant"], gap, metric_name(line)))
    if len(others) > 1:
        sentences.append(
            f"These are {len(others)} comparisons, and each is tested at the 5 % level by itself: "
            "by chance alone one in 20 would look better or worse."
        )
    return sentences
