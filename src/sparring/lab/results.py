"""What the lab returns in Python: the results of a comparison or of tuning, as tables, charts and words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

from sparring.lab.runs.config import Config
from sparring.lab.runs.predict import Predictor, best_run
from sparring.lab.runs.records import RunFolder
from sparring.lab.runs.summaries import (
    Row,
    calibration_table,
    comparison,
    metric_name,
    percent_cell,
    verdicts,
)
from sparring.lab.runs.tune import best_row, describe
from sparring.lab.table import MISSING, Table, console, percent

Failures = list[dict[str, str]]


@dataclass(frozen=True, repr=False)
class Comparison:
    """The results of several contestants, or of one.

    Printing it, or showing it in a notebook, gives the table and the verdict.

    Attributes:
        title: Task, kind, sizes and model.
        rows: One dict for each contestant: scores, difference, calibration, times, folders.
        failures: Name, folder and error of each run that diverged.
        notes: What to know about the data and the runs.
        folders: The folders of the runs.
        n_done: How many of the runs had been done before.
        facts: Task, kind, source and model, for machines.
    """

    title: str
    rows: list[Row]
    failures: Failures
    notes: list[str]
    folders: list[Path]
    n_done: int
    facts: dict[str, Any] = field(default_factory=dict)

    def tables(self, *, wide: bool = False) -> list[Table]:
        """The comparison, and the calibration if it was measured. The default fits 80 characters."""
        names = [failure["run"] for failure in self.failures]
        tables = [comparison(self.title, self.rows, names, wide=wide), calibration_table(self.rows)]
        return [table for table in tables if table is not None]

    @property
    def table(self) -> Table:
        """The comparison: one line for each contestant."""
        return self.tables()[0]

    @property
    def calibration(self) -> Table | None:
        """ECE, Brier score, NLL and AURC before and after temperature scaling."""
        return calibration_table(self.rows)

    @property
    def verdict(self) -> str:
        """Which contestant is better and by how much, or that it cannot be told. Empty for one alone."""
        return "\n".join(verdicts(self.rows))

    @property
    def frame(self) -> Any:
        """One line for each contestant as a pandas DataFrame, numbers only."""
        import pandas as pd  # type: ignore[import-untyped,unused-ignore]

        return pd.DataFrame([_flat(row) for row in self.rows]).set_index("contestant")

    def plot(self) -> Any:
        """The scores of all seeds, their means and standard deviations, as an altair chart."""
        from sparring.lab.report.charts import dots

        part = "test" if self.rows[0]["test"] else "dev"
        points = [
            {"contestant": row["contestant"], "seed": seed, "value": 100 * value}
            for row in self.rows
            for seed, value in zip(row["seeds"], row[part]["values"], strict=True)
        ]
        return dots(points, "value", "contestant", x_title=f"{metric_name(self.rows[0])} %")

    def report(self, path: str | Path = "report.html", title: str | None = None) -> Path:
        """Write the report of these runs, one HTML page that needs no network. Returns its path."""
        from sparring.lab.report.build import build_report

        build_report(self.folders, Path(path), title)
        return Path(path)

    def predict(self, texts: Sequence[str], texts_b: Sequence[str] | None = None) -> list[dict[str, Any]]:
        """Predict with the best model on dev; see `predict`."""
        return Predictor(best_run([RunFolder(path) for path in self.folders]))(texts, texts_b)

    def __repr__(self) -> str:
        return _printed(self.tables(), self.verdict)

    def _repr_html_(self) -> str:
        tables = "".join(table._repr_html_() for table in self.tables())
        sentences = "".join(f"<p>{escape(sentence)}</p>" for sentence in verdicts(self.rows))
        return f"{tables}{sentences}"


@dataclass(frozen=True, repr=False)
class Tuning:
    """The values of a setting that were tried on dev.

    Attributes:
        task: Name of the task.
        title: Task and loss.
        rows: One dict for each point, as in `Comparison`.
        points: The configs of the rows.
        diverged: The points of which a run diverged.
        best: The settings of the best point that differ from those that were given.
        config: The best point, ready to run with the test set.
        verdict: Whether the best point can be told from the next one.
        failures: Name, folder and error of each run that diverged.
        base: What was given.
    """

    task: str
    title: str
    rows: list[Row]
    points: list[Config]
    diverged: list[Config]
    best: dict[str, Any]
    config: Config
    verdict: str
    failures: Failures
    base: Config

    @property
    def table(self) -> Table:
        """One line for each point."""
        winner = best_row(self.rows)
        lines: list[Any] = []
        for point, row in zip(self.points, self.rows, strict=True):
            mark = "best" if row is winner else ""
            scores = (percent_cell(row["dev"]), percent(row["won_share"], 0))
            lines.append([describe(point, self.base), *scores, mark])
        lines += [[describe(point, self.base), "diverged", MISSING, ""] for point in self.diverged]
        columns = ("", f"dev {winner['metric'].replace('_', ' ')} %", "won %", "")
        return Table(self.title, columns, lines)

    def __repr__(self) -> str:
        return _printed([self.table], self.verdict)

    def _repr_html_(self) -> str:
        return f"{self.table._repr_html_()}<p>{escape(self.verdict)}</p>"


def _flat(row: Row) -> dict[str, Any]:
    """The numbers of a row, one level deep."""
    flat: dict[str, Any] = {"contestant": row["contestant"], "seeds": len(row["seeds"])}
    for part in ("test", "dev"):
        if row[part] is not None:
            flat |= {f"{part}_{row['metric']}": row[part]["mean"], f"{part}_std": row[part]["std"]}
    gap = row["difference"] or {}
    flat |= {name: gap.get(key) for name, key in (("difference", "mean"), ("low", "low"), ("high", "high"))}
    flat |= {"p": gap.get("p"), "detectable": gap.get("detectable")}
    for state, suffix in (("before", ""), ("after", "_scaled")):
        figures = (row["calibration"] or {}).get(state, {})
        flat |= {f"{name}{suffix}": values["mean"] for name, values in figures.items() if values is not None}
    names = ("seconds", "faster", "forwards", "backwards", "updates", "won_share", "correlation")
    return {**flat, **{name: row[name] for name in names}}


def _printed(tables: Sequence[Table], verdict: str) -> str:
    terminal = console()
    with terminal.capture() as captured:
        for table in tables:
            table.print(terminal)
        if verdict:
            terminal.print(verdict, markup=False)
    return captured.get().rstrip()
