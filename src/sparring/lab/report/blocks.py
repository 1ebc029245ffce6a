"""The blocks of a report's section: what was collected about a task, as charts and tables with a verdict."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sparring.lab.differences import LEAST_SEEDS
from sparring.lab.report import charts
from sparring.lab.report.block import Block, Facts, listed, words_of
from sparring.lab.report.samples import LEAST_SAMPLES
from sparring.lab.report.training_blocks import (
    agreement,
    learning,
    margins,
    savings,
    sensitivity,
    won_share,
)
from sparring.lab.runs.summaries import (
    CALIBRATION_LEGEND,
    LEGEND,
    WON_LEGEND,
    calibration_table,
    comparison,
    verdicts,
)
from sparring.lab.table import Cell, Table, number, percent, plural


def blocks(facts: Facts) -> list[Block]:
    """All blocks that apply, in the order of the page."""
    makers: list[Callable[[Facts], Block | None]] = [
        *(comparison_block, savings, calibration, learning, won_share, margins, sensitivity, agreement),
        *(classes, confusions, hardest, suspects, settings),
    ]
    return [block for make in makers if (block := make(facts)) is not None]


def comparison_block(facts: Facts) -> Block:
    first = facts["rows"][0]["contestant"]
    note = f"Mean ± standard deviation over seeds. faster: median over common seeds. {WON_LEGEND} {LEGEND}"
    tables = [comparison("Comparison", facts["rows"], wide=True)]
    if facts["significance"]:
        tables.append(_significance(facts, first))
        note += (
            f" p over seeds: paired t-test of the {facts['part']} metric on the common seeds (at least "
            f"{LEAST_SEEDS}). p over samples: sign test on the test samples that one of the two has right "
            "more often (McNemar's exact test with one seed; a sequence or a set of labels is right as a "
            "whole). Neither is corrected for the number of contestants."
        )
    row = facts["rows"][0]
    score = f"{100 * row[facts['part']]['mean']:.2f} % {facts['part']} {words_of(facts['metric'])}"
    mean = "with one seed" if len(row["seeds"]) == 1 else f"the mean of {len(row['seeds'])} seeds"
    alone = f"{first} reaches {score}, {mean}."
    return Block("Comparison", " ".join(verdicts(facts["rows"])) or alone, note, tables=tables)


def _significance(facts: Facts, first: str) -> Table:
    columns = ["contestant", "common seeds", "difference", "95 % interval", "p over seeds"]
    rows = []
    for row in facts["significance"]:
        low, high = percent(row["low"]), percent(row["high"])
        no_test = "all alike" if row["n_seeds"] >= LEAST_SEEDS else f"under {LEAST_SEEDS} seeds"
        rows.append(
            [
                row["contestant"],
                number(row["n_seeds"], 0),
                percent(row["difference"]),
                low if row["low"] is None else Cell(f"{low.text} to {high.text}", low.value),
                _p_value(row["p_seeds"], f"no test: {no_test}"),
                number(row["better"], 0),
                number(row["worse"], 0),
                _p_value(row["p_samples"], "–"),
            ]
        )
    title = f"Against {first} (points of {facts['part']} {words_of(facts['metric'])})"
    return Table(title, [*columns, "samples better", "worse", "p over samples"], rows)


def _p_value(p: float | None, missing: str) -> Cell:
    return Cell(missing, None) if p is None else Cell("< 0.001" if p < 0.001 else f"{p:.3f}", p)


def calibration(facts: Facts) -> Block | None:
    table = calibration_table(facts["rows"])
    if table is None or not facts["reliability"]:
        return None
    chart = charts.diagonal(
        *(facts["reliability"], "confidence", "accuracy", "rows", "contestant", "probabilities"),
        order=facts["names"],
        x_title="mean probability of the predicted class",
        y_title="share that is right",
    )
    known = [row for row in facts["rows"] if row["calibration"]]
    parts = []
    for row in known:
        before, after = (row["calibration"][state]["ece"] for state in ("before", "after"))
        scaled = "" if after is None else f", {100 * after['mean']:.1f} after temperature scaling"
        parts.append(f"{row['contestant']} {100 * before['mean']:.1f} points{scaled}")
    lean = [name for row in known if (name := _lean(row))]
    verdict = (
        f"Probabilities differ from the share that is right by (ECE): {'; '.join(parts)}. {' '.join(lean)}"
    )
    note = (
        "Points on the dashed line are calibrated; below it the network is too sure, above it too unsure. "
        "Seeds are added up, larger points have more rows, and bins of fewer than ten rows are left out. "
        f"{CALIBRATION_LEGEND}"
    )
    return Block("Calibration", verdict.strip(), note, {"Reliability": chart}, [table])


def _lean(row: Any) -> str:
    """Whether a contestant is too sure or too unsure, by its temperature."""
    temperature = row["calibration"]["temperature"]
    if temperature is None or 0.9 <= temperature["mean"] <= 1.1:
        return ""
    word = "sure" if temperature["mean"] > 1 else "unsure"
    return f"{row['contestant']} is too {word} of its predictions (temperature {temperature['mean']:.2f})."


def classes(facts: Facts) -> Block | None:
    rows, first = facts["classes"], facts["rows"][0]["contestant"]
    if not rows:
        return None
    edges = ("difference", "low", "high")
    points = [
        {
            **{name: row[name] for name in ("contestant", "class")},
            **{
                name: round(100 * row[edge], 3)
                for name, edge in zip(("points", *edges[1:]), edges, strict=True)
            },
        }
        for row in rows
    ]
    cells = [
        [
            *(row["contestant"], row["class"], number(row["samples"], 0)),
            *(percent(row[name], 1) for name in ("before", "after", "difference", "low", "high")),
        ]
        for row in rows
    ]
    columns = ["contestant", "class", "in test", f"F1 % of {first}", "F1 %", "difference", "95 % from", "to"]
    table = Table(f"The largest gains and losses against {first}", columns, cells, n_text=2)
    chart = charts.gains(points, "points", "class", x_title="points of F1")
    sentences = []
    for name in dict.fromkeys(row["contestant"] for row in rows):
        mine = [row for row in rows if row["contestant"] == name]
        better = [row["class"] for row in mine if row["low"] > 0]
        worse = [row["class"] for row in mine if row["high"] < 0]
        changes = [
            f"{word} on {listed(some)}" for word, some in (("better", better), ("worse", worse)) if some
        ]
        clear = listed(changes) if changes else "not clearly better or worse on any class"
        sentences.append(f"{name} is {clear}.")
    note = (
        f"F1 of each class on test against {first}, over the common seeds, with 95 % intervals (bootstrap "
        "over test samples; one class in 20 is outside by chance). Classes with fewer than "
        f"{LEAST_SAMPLES} test samples are left out. At most ten gains and ten losses of each contestant are "
        "shown."
    )
    drawn = {"Gains and losses by class": chart}
    return Block("Classes", " ".join(sentences), note, drawn, [table], folded=True)


def confusions(facts: Facts) -> Block | None:
    found = facts["confusions"]
    if not found["largest"]:
        return None
    names = facts["names"]
    chart = charts.matrix(
        *(found["cells"], "predicted", "true", "share", "contestant"),
        order=found["classes"],
        x_title="predicted",
        y_title="true",
    )
    cells = [
        [row["true"], row["predicted"], number(row["samples"], 0), *(percent(row[name], 1) for name in names)]
        for row in found["largest"]
    ]
    table = Table(
        "The largest confusions, % of the true class",
        ["true", "predicted", "in test", *names],
        cells,
        n_text=2,
    )
    top = found["largest"][0]
    shares = listed(f"{100 * top[name]:.1f} % with {name}" for name in names if top[name] is not None)
    verdict = f"The most frequent confusion: {top['true']} is taken for {top['predicted']}, {shares}."
    note = (
        "Percent of the test rows of the true class, over all seeds. Classes of the largest confusions only."
    )
    return Block(
        "Confusions", verdict, note, {"Confusion matrix, % of the true class": chart}, [table], folded=True
    )


def hardest(facts: Facts) -> Block | None:
    if not facts["hardest"]:
        return None
    rows = [
        [
            Cell(row["sample"], row["sample"], row["picture"]),
            row["gold"],
            ", ".join(f"{rival} ×{n}" for rival, n in row["rivals"].items()) or "–",
            Cell(f"{row['right']} of {row['runs']}", row["right"]),
            number(row["margin"]),
        ]
        for row in facts["hardest"]
    ]
    table = Table("Hardest samples", ["sample", "true", "rivals", "right in", "margin"], rows, n_text=3)
    counts = facts["mistakes"]
    verdict = (
        f"{counts['ever']:,} of {counts['samples']:,} test samples are wrong in at least one run, "
        f"{counts['always']:,} in all {counts['runs']}."
    )
    note = (
        "The test samples that some run has wrong with the lowest mean p_margin over all runs, and the "
        "classes that were predicted instead, with the number of runs."
    )
    return Block("Hardest samples", verdict, note, tables=[table])


def suspects(facts: Facts) -> Block | None:
    if not facts["suspects"]:
        return None
    rows = [
        [
            Cell(row["sample"], row["sample"], row["picture"]),
            *(row["given"], row["proposed"], number(row["score"])),
            Cell(f"{row['runs']} of {row['n_runs']}", row["runs"]),
        ]
        for row in facts["suspects"]
    ]
    table = Table("Labels that look wrong", ["sample", "given", "proposed", "score", "runs"], rows, n_text=3)
    note = (
        "Training samples whose label another class led on average over the epochs, most suspicious first. "
        "sparring suspects lists all of them and writes a cleaned file."
    )
    n_all = sum(row["runs"] == row["n_runs"] for row in facts["suspects"])
    n_runs = facts["suspects"][0]["n_runs"]
    verdict = f"Training labels that look wrong: {len(rows)} are listed here"
    verdict += f", {n_all} of them look wrong in all {n_runs} runs." if n_runs > 1 else "."
    return Block("Suspects", verdict, note, tables=[table])


def settings(facts: Facts) -> Block:
    common, differing = facts["settings"]["common"], facts["settings"]["own"]
    tables = [_text_table("The same for all", ["setting", "value"], list(common.items()))]
    names = [name for name in differing[0] if name != "contestant"]
    if names:
        rows = [[row["contestant"], *(row[name] for name in names)] for row in differing]
        tables.append(_text_table("Not the same for all", ["contestant", *names], rows))
    for machine in facts["machines"]:
        details = {name: value for name, value in machine.items() if name not in ("versions", "runs")}
        pairs = [
            (name, value) for name, value in {**machine["versions"], **details}.items() if value is not None
        ]
        title = f"Versions and machine of {plural(machine['runs'], 'run')}"
        tables.append(_text_table(title, ["what", "value"], pairs))
    folders = [(row["contestant"], folder) for row in facts["rows"] for folder in row["folders"]]
    tables.append(_text_table("Run folders", ["contestant", "folder"], folders))
    note = "Each run folder has its config.toml: sparring run --config makes it again."
    verdict = "All contestants have the same settings."
    if names:
        verdict = f"The contestants differ in {listed(names)}; everything else is the same."
    return Block("Settings and versions", verdict, note, tables=tables, folded=True)


def _text_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> Table:
    texts = [["–" if value is None else str(value) for value in row] for row in rows]
    return Table(title, columns, texts, n_text=len(columns))
