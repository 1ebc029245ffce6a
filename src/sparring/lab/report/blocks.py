"""The blocks of a report's section: what was collected of a task as charts and tables with a title and a note each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sparring.lab.kinds import get_kind
from sparring.lab.report import charts
from sparring.lab.report.charts import signed
from sparring.lab.runs.summaries import LEAST_SEEDS

Facts = dict[str, Any]  # what report.collect found of a task


class Cell(NamedTuple):
    text: str
    value: float | None = None  # to sort by, where the text is no number
    picture: str | None = None  # above the text


@dataclass
class Table:
    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    left: int = 1  # the first columns are words


@dataclass
class Block:
    title: str
    note: str = ""
    charts: dict[str, Any] = field(default_factory=dict)  # by caption
    tables: list[Table] = field(default_factory=list)
    folded: bool = False  # tables behind a line to click
    play: str = ""  # the slider that a button moves


def blocks(facts: Facts) -> list[Block]:
    """All that apply, in the order of the page."""
    made: list[Callable[[Facts], Block | None]] = [
        *(comparison, learning, won, margins, sensitivity, agreement, savings, classes, hardest, settings),
    ]
    return [block for make in made if (block := make(facts)) is not None]


# ------------------------------------------------------------ numbers as text


def percent(value: float | None, digits: int = 2) -> Cell:
    return Cell("–") if value is None else Cell(signed(100 * value, digits), 100 * value)


def number(value: float | None, digits: int = 2, after: str = "") -> Cell:
    return Cell("–") if value is None else Cell(signed(value, digits) + after, value)


def over(values: dict[str, Any] | None) -> Cell:
    """Mean ± standard deviation over seeds, in percent."""
    if values is None:
        return Cell("–")
    mean = percent(values["mean"])
    return mean if values["std"] is None else Cell(f"{mean.text} ± {percent(values['std']).text}", mean.value)


def chance(p: float | None, without: str = "–") -> Cell:
    return Cell(without) if p is None else Cell("< 0.001" if p < 0.001 else f"{p:.3f}", p)


def title_of(metric: str) -> str:
    return metric.replace("_", " ")


# ------------------------------------------------------------ blocks


def comparison(facts: Facts) -> Block:
    metric, first = title_of(facts["metric"]), facts["rows"][0]["contestant"]
    columns = [
        "contestant",
        "seeds",
        f"test {metric} %",
        f"dev {metric} %",
        "seconds",
        "faster",
        "forwards %",
        "backwards %",
        "updates",
        "won %",
        "r",
    ]
    rows = [
        [
            *(
                Cell(row["contestant"]),
                number(len(row["seeds"]), 0),
                over(row["test"]),
                over(row["dev"]),
                number(row["seconds"], 1),
            ),
            *(
                number(row["faster"], 2, "×"),
                percent(row["forwards"], 0),
                percent(row["backwards"], 0),
                number(row["updates"], 0),
            ),
            *(percent(row["won_share"], 0), number(row["correlation"])),
        ]
        for row in facts["rows"]
    ]
    note = (
        f"Mean ± standard deviation over seeds. seconds: training alone. faster: the time of {first} over this one's on the same seed, the "
        "median. forwards, backwards: samples, against one of each per sample and epoch. won: share of the last epoch's rows. r: "
        "correlation of dev loss and metric over a run; −1 is a loss that tells the quality."
    )
    tables = [Table("Comparison", columns, rows)]
    if facts["significance"]:
        tables.append(_significance(facts, first))
        note += (
            f" p over seeds: paired t-test of the {facts['part']} figure on the seeds both have ({LEAST_SEEDS} at least). p over samples: "
            "sign test on the test samples that one of the two has right more often (McNemar's exact test with one seed; a sequence or a "
            "set of labels is right as a whole). Neither is corrected for the number of contestants."
        )
    return Block("Comparison", note, tables=tables)


def _significance(facts: Facts, first: str) -> Table:
    columns = [
        "contestant",
        "common seeds",
        "difference",
        "95 % interval",
        "p over seeds",
        "samples better",
        "worse",
        "p over samples",
    ]
    rows = []
    for row in facts["significance"]:
        without = (
            f"no test: under {LEAST_SEEDS} seeds" if row["n_seeds"] < LEAST_SEEDS else "no test: all alike"
        )
        interval = "–" if row["low"] is None else f"{percent(row['low']).text} to {percent(row['high']).text}"
        counts = [number(row[name], 0) for name in ("better", "worse")]
        cells = [
            Cell(row["contestant"]),
            number(row["n_seeds"], 0),
            percent(row["difference"]),
            Cell(interval, row["low"]),
        ]
        rows.append([*cells, chance(row["p_seeds"], without), *counts, chance(row["p_samples"])])
    return Table(f"Against {first} (points of {facts['part']} {title_of(facts['metric'])})", columns, rows)


def learning(facts: Facts) -> Block:
    curves, order, metric = facts["curves"], facts["names"], title_of(facts["metric"])
    band = {"low": "low", "high": "high", "order": order}
    dev = {**band, "points": True, "y_title": f"dev {metric} %"}
    made = {
        f"Dev {metric} by epoch": charts.lines(curves["metric"], "epochs", "value", **dev),
        f"Dev {metric} by time": charts.lines(
            curves["metric"], "seconds", "value", **dev, x_title="seconds of training"
        ),
        "Training loss": charts.lines(
            curves["train_loss"], "epochs", "value", **band, y_title="training loss"
        ),
        "Dev loss": charts.lines(
            curves["dev_loss"], "epochs", "value", **band, points=True, y_title="dev loss"
        ),
    }
    note = (
        "Lines are means over seeds, bands a standard deviation to both sides. Each contestant's loss is its own: compare their shapes, "
        "not heights. A click on a name in a legend shows it alone."
    )
    return Block("Learning curves", note, made)


def won(facts: Facts) -> Block | None:
    curves, band = facts["curves"], {"low": "low", "high": "high", "order": facts["names"]}
    made = {
        "Won share in training": charts.lines(
            curves["won_share"], "epochs", "value", **band, y_title="won rows %", y_zero=True
        )
    }
    if curves["delta"]:
        made["δ in training"] = charts.lines(
            curves["delta"], "epochs", "value", **band, y_title="δ", y_zero=True
        )
    if curves["accumulation"]:
        made["Batches an optimizer step"] = charts.lines(
            curves["accumulation"], "epochs", "value", **band, y_title="batches", y_zero=True
        )
    return Block(
        "Won share",
        "A row is won when no strong opponent is left: its loss and gradient are exactly 0. Softmax never lets a row go.",
        made,
    )


def margins(facts: Facts) -> Block | None:
    rows = facts["curves"]["margins"]
    if not rows:
        return None
    made = charts.histogram(
        rows,
        "margin",
        "share",
        step="evaluation",
        rules=[0],
        order=facts["names"],
        x_title="p_margin",
        y_title="rows of dev %",
    )
    note = (
        "p_margin: probability of the true class less that of its strongest rival, on dev; below 0 the row is wrong. "
        f"The slider goes through {facts['looks']} looks at dev, from the first to the last."
    )
    return Block("Margins", note, {"Margins over training": made}, play="evaluation")


def sensitivity(facts: Facts) -> Block:
    names = {"delta": "δ", "tau": "τ", "epsilon": "ε"}
    metric, first = title_of(facts["metric"]), facts["sensitivity"]
    made = {}
    for setting, rows in first.items():
        chart = charts.against(
            rows, "setting", "value", "family", low="low", high="high", references=facts["references"],
            x_title=names.get(setting, setting), y_title=f"{facts['part']} {metric} %",
        )  # fmt: skip
        made[f"{facts['part'].capitalize()} {metric} by {names.get(setting, setting)}"] = chart
    if made:
        return Block(
            "δ and other settings",
            "Contestants that differ in one number; whiskers are a standard deviation to both sides.",
            made,
        )
    family = get_kind(facts["kind"]).loss_name("as-softmax")
    values = ",".join(f"{family}:delta={value}" for value in (0.1, 0.3, 0.5))
    return Block(
        "δ and other settings",
        f"Needs contestants that differ in one number alone, such as sparring compare … --losses {values}",
    )


def agreement(facts: Facts) -> Block:
    r = {row["contestant"]: row["correlation"] for row in facts["rows"]}
    metric = title_of(facts["metric"])
    made = charts.scatter(
        facts["curves"]["points"],
        "loss",
        "figure",
        r=r,
        fit=True,
        order=facts["names"],
        x_title="dev loss",
        y_title=f"dev {metric} %",
    )
    note = f"Every look at dev of every run. r: Pearson's correlation of dev loss and {metric} within a run, the mean over seeds."
    return Block("Loss and metric", note, {"Does the loss tell the quality?": made})


COUNTS = {"forwards": "forwards", "backwards": "backwards", "optimizer steps": "updates"}


def savings(facts: Facts) -> Block:
    first = facts["rows"][0]
    rows = [
        {"contestant": row["contestant"], "what": what, "share": 100 * share}
        for row in facts["rows"]
        for what, share in (
            ("time", 1 / row["faster"] if row["faster"] else None),
            *((word, row[name] / first[name] if first[name] else None) for word, name in COUNTS.items()),
        )
        if share is not None
    ]
    about, curves = f"% of {first['contestant']}", facts["curves"]
    made = {
        "What it took": charts.bars(
            rows, "share", "what", "contestant", rules=[100], order=facts["names"], x_title=about
        ),
        "Samples with a backward, by epoch": charts.lines(
            curves["backwards"],
            "epoch",
            "value",
            low="low",
            high="high",
            order=facts["names"],
            points=True,
            y_title="samples %",
            y_zero=True,
        ),
    }
    return Block(
        "Time and samples saved", f"Everything against {first['contestant']}, the dashed line.", made
    )


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
            *(
                Cell(row["contestant"]),
                Cell(row["class"]),
                number(row["samples"], 0),
                percent(row["before"], 1),
                percent(row["after"], 1),
            ),
            percent(row["difference"], 1),
        ]
        for row in rows
    ]
    columns = ["contestant", "class", "in test", f"F1 % of {first}", "F1 %", "difference"]
    table = Table(f"The largest gains and losses against {first}", columns, cells, left=2)
    note = f"F1 of each class on test against {first}, over the seeds both have. Ten gains and ten losses at most are shown of each."
    return Block(
        "Classes",
        note,
        {"Gains and losses by class": charts.gains(points, "points", "class", x_title="points of F1")},
        [table],
        True,
    )


def hardest(facts: Facts) -> Block | None:
    rows = [
        [
            *(
                Cell(row["sample"], picture=row["picture"]),
                Cell(row["gold"]),
                Cell(", ".join(f"{rival} ×{n}" for rival, n in row["rivals"].items()) or "–"),
            ),
            *(Cell(f"{row['right']} of {row['runs']}", row["right"]), number(row["margin"])),
        ]
        for row in facts["hardest"]
    ]
    if not rows:
        return None
    note = "The test samples with the lowest p_margin on the mean over all runs, and the rivals that took them, with the number of runs."
    return Block(
        "Hardest samples",
        note,
        tables=[Table("Hardest samples", ["sample", "true", "rivals", "right in", "margin"], rows, left=3)],
    )


def settings(facts: Facts) -> Block:
    common, own = facts["settings"]["common"], facts["settings"]["own"]
    fields = [name for name in own[0] if name != "contestant"]
    tables = [
        Table(
            "The same for all",
            ["setting", "value"],
            [[Cell(name), Cell(str(value))] for name, value in common.items()],
            left=2,
        )
    ]
    if fields:
        rows = [
            [
                Cell(row["contestant"]),
                *(Cell("–" if row[name] is None else str(row[name])) for name in fields),
            ]
            for row in own
        ]
        tables.append(Table("Not the same for all", ["contestant", *fields], rows, left=1 + len(fields)))
    for machine in facts["machines"]:
        versions = {name: value for name, value in machine["versions"].items() if value}
        plain = {
            name: value
            for name, value in machine.items()
            if name not in ("versions", "runs") and value is not None
        }
        cells = [[Cell(name), Cell(str(value))] for name, value in {**versions, **plain}.items()]
        tables.append(
            Table(f"Versions and machine of {machine['runs']} run(s)", ["what", "value"], cells, left=2)
        )
    folders = [[Cell(row["contestant"]), Cell(folder)] for row in facts["rows"] for folder in row["folders"]]
    tables.append(Table("Run folders", ["contestant", "folder"], folders, left=2))
    return Block(
        "Settings and versions",
        "Each run folder has its config.toml: sparring run --config makes it again.",
        tables=tables,
        folded=True,
    )
