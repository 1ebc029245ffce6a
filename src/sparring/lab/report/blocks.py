"""The blocks of a report's section: what was collected about a task, as charts and tables with a note."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from sparring.lab.kinds import get_kind
from sparring.lab.report import charts
from sparring.lab.runs.summaries import LEAST_SEEDS, LEGEND, comparison
from sparring.lab.table import Cell, Table, number, percent

Facts = dict[str, Any]  # what build.collect returns for a task
SYMBOLS = {"delta": "δ", "tau": "τ", "epsilon": "ε", "gamma": "γ", "alpha": "α", "beta": "β"}


@dataclass
class Block:
    """A part of the page under a heading."""

    title: str
    note: str = ""
    charts: dict[str, Any] = field(default_factory=dict)  # by caption
    tables: list[Table] = field(default_factory=list)
    folded: bool = False  # whether the tables are hidden behind a line to click
    play: str = ""  # the slider that a button moves


def blocks(facts: Facts) -> list[Block]:
    """All blocks that apply, in the order of the page."""
    makers: list[Callable[[Facts], Block | None]] = [
        *(comparison_block, learning, won_share, margins, sensitivity),
        *(agreement, savings, classes, hardest, suspects, settings),
    ]
    return [block for make in makers if (block := make(facts)) is not None]


def words_of(metric: str) -> str:
    return metric.replace("_", " ")


def comparison_block(facts: Facts) -> Block:
    first = facts["rows"][0]["contestant"]
    note = f"Mean ± standard deviation over seeds. faster: median over common seeds. {LEGEND}"
    tables = [comparison("Comparison", facts["rows"], seeds=True)]
    if facts["significance"]:
        tables.append(_significance(facts, first))
        note += (
            f" p over seeds: paired t-test of the {facts['part']} metric on the common seeds (at least "
            f"{LEAST_SEEDS}). p over samples: sign test on the test samples that one of the two has right "
            "more often (McNemar's exact test with one seed; a sequence or a set of labels is right as a "
            "whole). Neither is corrected for the number of contestants."
        )
    return Block("Comparison", note, tables=tables)


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


def learning(facts: Facts) -> Block:
    curves, metric = facts["curves"], words_of(facts["metric"])

    def draw(curve: str, y_title: str, x: str = "epochs", points: bool = True, **look: Any) -> Any:
        look |= {"points": points, "y_title": y_title, "order": facts["names"]}
        return charts.lines(curves[curve], x, "value", band=True, **look)

    drawn = {
        f"Dev {metric} by epoch": draw("metric", f"dev {metric} %"),
        f"Dev {metric} by time": draw("metric", f"dev {metric} %", "seconds", x_title="seconds of training"),
        "Training loss": draw("train_loss", "training loss", points=False),
        "Dev loss": draw("dev_loss", "dev loss"),
    }
    note = (
        "Lines are means over seeds, bands a standard deviation to both sides. Each contestant has its own "
        "loss: compare the shapes, not the heights. A click on a name in a legend shows it alone."
    )
    return Block("Learning curves", note, drawn)


def won_share(facts: Facts) -> Block:
    drawn = {}
    for curve, caption, y_title in (
        ("won_share", "Won share in training", "won rows %"),
        ("delta", "δ in training", "δ"),
        ("accumulation", "Batches an optimizer step", "batches"),
    ):
        if facts["curves"][curve] or curve == "won_share":
            drawn[caption] = charts.lines(
                *(facts["curves"][curve], "epochs", "value"),
                band=True,
                order=facts["names"],
                y_title=y_title,
                y_zero=True,
            )
    note = (
        "A row is won when no strong opponent is left: its loss and gradient are exactly 0. "
        "With softmax no row is ever won."
    )
    return Block("Won share", note, drawn)


def margins(facts: Facts) -> Block | None:
    rows = facts["curves"]["margins"]
    if not rows:
        return None
    titles = {"x_title": "p_margin", "y_title": "rows of dev %"}
    chart = charts.histogram(
        rows, "margin", "share", step="evaluation", rules=[0], order=facts["names"], **titles
    )
    note = (
        "p_margin: probability of the true class less that of its strongest rival, on dev; below 0 the row "
        f"is wrong. The slider goes through {facts['looks']} evaluations on dev, from the first to the last."
    )
    return Block("Margins", note, {"Margins over training": chart}, play="evaluation")


def sensitivity(facts: Facts) -> Block:
    part, metric = facts["part"], words_of(facts["metric"])
    drawn = {}
    for setting, rows in facts["sensitivity"].items():
        symbol = SYMBOLS.get(setting, setting)
        drawn[f"{part.capitalize()} {metric} by {symbol}"] = charts.against(
            *(rows, "setting", "value", "family"),
            whiskers=True,
            references=facts["references"],
            x_title=symbol,
            y_title=f"{part} {metric} %",
        )
    note = "Contestants that differ in one number; whiskers are a standard deviation to both sides."
    if not drawn:
        loss = get_kind(facts["kind"]).loss_name("as-softmax")
        losses = ",".join(f"{loss}:delta={value}" for value in (0.1, 0.3, 0.5))
        note = f"Needs contestants that differ in one number alone: sparring compare … --losses {losses}"
    return Block("δ and other settings", note, drawn)


def agreement(facts: Facts) -> Block:
    metric = words_of(facts["metric"])
    chart = charts.scatter(
        *(facts["curves"]["points"], "loss", "figure"),
        r={row["contestant"]: row["correlation"] for row in facts["rows"]},
        fit=True,
        order=facts["names"],
        x_title="dev loss",
        y_title=f"dev {metric} %",
    )
    note = (
        f"Every evaluation on dev of every run. r: Pearson's correlation of dev loss and {metric} within a "
        "run, the mean over seeds."
    )
    return Block("Loss and metric", note, {"Does the loss tell the quality?": chart})


def savings(facts: Facts) -> Block:
    first = facts["rows"][0]
    rows = []
    for row in facts["rows"]:
        shares = {"time": 1 / row["faster"] if row["faster"] else None}
        for what, name in (
            ("forwards", "forwards"),
            ("backwards", "backwards"),
            ("optimizer steps", "updates"),
        ):
            shares[what] = row[name] / first[name] if first[name] else None
        rows += [
            {"contestant": row["contestant"], "what": what, "share": 100 * share}
            for what, share in shares.items()
            if share is not None
        ]
    order = facts["names"]
    x_title = f"% of {first['contestant']}"
    drawn = {
        "What it took": charts.bars(
            rows, "share", "what", "contestant", rules=[100], order=order, x_title=x_title
        ),
        "Samples with a backward, by epoch": charts.lines(
            *(facts["curves"]["backwards"], "epoch", "value"),
            band=True,
            order=order,
            points=True,
            y_title="samples %",
            y_zero=True,
        ),
    }
    note = f"Everything against {first['contestant']}, the dashed line."
    return Block("Time and samples saved", note, drawn)


def classes(facts: Facts) -> Block | None:
    rows, first = facts["classes"], facts["rows"][0]["contestant"]
    if not rows:
        return None
    points = [
        {"contestant": row["contestant"], "class": row["class"], "points": 100 * row["difference"]}
        for row in rows
    ]
    cells = [
        [
            *(row["contestant"], row["class"], number(row["samples"], 0)),
            *(percent(row[name], 1) for name in ("before", "after", "difference")),
        ]
        for row in rows
    ]
    columns = ["contestant", "class", "in test", f"F1 % of {first}", "F1 %", "difference"]
    table = Table(f"The largest gains and losses against {first}", columns, cells, n_text=2)
    chart = charts.gains(points, "points", "class", x_title="points of F1")
    note = (
        f"F1 of each class on test against {first}, over the common seeds. "
        "At most ten gains and ten losses of each contestant are shown."
    )
    return Block("Classes", note, {"Gains and losses by class": chart}, [table], folded=True)


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
    note = (
        "The test samples with the lowest mean p_margin over all runs, and the classes that were predicted "
        "instead, with the number of runs."
    )
    return Block("Hardest samples", note, tables=[table])


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
    return Block("Suspects", note, tables=[table])


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
        title = f"Versions and machine of {machine['runs']} run(s)"
        tables.append(_text_table(title, ["what", "value"], pairs))
    folders = [(row["contestant"], folder) for row in facts["rows"] for folder in row["folders"]]
    tables.append(_text_table("Run folders", ["contestant", "folder"], folders))
    note = "Each run folder has its config.toml: sparring run --config makes it again."
    return Block("Settings and versions", note, tables=tables, folded=True)


def _text_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> Table:
    texts = [["–" if value is None else str(value) for value in row] for row in rows]
    return Table(title, columns, texts, n_text=len(columns))
