"""The papers' figures: for each the numbers that are drawn, as tables, and charts, one or two for each task.

Charts need altair, which is imported when a chart is drawn.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sparring.lab.paper import published
from sparring.lab.paper.methods import AS_SOFTMAX, SOFTMAX, Method
from sparring.lab.paper.published import PublishedTable
from sparring.lab.paper.result_tables import Number, column, notes_of, published_number, side_by_side
from sparring.lab.paper.study_records import Results
from sparring.lab.runs.schema import N_BINS
from sparring.lab.runs.summaries import spread
from sparring.lab.table import Table

TENTHS = tuple(range(10, 101, 10))  # percent of training at which a curve is printed
Point = dict[str, Any]


@dataclass(frozen=True)
class Figure:
    """A figure of a paper: its numbers as tables, and its charts by name."""

    title: str
    notes: tuple[str, ...] = ()
    curves: tuple[str, ...] = ()  # that it needs of the records, see `study_records.record`

    def tables(self, results: Results) -> list[Table]:
        raise NotImplementedError

    def charts(self, results: Results) -> dict[str, Any]:
        raise NotImplementedError


def _label(results: Results, task: str, method: Method) -> str:
    return method.name if len(results.tasks) == 1 else f"{task}: {method.name}"


@dataclass(frozen=True)
class CurveFigure(Figure):
    """A value over training: ``value`` times ``scale`` of the points of the one curve in ``curves``."""

    value: str = ""
    y_title: str = ""
    form: str = "{:.2f}"
    scale: float = 1.0

    def tables(self, results: Results, *notes: str) -> list[Table]:
        """The value at every tenth of training."""
        numbers = []
        for task in results.tasks:
            for method in results.methods(task):
                curves = [record[self.curves[0]] for record in results.of(task, method)]
                for percent in TENTHS:
                    values = [self.scale * self._at(curve, percent) for curve in curves]
                    row = _label(results, task, method)
                    numbers.append(Number(row, f"{percent} %", spread(values), form=self.form))
        return [side_by_side(self.title, numbers, notes_of(results, *self.notes, *notes))]

    def _at(self, curve: Sequence[Point], percent: int) -> float:
        """The last value in a tenth of training."""
        return float(curve[max(0, round(len(curve) * percent / 100) - 1)][self.value])

    def charts(self, results: Results) -> dict[str, Any]:
        """A line for each method: the mean over seeds, point by point."""
        from sparring.lab.report import charts

        drawn = {}
        for task in results.tasks:
            rows = []
            for method in results.methods(task):
                curves = [record[self.curves[0]] for record in results.of(task, method)]
                for points in zip(*curves, strict=False):
                    step = statistics.mean(point["step"] for point in points)
                    value = self.scale * statistics.mean(point[self.value] for point in points)
                    rows.append({"method": method.name, "step": step, self.value: value})
            drawn[task] = charts.lines(
                rows, "step", self.value, "method", title=task, x_title="step", y_title=self.y_title
            )
        return drawn


@dataclass(frozen=True)
class DevFigure(Figure):
    """Figure 3: quality and loss on dev."""

    left: CurveFigure = CurveFigure(
        "Figure 3, left: quality on dev over training, in percent",
        curves=("evaluations",),
        value="value",
        y_title="dev, %",
        form="{:.1f}",
    )
    right: CurveFigure = CurveFigure(
        "Figure 3, right: loss on dev over training, 0 to 1 for each run",
        ("the paper: other losses turn to rise while AS-Softmax's does not",),
        curves=("evaluations",),
        value="loss",
        y_title="loss on dev, 0 to 1",
    )

    def tables(self, results: Results) -> list[Table]:
        results = normalised(results)
        notes = []
        for task in results.tasks:
            rises = []
            for method in results.methods(task):
                ends = [record["evaluations"][-1]["loss"] for record in results.of(task, method)]
                rises.append(f"{method.name} {statistics.mean(ends):.2f}")
            values = ", ".join(rises)
            notes.append(f"{task}: the loss at the end lies above its least by {values} of its range")
        return [*self.left.tables(results), *self.right.tables(results, *notes)]

    def charts(self, results: Results) -> dict[str, Any]:
        results = normalised(results)
        sides = {"quality": self.left.charts(results), "loss": self.right.charts(results)}
        return {f"{task}-{side}": charts[task] for task in results.tasks for side, charts in sides.items()}


def normalised(results: Results) -> Results:
    """Results with dev losses from 0 to 1 within each run, to be drawn together, and quality in percent."""
    records = []
    for record in results.records:
        points = record["evaluations"]
        losses = [point["loss"] for point in points]
        low = min(losses)
        span = (max(losses) - low) or 1.0
        points = [{**p, "loss": (p["loss"] - low) / span, "value": 100 * p["value"]} for p in points]
        records.append({**record, "evaluations": points})
    return Results(results.study, records, results.descriptions)


@dataclass(frozen=True)
class SettingFigure(Figure):
    """Quality on test against a setting, with other methods as level lines.

    ``published`` holds the paper's numbers and ``best`` its best values; no ``metric`` is the task's own.
    """

    setting: str = ""
    x_title: str = ""
    levels: tuple[Method, ...] = (SOFTMAX,)
    published: PublishedTable = field(default_factory=dict)
    best: Mapping[str, float] = field(default_factory=dict)
    metric: str | None = None

    def tables(self, results: Results) -> list[Table]:
        numbers = []
        notes = [
            f"the paper: on {task} highest at {self.x_title} = {value}"
            for task, value in self.best.items()
            if task in results.tasks
        ]
        for task in results.tasks:
            metric = self._metric(results, task)
            for method in results.methods(task):
                ours = results.score(task, method, metric)
                paper_value = published_number(self.published, method.name, task, metric)
                numbers.append(Number(method.name, column(task, metric), ours, paper_value))
            if points := self._points(results, task):
                best = max(points, key=lambda point: float(point["value"]))["name"]
                notes.append(f"{task}: highest at {best} (on test; a choice would be made on dev)")
        return [side_by_side(self.title, numbers, notes_of(results, *self.notes, *notes))]

    def _points(self, results: Results, task: str) -> list[Point]:
        """The methods that differ in the setting, each with a standard deviation around its mean."""
        points = []
        for method in results.methods(task):
            score = results.score(task, method, self._metric(results, task))
            if score and method.point and method.point[0] == self.setting:
                mean, std = score["mean"], score["std"] or 0.0
                names = {"name": method.name, "task": task, "setting": float(method.point[1])}
                points.append({**names, "value": mean, "low": mean - std, "high": mean + std})
        return points

    def charts(self, results: Results) -> dict[str, Any]:
        from sparring.lab.report import charts

        drawn = {}
        for task in results.tasks:
            metric = self._metric(results, task)
            levels = {method.name: results.score(task, method, metric) for method in self.levels}
            drawn[task] = charts.against(
                self._points(results, task),
                *("setting", "value", "task"),
                whiskers=True,
                references={name: level["mean"] for name, level in levels.items() if level},
                title=task,
                x_title=self.x_title,
                y_title=f"test {metric.replace('_', ' ')}, %",
            )
        return drawn

    def _metric(self, results: Results, task: str) -> str:
        return self.metric or results.metrics(task)[0]


@dataclass(frozen=True)
class MarginFigure(Figure):
    """Figure 4: the distribution of margins on test, in eight bins as a table."""

    def tables(self, results: Results) -> list[Table]:
        width = N_BINS // 8
        numbers = []
        for task in results.tasks:
            for method in results.methods(task):
                histograms = [record["margins"] for record in results.of(task, method)]
                for start in range(0, N_BINS, width):
                    shares = [100 * sum(h[start : start + width]) / max(sum(h), 1) for h in histograms]
                    place = f"{-1 + 2 * start / N_BINS:g} to {-1 + 2 * (start + width) / N_BINS:g}"
                    row = _label(results, task, method)
                    numbers.append(Number(row, place, spread(shares), form="{:.1f}"))
        return [side_by_side(self.title, numbers, notes_of(results, *self.notes))]

    def charts(self, results: Results) -> dict[str, Any]:
        from sparring.lab.report import charts

        titles = {"x_title": "p_margin", "y_title": "samples, %"}
        drawn = {}
        for task in results.tasks:
            rows = []
            for method in results.methods(task):
                histograms = [record["margins"] for record in results.of(task, method)]
                counts = [statistics.mean(counts) for counts in zip(*histograms, strict=True)]
                rows += charts.bins(counts, method=method.name)
            drawn[task] = charts.histogram(rows, "margin", "share", "method", rules=[0], title=task, **titles)
        return drawn


WON_SHARE = CurveFigure(
    "Figure 1: share of the samples of a batch that are won, in percent, over training",
    ("the paper: far fewer samples of a batch count than with softmax; its text gives no number",),
    curves=("steps",),
    value="won_share",
    y_title="won, % of a batch",
    form="{:.0f}",
    scale=100,
)
DELTA = SettingFigure(
    "Figure 2: quality on test against δ, in percent",
    setting="delta",
    x_title="δ",
    published=published.QUALITY,
    best=published.BEST_DELTA,
)
DEV = DevFigure("Figure 3", curves=("evaluations",))
MARGINS = MarginFigure(
    "Figure 4: distribution of p_margin on test, percent of the samples",
    (
        "a sample counts by the least margin of its rows; "
        "the paper: AS-Softmax's lie close together between 0 and δ, softmax's far apart",
    ),
    curves=("margins",),
)
MARGIN = SettingFigure(
    "Figure 5: a margin between logits instead of probabilities, quality on test in percent",
    (
        f"the paper: with a margin above {published.SOFTMAX_FROM_MARGIN} the variant is softmax; "
        "it is not as good as AS-Softmax at any",
    ),
    setting="margin",
    x_title="margin between logits",
    levels=(SOFTMAX, AS_SOFTMAX),
    published=published.QUALITY,
)
SPARSE_LOSS = CurveFigure(
    "Sparse-Softmax, Figure 1: training loss over training, mean of the batches of a sixtieth",
    ("the paper: sparse-softmax's falls faster and more smoothly",),
    curves=("steps",),
    value="loss",
    y_title="training loss",
    form="{:.3f}",
)
SPARSE_SIZE = SettingFigure(
    "Sparse-Softmax, Figure 2: micro F1 on test against k, in percent",
    ("the paper: highest at k = 20",),
    setting="k",
    x_title="k",
    published=published.SPARSE_QUALITY,
    metric="micro_f1",
)
