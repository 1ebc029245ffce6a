"""What the runs of AS-Softmax and softmax can decide: power, calibration, a baseline without a network."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Mapping
from pathlib import Path

from sparring.lab.differences import (
    LEVEL,
    MOST_SEEDS,
    POWER,
    Difference,
    difference,
    seeds_for,
    seeds_for_interval,
)
from sparring.lab.errors import UserError
from sparring.lab.paper import published
from sparring.lab.paper.methods import AS_SOFTMAX, SOFTMAX, Method
from sparring.lab.paper.result_tables import column, notes_of, scores_of, side_by_side
from sparring.lab.paper.study_records import Results
from sparring.lab.runs.summaries import calibration_of, change, spread_cell
from sparring.lab.table import MISSING, Cell, Row, Table, number

SIZES = (1.0, 0.5)  # differences in points
INTERVAL = 0.7  # wanted: half of the 95 % interval, in points
WIDER = {"sst5": 1.2, "cola": 1.2}  # on tasks whose seeds vary more
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
                    Cell(with_interval(gap), gap._asdict()),
                    number(gap.p, 3),
                    number(gap.detectable),
                    *(MISSING if n is None else number(n, 0) for n in needed),
                    _missing_seeds(gap, WIDER.get(task, INTERVAL)),
                ]
            )
    columns = ("", "seeds", "AS-Softmax − softmax", "p", "minimum detectable difference")
    more = [f"seeds for {size:g} points" for size in SIZES]
    wider = ", ".join(f"{task} ±{half:g}" for task, half in WIDER.items())
    note = (
        "In points on test, paired over seeds; ± is half of the 95 % interval. Minimum detectable difference:"
        f" the smallest true one that these seeds show with a probability of {POWER:.0%} (p < {LEVEL})."
        f" Missing: seeds that would bring the interval down to ±{INTERVAL:g} points ({wider})."
    )
    titles = [*columns, *more, f"seeds missing for ±{INTERVAL:g}"]
    return Table("What the runs can show", titles, rows, [note])


def _missing_seeds(gap: Difference, half: float) -> Cell:
    needed = seeds_for_interval(gap, half)
    if needed is None:
        return Cell(f"over {MOST_SEEDS - gap.n}", None)
    return number(max(0, needed - gap.n), 0)


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


def with_interval(gap: Difference) -> str:
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


def baselines_table(studies: Iterable[Results], baselines: Mapping[str, float]) -> Table | None:
    """Softmax beside a linear classifier on word counts, each task in its first study; None without one."""
    rows: dict[str, Row] = {}
    for results in studies:
        for task in results.tasks:
            metric = results.metrics(task)[-1]
            score = results.score(task, SOFTMAX, metric)
            if task not in baselines or task in rows or score is None:
                continue
            baseline = 100 * baselines[task]
            place = "above" if score["mean"] > baseline else "below"
            rows[task] = [column(task, metric), spread_cell(score, "{:.2f}"), number(baseline), place]
    if not rows:
        return None
    note = (
        "TF-IDF of words and a linear support vector machine, nothing tuned. It reads whole texts and all"
        " samples; where softmax is below, its texts are cut, or samples are few, as the tables say."
    )
    columns = ["", "softmax", "linear classifier", "softmax is"]
    return Table("Networks beside a classifier without one", columns, list(rows.values()), [note])


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
        parts.append(f"It is better on {listed(better)}.")
    if worse:
        parts.append(f"It is worse on {listed(worse)}.")
    if within:
        bounds = listed([f"{name} ({bound:.2f})" for name, bound in within.items()])
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
        f"**Calibration error**, softmax → AS-Softmax: {listed(lines)}. The probabilities of training with"
        " AS-Softmax are not calibrated; `sparring predict` scales them with a temperature from dev."
    )


def other_teams() -> str:
    """What an independent team found, in words."""
    seeds, softmax, ours = (published.INDEPENDENT[name] for name in ("seeds", "Softmax", "AS-Softmax"))
    gaps = []
    for task, n in seeds.items():
        points = f"{ours[task] - softmax[task]:+.1f} points on {task}"
        gaps.append(f"{points} ({n} seed{'s' if n > 1 else ''})")
    return (
        f"**An independent team** (haitomnsg/softmaxResearch, BERT-base, 2026) found {listed(gaps)}: no"
        " reliable gain either, and under-confident probabilities."
    )


def _told(gap: Difference) -> bool:
    return gap.p is not None and gap.p <= LEVEL


def listed(words: list[str]) -> str:
    return ", ".join(words)
