"""What the runs of the frontier benchmark come to: tables and a chart for each task, and two over all."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import altair as alt
from frontier_tasks import FORMS, METHODS
from labels_report import difference, spread
from report import write
from rivals import RIVALS
from scipy import stats

from sparring.files import atomic_write, write_text
from sparring.lab.differences import detectable
from sparring.lab.table import MISSING, Cell, Table, number

BASE, OURS = "softmax", "fast"
AS_LONG = {"softmax": "fast, as long", "AS-Softmax": "fast AS, as long"}  # by loss
COLUMNS = (
    "budget", "method", "seeds", "test %", "against softmax", "dev %", "ECE %", "NLL", "worst class %",
    "epochs", "processor time", "clock",
)  # fmt: skip
Runs = dict[tuple[str, float], dict[int, dict[str, Any]]]


def read(folder: Path, budgets: Sequence[float], methods: Sequence[str], what: str = "run") -> Runs:
    """The finished runs, by method and budget, then by seed."""
    runs: Runs = {}
    for name in methods:
        for budget in budgets:
            paths = folder.glob(f"{what}_{name}_{budget:g}_*.json")
            by_seed = {int(path.stem.rsplit("_", 1)[1]): json.loads(path.read_text()) for path in paths}
            if by_seed:
                runs[name, budget] = dict(sorted(by_seed.items()))
    return runs


def values(runs: Mapping[int, dict[str, Any]], *keys: str) -> dict[int, float]:
    """A figure by seed; seeds without it are left out."""
    result = {}
    for seed, run in runs.items():
        value: Any = run
        for key in keys:
            value = None if value is None else value.get(key)
        if value is not None:
            result[seed] = value
    return result


def ratio(
    group: Mapping[int, dict[str, Any]], base: Mapping[int, dict[str, Any]], clock: str = "cpu_seconds"
) -> float | None:
    """Processor time, or time by the clock, over that of other runs with the same seeds."""
    seconds, other = values(group, clock), values(base, clock)
    common = seconds.keys() & other.keys()
    return statistics.mean(seconds[seed] / other[seed] for seed in common) if common else None


def table_of(task: str, runs: Runs, budgets: Sequence[float]) -> Table:
    """All runs of a task."""
    rows = []
    methods = dict.fromkeys(name for name, _ in runs)
    full = runs.get((BASE, max((b for name, b in runs if name == BASE), default=0.0)), {})
    for budget in budgets:
        for name in methods:
            if (name, budget) not in runs:
                continue
            group, base = runs[name, budget], runs.get((BASE, budget), {})
            test = values(group, "test", "metric")
            rows.append(
                [
                    number(budget, 1),
                    name,
                    number(len(group), 0),
                    spread(list(test.values())),
                    MISSING if name == BASE else difference(test, values(base, "test", "metric")),
                    spread(list(values(group, "dev", "metric").values())),
                    spread(list(values(group, "test", "ece").values()), 1),
                    spread(list(values(group, "test", "nll").values()), 3, 1),
                    spread(list(values(group, "test", "worst_class").values()), 1),
                    number(statistics.mean(run["epochs"] for run in group.values()), 1),
                    number(ratio(group, full)),
                    number(ratio(group, full, "seconds")),
                ]
            )
    notes = ["Times: softmax at the largest budget = 1. By the clock other work on the machine counts, too."]
    return Table(f"{task}: equal budgets, in epochs of softmax", COLUMNS, rows, notes)


def forms_of(task: str, runs: Runs) -> Table:
    """The forms of the preset that were compared on dev."""
    rows = []
    for (name, budget), group in runs.items():
        base, dev = runs.get((BASE, budget), {}), values(group, "dev", "metric")
        rows.append(
            [
                name,
                number(len(group), 0),
                spread(list(dev.values())),
                MISSING if name == BASE else difference(dev, values(base, "dev", "metric")),
                spread(list(values(group, "dev", "ece").values()), 1),
                spread(list(values(group, "dev", "nll").values()), 3, 1),
                number(ratio(group, base)),
            ]
        )
    columns = ("form", "seeds", "dev %", "against softmax", "ECE %", "NLL", "processor time")
    return Table(f"{task}: forms of the preset, trained as many epochs as softmax", columns, rows)


def smallest_visible(cell: Cell) -> Cell:
    """The smallest true difference that these runs would have shown, four times in five, at the 5 % level."""
    if cell.value is None:
        return MISSING
    n = cell.value["n"]
    error = cell.value["interval"] / float(stats.t.ppf(0.975, n - 1))
    return number(detectable(error, n))


def change(group: Mapping[int, dict[str, Any]], base: Mapping[int, dict[str, Any]], key: str) -> Cell:
    """A figure of softmax and of ours on test: "before → after"."""
    before, after = values(base, "test", key), values(group, "test", key)
    common = sorted(before.keys() & after.keys())
    if not common:
        return MISSING
    scale, digits = (100, 1) if key == "ece" else (1, 3)
    pair = [scale * statistics.mean(by_seed[seed] for seed in common) for by_seed in (before, after)]
    return Cell(f"{pair[0]:.{digits}f} → {pair[1]:.{digits}f}", pair)


def trained_as_long(tasks: Mapping[str, Runs], loss: str) -> Table:
    """The preset with a loss against softmax with as many epochs, over all tasks."""
    method = AS_LONG[loss]
    columns = (
        "task", "epochs", "seeds", "softmax %", "fast against it", "would show", "processor time",
        "ECE %", "NLL", "softmax of that cost against it",
    )  # fmt: skip
    rows, means = [], []
    for task, runs in tasks.items():
        budget = max((b for name, b in runs if name == method), default=math.nan)
        group, base = runs.get((method, budget), {}), runs.get((BASE, budget), {})
        if not group or not base:
            continue
        test, softmax = values(group, "test", "metric"), values(base, "test", "metric")
        cell, time = difference(test, softmax), ratio(group, base)
        means.append(statistics.mean(100 * (test[seed] - softmax[seed]) for seed in test if seed in softmax))
        shorter = [b for name, b in runs if name == BASE and time is not None and b >= 0.9 * time * budget]
        control = values(runs[BASE, min(shorter)], "test", "metric") if shorter else {}
        is_control = bool(shorter) and min(shorter) < budget
        rows.append(
            [
                task,
                number(budget, 0),
                number(len(test), 0),
                spread(list(softmax.values())),
                cell,
                smallest_visible(cell),
                number(time),
                change(group, base, "ece"),
                change(group, base, "nll"),
                difference(control, softmax) if is_control else MISSING,
            ]
        )
    notes = []
    if means:
        notes = [f"Mean difference over {len(means)} tasks: {statistics.mean(means):+.2f} points."]
    notes.append(
        "would show: the smallest true difference that these seeds find four times in five (p < 0.05)."
        " The last column: plain softmax with fewer epochs, the least that cost as much as fast or more."
    )
    return Table(f"The preset fast with {loss}, trained as many epochs as softmax", columns, rows, notes)


def against_rivals(tasks: Mapping[str, Runs], budget: float) -> Table:
    """The preset against every rival at one budget: mean difference in points, and p.

    Softmax with the same budget is the rival with fewer epochs.
    """
    rivals = [BASE, *RIVALS]
    rows = []
    for task, runs in tasks.items():
        ours = values(runs.get((OURS, budget), {}), "test", "metric")
        cells = []
        for name in rivals:
            cell = difference(ours, values(runs.get((name, budget), {}), "test", "metric"))
            if cell.value is not None:
                cell = cell._replace(text=f"{cell.text} (p {cell.value['p']:.2g})")
            cells.append(cell)
        if any(cell.value is not None for cell in cells):
            rows.append([task, *cells])
    ahead = [
        row[0]
        for row in rows
        if all(
            cell.value["mean"] > 0 and cell.value["p"] < 0.05 for cell in row[1:] if cell.value is not None
        )
    ]
    note = (
        f"Ahead of every one of them with p < 0.05 (paired over seeds): {', '.join(ahead) or 'on no task'}."
    )
    title = f"fast minus a rival, both at the cost of {budget:g} epochs of softmax: points on test"
    return Table(title, ["task", *rivals], rows, [note])


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
) -> Runs:
    """Print the table of a task, and write it with its JSON and chart to ``results``, if that is given."""
    runs = read(folder, budgets, methods)
    if not runs:
        print(f"{task}: no finished run in {folder}")
        return runs
    tables = [table_of(task, runs, budgets)]
    if forms := read(folder, budgets, (BASE, *FORMS), "choose"):
        tables.append(forms_of(task, forms))
    for table in tables:
        table.print()
    if results is not None:
        kept = {path.stem: json.loads(path.read_text()) for path in sorted(folder.glob("*_*.json"))}
        write({**about, "runs": kept, "table": tables[0].json()}, results / f"{task}.json")
        write_text(results / f"{task}.md", "\n".join(table.markdown() for table in tables))
        chart(task, runs, results / f"{task}.svg")
    return runs


def show_all(tasks: Mapping[str, Runs], results: Path | None) -> None:
    """Print what all tasks come to, and write it to ``results``, if that is given."""
    tables = [trained_as_long(tasks, loss) for loss in AS_LONG]
    tables += [against_rivals(tasks, 2.0), against_rivals(tasks, 4.0)]
    tables = [table for table in tables if table.rows]
    for table in tables:
        table.print()
    if results is not None:
        write_text(results / "summary.md", "\n".join(table.markdown() for table in tables))


def restore(results: Path, task: str, folder: Path, settings: dict[str, Any]) -> int:
    """Write the runs of a committed result back to a folder, if they were made with the same settings.

    Returns:
        The number of runs written. Runs that are in the folder stay as they are.
    """
    path = results / f"{task}.json"
    if not path.exists():
        return 0
    report = json.loads(path.read_text())
    made_with, now = report["settings"], json.loads(json.dumps(settings))
    if any(made_with.get(name) != now[name] for name in now.keys() - {"n_seeds", "plan", "lr"}):
        return 0
    folder.mkdir(parents=True, exist_ok=True)
    missing = {stem: run for stem, run in report["runs"].items() if not (folder / f"{stem}.json").exists()}
    for stem, run in missing.items():
        write(run, folder / f"{stem}.json")
    if not (folder / "cost.json").exists():
        write({"forward_share": report["forward_share"]}, folder / "cost.json")
    return len(missing)
