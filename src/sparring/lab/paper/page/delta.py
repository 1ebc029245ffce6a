"""What δ changes: quality, calibration and time beside softmax, and the δ that dev chooses."""

from __future__ import annotations

import statistics
from collections.abc import Iterable

from sparring.lab.paper.methods import SOFTMAX, Method
from sparring.lab.paper.page.evidence import gap_of, listed, with_interval
from sparring.lab.paper.result_tables import column, notes_of
from sparring.lab.paper.study_records import Results
from sparring.lab.runs.summaries import calibration_of, change, spread_cell
from sparring.lab.table import Cell, Row, Table, number

TRADEOFF_NOTE = (
    "ECE and NLL before → after scaling with a temperature that is fitted on dev; time: of training, "
    "softmax = 1, median over seeds"
)


def tradeoff_tables(results: Results) -> list[Table]:
    """Quality, calibration and time of all methods beside softmax, task by task."""
    tables = []
    for task in results.tasks:
        metric = results.metrics(task)[0]
        base = results.seconds(task, SOFTMAX)
        rows: list[Row] = []
        for method in results.methods(task):
            gap = None if method == SOFTMAX else gap_of(results, task, metric, method)
            figures = calibration_of(results.of(task, method))
            before, after = (figures[state] for state in ("before", "after")) if figures else ({}, {})
            seconds = results.seconds(task, method)
            times = [seconds[seed] / base[seed] for seed in seconds if seed in base]
            rows.append(
                [
                    method.name,
                    spread_cell(results.score(task, method, metric), "{:.2f}"),
                    Cell("0", 0.0) if gap is None else Cell(with_interval(gap), gap._asdict()),
                    change(before.get("ece"), after.get("ece"), in_percent=True),
                    change(before.get("nll"), after.get("nll")),
                    number(statistics.median(times) if times else None),
                ]
            )
        columns = ["", f"{metric.replace('_', ' ')} %", "against softmax", "ECE %", "NLL", "time"]
        tables.append(Table(f"{task}: what δ changes", columns, rows, notes_of(results, TRADEOFF_NOTE)))
    return tables


def delta_tables(results: Results) -> list[Table]:
    """The δ that dev chooses; then what δ changes, task by task."""
    chosen = [chosen_table(results)] if max(results.n_seeds()) > 1 else []
    return [*chosen, *tradeoff_tables(results)]


def chosen_table(results: Results) -> Table:
    """AS-Softmax with the δ whose mean over seeds is the highest on dev, against softmax on test."""
    rows: list[Row] = []
    for task in results.tasks:
        metric = results.metrics(task)[0]
        scores = {
            method: dev for method in points_of(results, task) if (dev := _on_dev(results, task, method))
        }
        base = _on_dev(results, task, SOFTMAX)
        if not scores or base is None:
            continue
        best = max(scores, key=lambda method: scores[method])
        gap = gap_of(results, task, metric, best)
        if gap is None or best.point is None:
            continue
        rows.append(
            [
                column(task, metric),
                number(gap.n, 0),
                Cell(f"{best.point[1]:g}", best.point[1]),
                Cell(f"{scores[best] - base:+.2f}", scores[best] - base),
                Cell(with_interval(gap), gap._asdict()),
                number(gap.p, 3),
            ]
        )
    columns = ["", "seeds", "δ chosen on dev", "against softmax on dev", "against softmax on test", "p"]
    note = "In points; δ is that of the highest mean over seeds on dev, ± half of the 95 % interval."
    return Table("AS-Softmax with the δ that dev chooses", columns, rows, notes_of(results, note))


def points_of(results: Results, task: str) -> list[Method]:
    """The methods of a task that are one value of δ each."""
    return [method for method in results.methods(task) if method.point and method.point[0] == "delta"]


def _on_dev(results: Results, task: str, method: Method) -> float | None:
    """The mean over seeds of the deciding metric on dev, in percent."""
    return _mean(100 * float(record["dev"][record["metric"]]) for record in results.of(task, method))


def delta_conclusion(results: Results) -> str:
    """What δ changes, in words: means over tasks of the difference to softmax, calibration error and time."""
    softmax_error = _mean(_ece_of(results, task, SOFTMAX) for task in results.tasks)
    values = sorted({m.point[1] for task in results.tasks for m in points_of(results, task) if m.point})
    lines = []
    for delta in values:
        gaps, errors, times = [], [], []
        for task in results.tasks:
            for method in points_of(results, task):
                if method.point is None or method.point[1] != delta:
                    continue
                gap = gap_of(results, task, results.metrics(task)[0], method)
                gaps.append(None if gap is None else gap.mean)
                errors.append(_ece_of(results, task, method))
                seconds, base = results.seconds(task, method), results.seconds(task, SOFTMAX)
                ratios = [seconds[seed] / base[seed] for seed in seconds if seed in base]
                times += [statistics.median(ratios)] if ratios else []
        mean, error = _mean(gaps), _mean(errors)
        if mean is not None and error is not None and times:
            time = statistics.mean(times)
            lines.append(f"{delta:g}: {mean:+.2f} points, ECE {error:.1f} %, time {time:.2f}")
    if not lines or softmax_error is None:
        return ""
    return (
        f"**δ**, as means over {listed(list(results.tasks))}, against softmax (ECE {softmax_error:.1f} %,"
        f" time 1) and without warm-up: {'; '.join(lines)}."
    )


def _ece_of(results: Results, task: str, method: Method) -> float | None:
    """The mean calibration error on test, in percent."""
    figures = calibration_of(results.of(task, method))
    error = figures["before"]["ece"] if figures else None
    return None if error is None else 100 * float(error["mean"])


def _mean(values: Iterable[float | None]) -> float | None:
    kept = [value for value in values if value is not None]
    return statistics.mean(kept) if kept else None
