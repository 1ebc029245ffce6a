"""The page of results: what the records of studies come to, in words and tables. No number on it is typed by hand."""

from __future__ import annotations

import os
import statistics
from collections.abc import Sequence
from pathlib import Path

from sparring.lab.datasets import UserError
from sparring.lab.paper import claims
from sparring.lab.paper.results import Results, made_from, read_results
from sparring.lab.paper.studies import STUDIES
from sparring.lab.runs.records import write
from sparring.lab.runs.summaries import LEAST_SEEDS, difference


def make(records: Path, page: Path) -> None:
    """From a folder of records, which --save wrote, to the page; pictures that lie beside the records are shown."""
    paths = {path.stem.replace("_", " "): path for path in sorted(records.glob("*.jsonl"))}
    found = [(name, read_results(paths[name])) for name in STUDIES if name in paths]
    if not found:
        raise UserError(
            f"{records}: no records of studies; sparring paper TABLE --save {records} writes them"
        )
    parts = [head(records, page)]
    with made_from(records):
        parts.append(verdicts([results for _, results in found]))
    for name, results in found:
        with made_from(paths[name]):
            parts.append(section(name, results, records, page))
    write(page, "\n".join(parts))


def head(records: Path, page: Path) -> str:
    report = records / "report.html"
    shown = (
        f" [The same runs to look at]({os.path.relpath(report, page.parent)}), one page for a browser."
        if report.exists()
        else ""
    )
    return f"""# The papers, rerun

Made by `sparring paper page --records {records} --save …` from the records beside it; each table names what was run. Where that is
smaller than the papers' BERT-base with all the data, it is differences between methods that can be compared, not their
level. `sparring paper TABLE --scale full` is the papers' own setting.{shown}"""


def verdicts(results: Sequence[Results]) -> str:
    found = [finding for each in results for finding in claims.findings(each)]
    if not found:
        return ""
    n, counts = len(found), claims.tally(found)
    seeds = max(
        len(each.of(task, method)) for each in results for task in each.tasks for method in each.methods(task)
    )
    return f"""
## What reproduced

Of {n} claims held against our runs, {counts[claims.YES]} reproduced, {counts[claims.NO]} did not, and of {counts[claims.OPEN]} nothing
can be said: the difference is not larger than what {seeds} seeds let vary (paired t-test, p > {claims.LEVEL}). A 95 % interval says which
differences the runs leave possible: what lies outside of it can be ruled out, what lies inside cannot. {_spread(results)}

{claims.markdown(found)}{over_tasks(results)}"""


def over_tasks(results: Sequence[Results]) -> str:
    """Each method against softmax, a task a point: what is left where tasks, not seeds, are what varies."""
    quality = next(
        (each for each in results if each.study == "table2" and len(each.tasks) >= LEAST_SEEDS), None
    )
    if quality is None:
        return ""
    rows = [
        ("against softmax", "tasks", "mean difference in points", "95 %", "ahead on"),
        ("---", *("---:",) * 4),
    ]
    for method in quality.methods():
        found: dict[int, tuple[float, float]] = {}
        for i, task in enumerate(quality.tasks):
            ours, base = quality.figure(task, method), quality.figure(task, "Softmax")
            if method != "Softmax" and ours and base:
                found[i] = ours["mean"], base["mean"]
        gap = difference(
            {i: ours for i, (ours, _) in found.items()}, {i: base for i, (_, base) in found.items()}
        )
        if gap is None:
            continue
        between = "–" if gap.low is None else f"{gap.low:+.2f} to {gap.high:+.2f}"
        ahead = sum(ours > base for ours, base in found.values())
        rows.append((method, str(gap.n), f"{gap.mean:+.2f}", between, f"{ahead} of {gap.n}"))
    lines = "".join(f"| {' | '.join(row)} |\n" for row in rows)
    return f"\nOver all tasks, with the mean over seeds of each (a figure's own scale differs from task to task):\n\n{lines}"


def _spread(results: Sequence[Results]) -> str:
    """How far seeds alone move a figure, and methods."""
    for each in results:
        if each.study == "table2":
            words = []
            for task in each.tasks:
                figures = [each.figure(task, method) for method in each.methods(task)]
                stds = [f["std"] for f in figures if f and f["std"] is not None]
                means = [f["mean"] for f in figures if f]
                if stds:
                    words.append(f"{task} {statistics.mean(stds):.2f} ({min(means):.1f} to {max(means):.1f})")
            if words:
                return f"Points that seeds alone move a method by, and the range of all methods in percent: {', '.join(words)}."
    return ""


def section(name: str, results: Results, records: Path, page: Path) -> str:
    study, prefix = STUDIES[name], f"{name.replace(' ', '_')}_"
    pictures = [
        f"![{name}, {path.stem.removeprefix(prefix)}]({os.path.relpath(path, page.parent)})\n"
        for path in sorted(records.glob(f"{prefix}*.svg"))
    ]
    sheets = [sheet.markdown() for sheet in study.sheets(results)]
    return "\n".join([f"\n## {name}: {study.about}\n", *sheets, *pictures])
