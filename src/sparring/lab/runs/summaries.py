"""Summaries of runs put together: mean and spread over seeds, and comparisons of contestants."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypedDict

from sparring.lab.table import MISSING, Cell, Table, number, percent

LEAST_SEEDS = 3  # for a test over seeds
Summary = dict[str, Any]


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


def row(name: str, group: Sequence[Summary], base: Mapping[int, Summary], metric: str) -> dict[str, Any]:
    """One contestant's runs; ``base`` holds the runs, by seed, that its times are compared with."""

    def mean(value: str) -> float:
        return float(statistics.mean(summary[value] for summary in group))

    def per_planned(count: str) -> float:
        return float(statistics.mean(summary[count] / summary["n_planned"] for summary in group))

    def metric_on(part: str) -> Spread | None:
        return spread([summary[part][metric] for summary in group if metric in (summary[part] or {})])

    ratios = [
        base[summary["seed"]]["seconds"] / summary["seconds"]
        for summary in group
        if summary["seed"] in base and summary["seconds"]
    ]
    correlations = [summary["correlation"] for summary in group if summary["correlation"] is not None]
    return {
        "contestant": name,
        "seeds": [summary["seed"] for summary in group],
        "metric": metric,
        "test": metric_on("test"),
        "dev": metric_on("dev"),
        "seconds": mean("seconds"),
        "faster": statistics.median(ratios) if ratios else None,
        "forwards": per_planned("n_forward"),
        "backwards": per_planned("n_backward"),
        "updates": mean("n_updates"),
        "won_share": mean("won_share"),
        "correlation": statistics.mean(correlations) if correlations else None,
        "folders": [summary["folder"] for summary in group],
    }


LEGEND = (
    "seconds: training alone, mean over seeds. forwards, backwards: samples, against one of each per sample "
    "and epoch. won: share of the last epoch's rows. "
    "r: correlation of dev loss and metric over a run, -1 is best."
)


def comparison(
    title: str, rows: Sequence[dict[str, Any]], diverged: Sequence[str] = (), *, seeds: bool = False
) -> Table:
    """One line for each contestant, and one for each run that diverged.

    Args:
        title: The table's title.
        rows: What `row` returns, the contestant that the times are compared with first.
        diverged: Names of runs that diverged.
        seeds: Whether to add a column with the number of seeds.
    """
    metric = rows[0]["metric"].replace("_", " ")
    columns = ["", f"test {metric} %", "dev", "seconds", "forwards %", "backwards %", "updates", "won %", "r"]
    cells: list[Any] = [
        [
            line["contestant"],
            percent_cell(line["test"]),
            percent_cell(line["dev"]),
            number(line["seconds"], 1),
            percent(line["forwards"], 0),
            percent(line["backwards"], 0),
            number(line["updates"], 0),
            percent(line["won_share"], 0),
            number(line["correlation"]),
        ]
        for line in rows
    ]
    if len(rows) > 1:
        columns.insert(4, f"faster than {rows[0]['contestant'].split()[0]}")
        for line, entries in zip(rows, cells, strict=True):
            entries.insert(4, number(line["faster"], unit="x"))
    if seeds:
        columns.insert(1, "seeds")
        for line, entries in zip(rows, cells, strict=True):
            entries.insert(1, number(len(line["seeds"]), 0))
    cells += [[name, "diverged", *[MISSING] * (len(columns) - 2)] for name in diverged]
    return Table(title, columns, cells, [LEGEND])


class Difference(NamedTuple):
    """Of two contestants over their common seeds.

    Interval and p are None with fewer than ``LEAST_SEEDS`` seeds or if all differences are equal.
    """

    n: int
    mean: float
    low: float | None  # of the 95 % interval
    high: float | None
    p: float | None  # of a paired t-test


def difference(values: Mapping[int, float], others: Mapping[int, float]) -> Difference | None:
    """How much larger the values are than the others, by seed; None without a common seed."""
    gaps = [values[seed] - others[seed] for seed in values if seed in others]
    if not gaps:
        return None
    if len(gaps) < LEAST_SEEDS or max(gaps) - min(gaps) < 1e-12:
        return Difference(len(gaps), statistics.mean(gaps), None, None, None)
    from scipy.stats import ttest_1samp  # of the differences: the paired test

    test = ttest_1samp(gaps, 0.0)
    low, high = test.confidence_interval(0.95)
    return Difference(len(gaps), statistics.mean(gaps), float(low), float(high), float(test.pvalue))
