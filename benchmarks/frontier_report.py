"""What the runs of the frontier benchmark come to: a table and a chart for each task."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import altair as alt
from frontier_tasks import METHODS
from labels_report import difference, spread
from report import write

from sparring.files import atomic_write, write_text
from sparring.lab.table import MISSING, Table, number

BASE = "softmax"
COLUMNS = (
    "budget", "method", "seeds", "test %", "against softmax", "dev %", "ECE %", "NLL", "worst class %",
    "epochs", "processor time",
)  # fmt: skip
Runs = dict[tuple[str, float], dict[int, dict[str, Any]]]


def read(folder: Path, budgets: Sequence[float], methods: Sequence[str]) -> Runs:
    """The finished runs, by method and budget, then by seed."""
    runs: Runs = {}
    for name in methods:
        for budget in budgets:
            paths = folder.glob(f"run_{name}_{budget:g}_*.json")
            by_seed = {int(path.stem.rsplit("_", 1)[1]): json.loads(path.read_text()) for path in paths}
            if by_seed:
                runs[name, budget] = dict(sorted(by_seed.items()))
    return runs


def values(runs: dict[int, dict[str, Any]], *keys: str) -> dict[int, float]:
    """A figure by seed; seeds without it are left out."""
    result = {}
    for seed, run in runs.items():
        value: Any = run
        for key in keys:
            value = None if value is None else value.get(key)
        if value is not None:
            result[seed] = value
    return result


def table_of(task: str, runs: Runs, budgets: Sequence[float]) -> Table:
    rows = []
    methods = dict.fromkeys(name for name, _ in runs)
    full = values(runs[BASE, max(budgets)], "cpu_seconds") if (BASE, max(budgets)) in runs else {}
    for budget in budgets:
        for name in methods:
            if (name, budget) not in runs:
                continue
            group, base = runs[name, budget], runs.get((BASE, budget), {})
            test = values(group, "test", "metric")
            seconds = values(group, "cpu_seconds")
            common = seconds.keys() & full.keys()
            ratio = statistics.mean(seconds[s] / full[s] for s in common) if common else None
            rows.append(
                [
                    number(budget),
                    name,
                    number(len(group), 0),
                    spread(list(test.values())),
                    MISSING if name == BASE else difference(test, values(base, "test", "metric")),
                    spread(list(values(group, "dev", "metric").values())),
                    spread(list(values(group, "test", "ece").values()), 1),
                    spread(list(values(group, "test", "nll").values()), 3, 1),
                    spread(list(values(group, "test", "worst_class").values()), 1),
                    number(statistics.mean(run["epochs"] for run in group.values()), 1),
                    number(ratio),
                ]
            )
    return Table(f"{task}: equal budgets, in epochs of softmax", COLUMNS, rows)


def chart(task: str, runs: Runs, path: Path) -> None:
    """Test quality against processor time, a line for each method."""
    full = max(budget for name, budget in runs if name == BASE)
    base = statistics.mean(values(runs[BASE, full], "cpu_seconds").values())
    points = [
        {
            "method": name,
            "time": statistics.mean(values(group, "cpu_seconds").values()) / base,
            "test": 100 * statistics.mean(values(group, "test", "metric").values()),
        }
        for (name, _), group in runs.items()
    ]
    picture = (
        alt.Chart(alt.Data(values=points), title=f"{task}: quality against compute")
        .mark_line(point=True)
        .encode(
            x=alt.X(
                "time:Q",
                title="processor time, softmax at the largest budget = 1",
                scale=alt.Scale(type="log"),
            ),
            y=alt.Y("test:Q", title="test %", scale=alt.Scale(zero=False)),
            color=alt.Color("method:N", title=None, sort=list(dict.fromkeys(name for name, _ in runs))),
            order="time:Q",
        )
        .properties(width=520, height=340)
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as part:
        picture.save(str(part), format=path.suffix[1:])


def show(
    folder: Path,
    task: str,
    budgets: Sequence[float],
    about: dict[str, Any],
    results: Path | None,
    methods: Sequence[str] = tuple(METHODS),
) -> None:
    """Print the table of a task, and write it with its JSON and chart to ``results``, if that is given."""
    runs = read(folder, budgets, methods)
    if not runs:
        print(f"{task}: no finished run in {folder}")
        return
    table = table_of(task, runs, budgets)
    table.print()
    if results is None:
        return
    write({**about, "table": table.json()}, results / f"{task}.json")
    write_text(results / f"{task}.md", table.markdown())
    chart(task, runs, results / f"{task}.svg")
