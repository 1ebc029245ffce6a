"""The tables of `suspects.py`: average precision and cost of each score."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from label_noise import NOISES
from labels_report import RESULTS
from report import write

from sparring.files import write_text
from sparring.lab.table import MISSING, Cell, Table, number

ANCHOR = ("cleanlab, five folds", "self_confidence")
HIDDEN = {("softmax", "conceded"), ("AS-Softmax 0.3", "conceded")}  # these losses concede nothing


def read(out: Path, task: str, noise: str, rate: float, n_seeds: int) -> list[dict[str, Any]]:
    paths = [out / f"{task}_{noise}_{rate}_{seed}.json" for seed in range(n_seeds)]
    return [json.loads(path.read_text())["scores"] for path in paths if path.exists()]


def table_of(out: Path, tasks: Sequence[str], noise: str, rate: float, n_seeds: int) -> Table | None:
    """One row for each loss and score, one column for each task."""
    results = {task: read(out, task, noise, rate, n_seeds) for task in tasks}
    results = {task: runs for task, runs in results.items() if runs}
    if not results:
        return None
    pairs = [
        (loss, score)
        for loss, entry in next(iter(results.values()))[0].items()
        for score in entry
        if score != "seconds" and (loss, score) not in HIDDEN
    ]
    rows = []
    for loss, score in pairs:
        cells: list[Cell] = []
        for runs in results.values():
            entries = [run[loss][score] for run in runs]
            ap, precision = (
                statistics.mean(e[name] for e in entries) for name in ("average_precision", "precision")
            )
            cells.append(Cell(f"{ap:.3f} / {precision:.2f}", {"mean": ap, "precision": precision}))
        extra = [run[loss]["seconds"] for runs in results.values() for run in runs]
        trains_again = loss == ANCHOR[0]
        seconds = statistics.mean(e["scoring"] + (e["training"] if trains_again else 0.0) for e in extra)
        rows.append([loss, score, *cells, number(seconds, 3) if extra else MISSING])
    title = f"{noise} noise, {100 * rate:.0f} % of the labels: average precision / precision"
    return Table(title, ["training", "score", *results, "extra seconds"], rows, n_text=2)


def show(out: Path, tasks: Sequence[str], seeds: Mapping[float, int], about: dict[str, Any]) -> None:
    """Print the tables, and write them to docs/results/labels."""
    tables = [
        table
        for rate in sorted(seeds)
        for noise in NOISES
        if (table := table_of(out, tasks, noise, rate, seeds[rate])) is not None
    ]
    for table in tables:
        table.print()
    report = {**about, "tables": [table.json() for table in tables]}
    if (out / "cost.json").exists():
        report["cost"] = json.loads((out / "cost.json").read_text())
    report["seed"] = {str(rate): list(range(n)) for rate, n in seeds.items()}
    write(report, RESULTS / "suspects.json")
    write_text(RESULTS / "suspects.md", "\n".join(table.markdown() for table in tables))
