"""The tables of `labels.py`: accuracy, calibration and memorised labels against the noise rate."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from report import ROOT, write
from scipy import stats

from sparring.files import write_text
from sparring.lab.table import MISSING, Cell, Table, number

RESULTS = ROOT / "docs" / "results" / "labels"
BASE = "softmax"


def read(out: Path, name: str, rate: float, seeds: Sequence[int]) -> dict[int, dict[str, Any]]:
    """The finished runs of a method by seed."""
    stem = name.replace(" ", "-").replace(",", "")
    paths = {seed: out / f"run_{stem}_{rate}_{seed}.json" for seed in seeds}
    return {seed: json.loads(path.read_text()) for seed, path in paths.items() if path.exists()}


def spread(values: Sequence[float], digits: int = 2, scale: float = 100) -> Cell:
    """Mean and standard deviation."""
    if not values:
        return MISSING
    values = [scale * value for value in values]
    deviation = statistics.stdev(values) if len(values) > 1 else 0.0
    text = f"{statistics.mean(values):.{digits}f} ± {deviation:.{digits}f}"
    return Cell(text, {"mean": statistics.mean(values), "deviation": deviation, "n": len(values)})


def difference(values: Mapping[int, float], base: Mapping[int, float]) -> Cell:
    """Mean paired difference in points, its 95 % interval and p."""
    seeds = sorted(values.keys() & base.keys())
    points = [100 * (values[seed] - base[seed]) for seed in seeds]
    if len(points) < 2:
        return MISSING
    mean, error = statistics.mean(points), statistics.stdev(points) / math.sqrt(len(points))
    half = float(stats.t.ppf(0.975, len(points) - 1)) * error
    p = float(stats.ttest_1samp(points, 0).pvalue) if error else 1.0
    text = f"{mean:+.2f} ± {half:.2f}"
    return Cell(text, {"mean": mean, "interval": half, "p": p, "n": len(points)})


def table_of(rate: float, runs: Mapping[str, Mapping[int, dict[str, Any]]]) -> Table:
    """One row for each method at one noise rate."""
    columns = [
        "method", "seeds", "test accuracy %", "against softmax", "best on noisy dev %",
        "against softmax's best", "ECE %", "NLL", "wrong labels memorised %", "processor time",
    ]  # fmt: skip

    def by_seed(name: str, *keys: str) -> dict[int, float]:
        values = {}
        for seed, run in runs[name].items():
            value: Any = run
            for key in keys:
                value = value.get(key) if value is not None else None
            if value is not None:
                values[seed] = value
        return values

    rows = []
    for name in runs:
        last, best = by_seed(name, "last", "accuracy"), by_seed(name, "best", "accuracy")
        seconds, base_seconds = by_seed(name, "cpu_seconds"), by_seed(BASE, "cpu_seconds")
        common = seconds.keys() & base_seconds.keys()
        ratio = statistics.mean(seconds[s] / base_seconds[s] for s in common) if common else None
        compared = name != BASE
        rows.append(
            [
                name,
                number(len(last), 0),
                spread(list(last.values())),
                difference(last, by_seed(BASE, "last", "accuracy")) if compared else MISSING,
                spread(list(best.values())),
                difference(best, by_seed(BASE, "best", "accuracy")) if compared else MISSING,
                spread(list(by_seed(name, "last", "ece").values()), 1),
                spread(list(by_seed(name, "last", "nll").values()), 2, 1),
                spread(list(by_seed(name, "memorised").values()), 1),
                number(ratio),
            ]
        )
    title = f"{100 * rate:.0f} % of the labels wrong" if rate else "Clean labels"
    return Table(title, columns, rows)


def show(
    out: Path,
    methods: Mapping[str, dict[str, Any]],
    rates: Sequence[float],
    seeds: Sequence[int],
    about: dict[str, Any],
) -> None:
    """Print the tables, and write them to docs/results/labels."""
    tables = []
    for rate in sorted(rates):
        runs = {name: read(out, name, rate, seeds) for name in methods}
        runs = {name: by_seed for name, by_seed in runs.items() if by_seed}
        if BASE in runs:
            tables.append(table_of(rate, runs))
    for table in tables:
        table.print()
    settings = {name: {**setting} for name, setting in methods.items()}
    report = {**about, "settings": settings, "tables": [table.json() for table in tables]}
    report["seed"] = list(seeds)
    write(report, RESULTS / "accuracy.json")
    write_text(RESULTS / "accuracy.md", "\n".join(table.markdown() for table in tables))
