"""The papers' figures: for each the numbers that are drawn, as a sheet, and its charts, one or two for each task."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from sparring.lab.paper import published as paper
from sparring.lab.paper.results import Record, Results
from sparring.lab.paper.tables import Cell, Sheet, column, figures_of, notes_of, published
from sparring.lab.runs.schema import N_BINS
from sparring.lab.runs.summaries import spread

TENTHS = tuple(range(10, 101, 10))  # percent of training at which a curve is printed


def _at(curve: Sequence[dict[str, Any]], name: str, percent: int) -> float:
    """The curve's last value in a tenth of training."""
    return float(curve[max(0, round(len(curve) * percent / 100) - 1)][name])


def _curve_cells(
    results: Results, task: str, method: str, curve: str, name: str, form: str, scale: float = 1.0
) -> list[Cell]:
    label = method if len(results.tasks) == 1 else f"{task}: {method}"
    return [
        Cell(
            label,
            f"{percent} %",
            spread([scale * _at(each[curve], name, percent) for each in results.of(task, method)]),
            None,
            form,
        )
        for percent in TENTHS
    ]


def _curves(
    results: Results, title: str, curve: str, name: str, form: str, *notes: str, scale: float = 1.0
) -> Sheet:
    cells = [
        c
        for task in results.tasks
        for m in results.methods(task)
        for c in _curve_cells(results, task, m, curve, name, form, scale)
    ]
    return Sheet(title, cells, notes_of(results, *notes))


def _mean_curve(records: Sequence[Record], curve: str, name: str) -> list[dict[str, float]]:
    """Over seeds, point by point."""
    points = zip(*(each[curve] for each in records), strict=False)
    return [
        {"step": statistics.mean(p["step"] for p in same), name: statistics.mean(p[name] for p in same)}
        for same in points
    ]


def _curve_rows(results: Results, curve: str, name: str) -> list[dict[str, Any]]:
    return [
        {"task": task, "method": method, **point}
        for task in results.tasks
        for method in results.methods(task)
        for point in _mean_curve(results.of(task, method), curve, name)
    ]


# ------------------------------------------------------------ Figure 1: won share over training


def won(results: Results) -> list[Sheet]:
    title = "Figure 1: share of the samples of a batch that are won, in percent, over training"
    return [
        _curves(
            results,
            title,
            "steps",
            "won_share",
            "{:.0f}",
            "the paper: far fewer samples of a batch count than with softmax; its text gives no number",
            scale=100,
        )
    ]


# ------------------------------------------------------------ Figures 2 and 5, Sparse-Softmax's 2: quality against a setting


def _against(
    results: Results, title: str, key: str, rows: paper.Table, *notes: str, figure: str | None = None
) -> Sheet:
    cells = []
    for task in results.tasks:
        name = figure or figures_of(results, task)[0]
        for method in results.methods(task):
            cells.append(
                Cell(
                    method,
                    column(task, name),
                    results.figure(task, method, name),
                    published(rows, method, task, name),
                )
            )
    return Sheet(title, cells, notes_of(results, *notes, *_best(results, key, figure)))


def _best(results: Results, key: str, figure: str | None) -> list[str]:
    """Where the curve is highest."""
    words = []
    for task in results.tasks:
        name = figure or figures_of(results, task)[0]
        points = {m: results.figure(task, m, name) for m in results.methods(task) if m.startswith(f"{key}=")}
        there = {m: found["mean"] for m, found in points.items() if found}
        if not there:
            continue
        best = max(there, key=lambda m: there[m])
        words.append(f"{task}: highest at {best} (on test; a choice would be made on dev)")
    return words


def delta(results: Results) -> list[Sheet]:
    title = "Figure 2: quality on test against δ, in percent"
    said = [
        f"the paper: on {task} highest at δ = {value}"
        for task, value in paper.BEST_DELTA.items()
        if task in results.tasks
    ]
    return [_against(results, title, "delta", {"Softmax": paper.QUALITY["Softmax"]}, *said)]


def variant(results: Results) -> list[Sheet]:
    title = "Figure 5: a margin between logits instead of probabilities, quality on test in percent"
    said = f"the paper: with a margin above {paper.SAME_FROM} the variant is softmax; it is not as good as AS-Softmax at any"
    lines = {name: paper.QUALITY[name] for name in ("Softmax", "AS-Softmax")}
    return [_against(results, title, "margin", lines, said)]


def sizes(results: Results) -> list[Sheet]:
    title = "Sparse-Softmax, Figure 2: micro F1 on test against k, in percent"
    return [
        _against(results, title, "k", paper.SPARSE_QUALITY, "the paper: highest at k = 20", figure="micro_f1")
    ]


def _setting_rows(results: Results, key: str, figure: str | None = None) -> list[dict[str, Any]]:
    rows = []
    for task in results.tasks:
        name = figure or figures_of(results, task)[0]
        for method in results.methods(task):
            found = results.figure(task, method, name)
            if method.startswith(f"{key}=") and found:
                rows.append(
                    {
                        "task": task,
                        "setting": float(method.partition("=")[2]),
                        "value": found["mean"],
                        "std": found["std"] or 0.0,
                    }
                )
    return rows


def _lines(results: Results, *names: str, figure: str | None = None) -> dict[str, dict[str, float]]:
    """Methods drawn as level lines, by task."""
    found = {}
    for task in results.tasks:
        name = figure or figures_of(results, task)[0]
        levels = {m: results.figure(task, m, name) for m in names}
        found[task] = {m: level["mean"] for m, level in levels.items() if level}
    return found


# ------------------------------------------------------------ Figure 3: dev over training


def normalised(evaluations: Sequence[dict[str, Any]]) -> list[dict[str, float]]:
    """Losses between 0 and 1, the run's least and largest, so that methods can be drawn together."""
    losses = [e["loss"] for e in evaluations]
    low, span = min(losses), (max(losses) - min(losses)) or 1.0
    return [
        {"step": e["step"], "loss": (e["loss"] - low) / span, "value": 100 * e["value"]} for e in evaluations
    ]


def _with_normalised(results: Results) -> Results:
    return Results(
        results.study,
        [{**each, "evaluations": normalised(each["evaluations"])} for each in results.records],
        results.words,
    )


def dev(results: Results) -> list[Sheet]:
    ready = _with_normalised(results)
    rises = [
        f"{task}: the loss at the end lies above its least by "
        + ", ".join(
            f"{m} {statistics.mean(each['evaluations'][-1]['loss'] for each in ready.of(task, m)):.2f}"
            for m in ready.methods(task)
        )
        + " of its range"
        for task in ready.tasks
    ]
    said = "the paper: other losses turn to rise while AS-Softmax's does not"
    return [
        _curves(
            ready,
            "Figure 3, left: quality on dev over training, in percent",
            "evaluations",
            "value",
            "{:.1f}",
        ),
        _curves(
            ready,
            "Figure 3, right: loss on dev over training, 0 to 1 for each run",
            "evaluations",
            "loss",
            "{:.2f}",
            said,
            *rises,
        ),
    ]


# ------------------------------------------------------------ Figure 4: margins


def margins(results: Results) -> list[Sheet]:
    title = "Figure 4: distribution of p_margin on test, percent of the samples"
    edges = range(0, N_BINS, N_BINS // 8)
    cells = []
    for task in results.tasks:
        for method in results.methods(task):
            for start in edges:
                shares = []
                for each in results.of(task, method):
                    shares.append(
                        100 * sum(each["margins"][start : start + N_BINS // 8]) / max(sum(each["margins"]), 1)
                    )
                low, high = (-1 + 2 * i / N_BINS for i in (start, start + N_BINS // 8))
                label = method if len(results.tasks) == 1 else f"{task}: {method}"
                cells.append(Cell(label, f"{low:g} to {high:g}", spread(shares), None, "{:.1f}"))
    said = "a sample counts by the least margin of its rows; the paper: AS-Softmax's lie close together between 0 and δ, softmax's far apart"
    return [Sheet(title, cells, notes_of(results, said))]


def _margin_rows(results: Results) -> list[dict[str, Any]]:
    from sparring.lab.report import charts

    rows = []
    for task in results.tasks:
        for method in results.methods(task):
            counts = [
                statistics.mean(same)
                for same in zip(*(each["margins"] for each in results.of(task, method)), strict=True)
            ]
            rows += charts.bins(counts, task=task, method=method)
    return rows


# ------------------------------------------------------------ Sparse-Softmax's Figure 1: training loss


def losses(results: Results) -> list[Sheet]:
    title = "Sparse-Softmax, Figure 1: training loss over training, mean of the batches of a sixtieth"
    return [
        _curves(
            results,
            title,
            "steps",
            "loss",
            "{:.3f}",
            "the paper: sparse-softmax's falls faster and more smoothly",
        )
    ]


# ------------------------------------------------------------ the charts, one for each task


def _charts(results: Results, draw: Any) -> dict[str, Any]:
    return {task: draw(task) for task in results.tasks}


def _drawn(
    results: Results, curve: str, name: str, y_title: str, scale: float = 1.0, x_title: str = "step"
) -> dict[str, Any]:
    from sparring.lab.report import charts  # altair, for those who draw

    rows = [{**row, name: scale * row[name]} for row in _curve_rows(results, curve, name)]
    return _charts(
        results,
        lambda task: charts.lines(
            [row for row in rows if row["task"] == task],
            "step",
            name,
            "method",
            title=task,
            x_title=x_title,
            y_title=y_title,
        ),
    )


def won_chart(results: Results) -> dict[str, Any]:
    return _drawn(results, "steps", "won_share", "won, % of a batch", 100)


def losses_chart(results: Results) -> dict[str, Any]:
    return _drawn(results, "steps", "loss", "training loss")


def dev_chart(results: Results) -> dict[str, Any]:
    """The paper's left and right: quality, and normalised loss."""
    ready = _with_normalised(results)
    drawn = {
        "quality": _drawn(ready, "evaluations", "value", "dev, %"),
        "loss": _drawn(ready, "evaluations", "loss", "loss on dev, 0 to 1"),
    }
    return {f"{task}-{side}": charts[task] for task in ready.tasks for side, charts in drawn.items()}


def _setting_chart(
    results: Results, key: str, x_title: str, lines: Sequence[str], figure: str | None = None
) -> dict[str, Any]:
    from sparring.lab.report import charts

    rows = [
        {**row, "low": row["value"] - row["std"], "high": row["value"] + row["std"]}
        for row in _setting_rows(results, key, figure)
    ]
    levels = _lines(results, *lines, figure=figure)
    return _charts(
        results,
        lambda task: charts.against(
            [row for row in rows if row["task"] == task],
            *("setting", "value", "task"),
            low="low",
            high="high",
            references=levels[task],
            title=task,
            x_title=x_title,
            y_title=f"test {(figure or figures_of(results, task)[0]).replace('_', ' ')}, %",
        ),
    )


def delta_chart(results: Results) -> dict[str, Any]:
    return _setting_chart(results, "delta", "δ", ("Softmax",))


def variant_chart(results: Results) -> dict[str, Any]:
    return _setting_chart(results, "margin", "margin between logits", ("Softmax", "AS-Softmax"))


def sizes_chart(results: Results) -> dict[str, Any]:
    return _setting_chart(results, "k", "k", ("Softmax",), figure="micro_f1")


def margins_chart(results: Results) -> dict[str, Any]:
    from sparring.lab.report import charts

    rows = _margin_rows(results)
    return _charts(
        results,
        lambda task: charts.histogram(
            [row for row in rows if row["task"] == task],
            *("margin", "share", "method"),
            rules=(0.0,),
            title=task,
            x_title="p_margin",
            y_title="samples, %",
        ),
    )
