"""The page of results: what the records of all studies show. No number on it is typed by hand."""

import os
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

from sparring.lab.differences import LEAST_SEEDS, LEVEL, difference
from sparring.lab.errors import UserError
from sparring.lab.paper.methods import SOFTMAX
from sparring.lab.paper.page.claims import all_findings
from sparring.lab.paper.page.delta import delta_conclusion
from sparring.lab.paper.page.evidence import (
    baselines_table,
    calibration_conclusion,
    calibration_tables,
    conclusion,
    other_teams,
    power_table,
    read_baselines,
)
from sparring.lab.paper.page.finding import NO, OPEN, YES, findings_table
from sparring.lab.paper.studies import STUDIES
from sparring.lab.paper.study_records import Results, errors_name, read_results
from sparring.lab.runs.records import write
from sparring.lab.runs.summaries import CALIBRATION_LEGEND
from sparring.lab.table import Table, wrapped

BESIDE = "scope_and_tail"  # benchmarks/scope_and_tail.py writes it


def write_page(records: Path, page: Path) -> None:
    """Write the page for a folder of records that ``--save`` wrote, with the charts that lie beside them.

    Raises:
        UserError: There are no records, or no table can be made of them.
    """
    paths = {path.stem.replace("_", " "): path for path in sorted(records.glob("*.jsonl"))}
    studies = {name: read_results(paths[name]) for name in STUDIES if name in paths}
    if not studies:
        message = f"{records}: no records of studies; sparring paper TABLE --save {records} writes them"
        raise UserError(message)
    parts = [introduction(records, page)]
    with errors_name(records):
        parts.append(claims_section(list(studies.values())))
        pair = studies.get("accuracy") or studies.get("table2")
        parts += evidence_sections(pair, studies, read_baselines(records))
    for name, results in studies.items():
        with errors_name(paths[name]):
            parts.append(study_section(name, results, records, page))
    write(page, "\n".join(parts))


def introduction(records: Path, page: Path) -> str:
    report = records / "report.html"
    link = ""
    if report.exists():
        address = os.path.relpath(report, page.parent)
        link = f" [The same runs to look at]({address}), one page for a browser."
    if (page.parent / BESIDE / "README.md").exists():
        link += f" [Samples of no class, and rare classes]({BESIDE}/README.md) have a page of their own."
    text = (
        f"Made by `sparring paper page --records {records} --save …` from the records beside it. Each table "
        "names what was run. Where that is smaller than the papers' BERT-base with all the data, compare the "
        "differences between methods, not their level. `sparring paper TABLE --scale full` is the setting "
        f"of the papers.{link}"
    )
    return f"# The papers, rerun\n\n{wrapped(text)}\n"


def claims_section(studies: Sequence[Results]) -> str:
    """The claims of all studies, and how many of them reproduced."""
    rows = all_findings(studies)
    if not rows:
        return ""
    n_yes, n_no, n_open = (sum(row.outcome == outcome for row in rows) for outcome in (YES, NO, OPEN))
    counts = sorted({n for results in studies for n in results.n_seeds()})
    seeds = f"{counts[0]} to {counts[-1]}" if len(counts) > 1 else f"{counts[0]}"
    text = (
        f"Of {len(rows)} claims held against our runs, {n_yes} reproduced and {n_no} did not. For {n_open} "
        f"nothing can be said: the difference is not larger than {seeds} seeds vary by themselves "
        f"(paired t-test, p > {LEVEL}; no test with fewer than {LEAST_SEEDS} seeds). A 95 % interval says "
        "which differences the runs leave possible: what lies outside of it can be ruled out, what lies "
        "inside cannot. A claim did not reproduce, too, where the interval rules out a difference as large "
        "as the paper's; on a task that the paper's table lacks, as large as the mean of that table."
    )
    parts = [wrapped(text), _seed_spread(studies), findings_table(rows).markdown()]
    return "## What reproduced\n\n" + "\n\n".join(part for part in parts if part) + over_tasks(studies)


def evidence_sections(
    quality: Results | None, studies: Mapping[str, Results], baselines: Mapping[str, float]
) -> list[str]:
    """What we conclude; what the runs can show; calibration. Nothing without results of the two methods."""
    if quality is None:
        return []
    sections = []
    texts = [conclusion(quality), calibration_conclusion(quality)]
    texts.append(delta_conclusion(studies["delta"]) if "delta" in studies else "")
    texts = [text for text in texts if text]
    if texts:
        texts.append(other_teams())
        sections.append("\n## What we conclude\n\n" + "\n\n".join(wrapped(text) for text in texts) + "\n")
    tables = [power_table(quality), baselines_table([quality, *studies.values()], baselines)]
    kept = [table.markdown() for table in tables if table is not None and table.rows]
    if kept:
        sections.append("\n## How sure the runs are, and how good the networks\n\n" + "\n".join(kept))
    if calibrated := calibration_tables(quality):
        note = f"{CALIBRATION_LEGEND} Without an arrow: every row of dev was right, so no temperature fits."
        tables_text = "\n".join(table.markdown() for table in calibrated)
        sections.append(f"\n## Calibration\n\n{wrapped(note)}\n\n{tables_text}")
    return sections


def _quality(studies: Sequence[Results]) -> Results | None:
    return next((results for results in studies if results.study == "table2"), None)


def over_tasks(studies: Sequence[Results]) -> str:
    """Each method against softmax, with tasks in the place of seeds."""
    quality = _quality(studies)
    if quality is None or len(quality.tasks) < LEAST_SEEDS:
        return ""
    means = {
        method: {
            i: score["mean"]
            for i, task in enumerate(quality.tasks)
            if (score := quality.score(task, method)) is not None
        }
        for method in quality.methods()
    }
    base = means.get(SOFTMAX, {})
    rows = []
    for method, scores in means.items():
        gap = difference(scores, base)
        if method == SOFTMAX or gap is None:
            continue
        interval = "–" if gap.low is None else f"{gap.low:+.2f} to {gap.high:+.2f}"
        n_ahead = sum(scores[i] > base[i] for i in scores if i in base)
        rows.append([method.name, str(gap.n), f"{gap.mean:+.2f}", interval, f"{n_ahead} of {gap.n}"])
    table = Table("", ["against softmax", "tasks", "mean difference in points", "95 %", "ahead on"], rows)
    return (
        "\nOver all tasks, with the mean over seeds of each (a figure's own scale differs from task to task):"
        f"\n\n{table.markdown()}"
    )


def _seed_spread(studies: Sequence[Results]) -> str:
    """How far seeds alone move a score, and the range over methods."""
    quality = _quality(studies)
    parts = []
    for task in quality.tasks if quality else []:
        assert quality is not None
        scores = [s for method in quality.methods(task) if (s := quality.score(task, method)) is not None]
        stds = [score["std"] for score in scores if score["std"] is not None]
        means = [score["mean"] for score in scores]
        if stds:
            parts.append(f"{task} {statistics.mean(stds):.2f} ({min(means):.1f} to {max(means):.1f})")
    if not parts:
        return ""
    values = ", ".join(parts)
    return wrapped(
        f"Standard deviation over seeds in points, and the range of all methods in percent: {values}."
    )


def study_section(name: str, results: Results, records: Path, page: Path) -> str:
    """A study's tables and charts."""
    study = STUDIES[name]
    prefix = f"{name.replace(' ', '_')}_"
    charts = [
        f"![{name}, {path.stem.removeprefix(prefix)}]({os.path.relpath(path, page.parent)})\n"
        for path in sorted(records.glob(f"{prefix}*.svg"))
    ]
    tables = [table.markdown() for table in study.tables(results)]
    return "\n".join([f"\n## {name}: {study.about}\n", *tables, *charts])
