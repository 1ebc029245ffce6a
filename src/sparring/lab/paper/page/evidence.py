"""What the runs of Table 2 can decide: power, calibration, and networks beside a baseline without one."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Mapping
from pathlib import Path

from sparring.lab.differences import LEVEL, POWER, Difference, difference, seeds_for
from sparring.lab.errors import UserError
from sparring.lab.paper import published
from sparring.lab.paper.methods import AS_SOFTMAX, SOFTMAX, Method
from sparring.lab.paper.result_tables import column, notes_of, scores_of, side_by_side
from sparring.lab.paper.study_records import Results
from sparring.lab.runs.summaries import calibration_of, change, spread_cell
from sparring.lab.table import MISSING, Cell, Row, Table, number

SIZES = (1.0, 0.5)  # differences in points
TRADEOFF_NOTE = (
    "ECE and NLL before → after scaling with a temperature that is fitted on dev; time: of training, "
    "softmax = 1, median over seeds"
)
BASELINES = "baselines.json"  # beside the records; benchmarks/baselines.py writes it


def gap_of(results: Results, task: str, metric: str, method: Method = AS_SOFTMAX) -> Difference | None:
    """A method against softmax, in points on test."""
    return difference(*(results.by_seed(task, m, metric) for m in (method, SOFTMAX)))


def power_table(results: Results) -> Table:
    """AS-Softmax against softmax: what was seen, what would have shown, and how many seeds others need."""
    rows: list[Row] = []
    for task in results.tasks:
        for metric in results.metrics(task):
            gap = gap_of(results, task, metric)
            if gap is None:
                continue
            needed = [seeds_for(gap, size) for size in SIZES]
            rows.append(
                [
                    column(task, metric),
                    number(gap.n, 0),
                    Cell(_with_interval(gap), gap._asdict()),
                    number(gap.p, 3),
                    number(gap.detectable),
                    *(MISSING if n is None else number(n, 0) for n in needed),
                ]
            )
    columns = ("", "seeds", "AS-Softmax − softmax", "p", "minimum detectable difference")
    more = [f"seeds for {size:g} points" for size in SIZES]
    note = (
        "In points on test, paired over seeds; ± is half of the 95 % interval. Minimum detectable difference:"
        f" the smallest true one that these seeds show with a probability of {POWER:.0%} (p < {LEVEL})."
    )
    return Table("What the runs can show", [*columns, *more], rows, [note])


def accuracy_tables(results: Results) -> list[Table]:
    """Quality on test beside the paper's; what the runs can show."""
    numbers = scores_of(results, published.QUALITY)
    title = "AS-Softmax against softmax: quality on test, in percent"
    notes = notes_of(results, "the paper's numbers are BERT-base's")
    tables = [side_by_side(title, numbers, notes)]
    if max(results.n_seeds()) > 1:  # one seed shows nothing of that
        tables.append(power_table(results))
    return tables


def calibration_tables(results: Results) -> list[Table]:
    """Calibration on test of all methods, task by task; none where no run has it."""
    tables = []
    for task in results.tasks:
        rows: list[Row] = []
        for method in results.methods(task):
            figures = calibration_of(results.of(task, method))
            if figures is None:
                continue
            before, after = figures["before"], figures["after"]
            ece = change(before["ece"], after["ece"], in_percent=True)
            scores = [change(before[name], after[name]) for name in ("brier", "nll")]
            temperature = spread_cell(figures["temperature"], "{:.2f}")
            rows.append([method.name, ece, *scores, change(before["aurc"]), temperature])
        if rows:
            columns = ["", "ECE %", "Brier", "NLL", "AURC", "T"]
            tables.append(Table(f"{task}: calibration on test", columns, rows))
    return tables


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
                    Cell("0", 0.0) if gap is None else Cell(_with_interval(gap), gap._asdict()),
                    change(before.get("ece"), after.get("ece"), in_percent=True),
                    change(before.get("nll"), after.get("nll")),
                    number(statistics.median(times) if times else None),
                ]
            )
        columns = ["", f"{metric.replace('_', ' ')} %", "against softmax", "ECE %", "NLL", "time"]
        tables.append(Table(f"{task}: what δ changes", columns, rows, notes_of(results, TRADEOFF_NOTE)))
    return tables


def _with_interval(gap: Difference) -> str:
    half = "" if gap.low is None or gap.high is None else f" ± {(gap.high - gap.low) / 2:.2f}"
    return f"{gap.mean:+.2f}{half}"


def read_baselines(records: Path) -> dict[str, float]:
    """Scores of a linear classifier on word counts, by task; none if the file is not there."""
    path = records / BASELINES
    if not path.exists():
        return {}
    try:
        scores = json.loads(path.read_text(encoding="utf-8"))["scores"]
        return {str(task): float(score) for task, score in scores.items()}
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise UserError(f"{path}: cannot be read ({error}); benchmarks/baselines.py writes it") from None


def baselines_table(results: Results, baselines: Mapping[str, float]) -> Table | None:
    """Softmax beside a linear classifier on word counts; None without a common task."""
    rows: list[Row] = []
    for task in results.tasks:
        for metric in results.metrics(task)[-1:]:
            score = results.score(task, SOFTMAX, metric)
            if task not in baselines or score is None:
                continue
            baseline = 100 * baselines[task]
            place = "above" if score["mean"] > baseline else "below"
            rows.append([column(task, metric), spread_cell(score, "{:.2f}"), number(baseline), place])
    if not rows:
        return None
    note = (
        "TF-IDF of words and a linear support vector machine, nothing tuned. It reads whole texts and all"
        " samples; where softmax is below, its texts are cut, or samples are few, as the tables say."
    )
    columns = ["", "softmax", "linear classifier", "softmax is"]
    return Table("Networks beside a classifier without one", columns, rows, [note])


def conclusion(results: Results) -> str:
    """What the differences between AS-Softmax and softmax come to, in words."""
    gaps = {
        column(task, metric): gap
        for task in results.tasks
        for metric in results.metrics(task)[:1]
        if (gap := gap_of(results, task, metric)) is not None and gap.p is not None
    }
    if not gaps:
        return ""
    better = [name for name, gap in gaps.items() if _told(gap) and gap.mean > 0]
    worse = [name for name, gap in gaps.items() if _told(gap) and gap.mean < 0]
    within = {
        name: math.ceil(20 * max(abs(gap.low or 0.0), abs(gap.high or 0.0))) / 20
        for name, gap in gaps.items()
        if not _told(gap)
    }
    parts = [
        f"**Accuracy.** Over {len(gaps)} tasks AS-Softmax is"
        f" {statistics.mean(gap.mean for gap in gaps.values()):+.2f} points from softmax, on average."
    ]
    if better:
        parts.append(f"It is better on {_listed(better)}.")
    if worse:
        parts.append(f"It is worse on {_listed(worse)}.")
    if within:
        bounds = _listed([f"{name} ({bound:.2f})" for name, bound in within.items()])
        where = "On the others" if better or worse else "On all of them"
        parts.append(f"{where} no difference shows; in points, one is ruled out beyond: {bounds}.")
    return " ".join(parts)


def calibration_conclusion(results: Results) -> str:
    """How AS-Softmax changes the calibration error, in words."""
    lines = []
    for task in results.tasks:
        figures = {m: calibration_of(results.of(task, m)) for m in (SOFTMAX, AS_SOFTMAX)}
        if any(figure is None or figure["before"]["ece"] is None for figure in figures.values()):
            continue
        values = []
        for state in ("before", "after"):
            spreads = [figures[m][state]["ece"] for m in (SOFTMAX, AS_SOFTMAX)]  # type: ignore[index]
            values.append([None if s is None else 100 * s["mean"] for s in spreads])
        (softmax, ours), after = values
        text = f"{task} {softmax:.1f} → {ours:.1f} %"
        if None not in after:
            text += f" ({after[0]:.1f} → {after[1]:.1f} % after scaling)"
        lines.append(text)
    if not lines:
        return ""
    return (
        f"**Calibration error**, softmax → AS-Softmax: {_listed(lines)}. The probabilities of training with"
        " AS-Softmax are not calibrated; `sparring predict` scales them with a temperature from dev."
    )


def delta_conclusion(results: Results) -> str:
    """What δ changes, in words: means over tasks of the difference to softmax, calibration error and time."""
    softmax_error = _mean(_ece_of(results, task, SOFTMAX) for task in results.tasks)
    points = {method.point[1]: method.name for method in results.methods() if method.point}
    lines = []
    for delta, name in sorted(points.items()):
        methods = {task: m for task in results.tasks for m in results.methods(task) if m.name == name}
        gaps = [gap_of(results, task, results.metrics(task)[0], m) for task, m in methods.items()]
        times = []
        for task, method in methods.items():
            seconds, base = results.seconds(task, method), results.seconds(task, SOFTMAX)
            times += [seconds[seed] / base[seed] for seed in seconds if seed in base]
        mean = _mean(None if gap is None else gap.mean for gap in gaps)
        error = _mean(_ece_of(results, task, method) for task, method in methods.items())
        if mean is not None and error is not None:
            lines.append(
                f"{delta:g}: {mean:+.2f} points, ECE {error:.1f} %, time {statistics.mean(times):.2f}"
            )
    if not lines or softmax_error is None:
        return ""
    return (
        f"**δ**, as means over {_listed(list(results.tasks))}, against softmax (ECE {softmax_error:.1f} %,"
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


def other_teams() -> str:
    """What an independent team found, in words."""
    seeds, softmax, ours = (published.INDEPENDENT[name] for name in ("seeds", "Softmax", "AS-Softmax"))
    gaps = []
    for task, n in seeds.items():
        points = f"{ours[task] - softmax[task]:+.1f} points on {task}"
        gaps.append(f"{points} ({n} seed{'s' if n > 1 else ''})")
    return (
        f"**An independent team** (haitomnsg/softmaxResearch, BERT-base, 2026) found {_listed(gaps)}: no"
        " reliable gain either, and under-confident probabilities."
    )


def _told(gap: Difference) -> bool:
    return gap.p is not None and gap.p <= LEVEL


def _listed(words: list[str]) -> str:
    return ", ".join(words)
