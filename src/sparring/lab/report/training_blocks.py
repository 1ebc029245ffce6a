"""Blocks about training: curves, won rows, margins, settings, and what was saved."""

from __future__ import annotations

from typing import Any

from sparring.lab.report import charts
from sparring.lab.report.block import Block, Facts, listed, words_of

SYMBOLS = {"delta": "δ", "tau": "τ", "epsilon": "ε", "gamma": "γ", "alpha": "α", "beta": "β"}
SURE = 0.5  # a margin above it


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
    best = []
    for name in facts["names"]:
        rows = [row for row in curves["metric"] if row["contestant"] == name]
        if rows:
            top = max(rows, key=lambda row: row["value"])
            best.append(f"{name} {top['value']:.1f} % after {top['epochs']:.3g} epochs")
    verdict = f"The highest mean dev {metric}: {listed(best)}." if best else ""
    return Block("Learning curves", verdict, note, drawn)


def won_share(facts: Facts) -> Block | None:
    shares = {row["contestant"]: row["won_share"] for row in facts["rows"]}
    if not any(shares.values()):
        return None
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
    parts = listed(f"{100 * share:.0f} % with {name}" for name, share in shares.items())
    return Block("Won share", f"Won in the last epoch, and so without a gradient: {parts}.", note, drawn)


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
    parts = []
    for name in facts["names"]:
        mine = [row for row in rows if row["contestant"] == name]
        if mine:
            last = max(row["evaluation"] for row in mine)
            sure = sum(r["share"] for r in mine if r["evaluation"] == last and r["margin"] >= SURE)
            parts.append(f"{sure:.0f} % with {name}")
    verdict = f"Rows of dev with a margin above {SURE} at the last evaluation: {listed(parts)}."
    return Block("Margins", verdict, note, {"Margins over training": chart}, play="evaluation")


def sensitivity(facts: Facts) -> Block | None:
    if not facts["sensitivity"]:
        return None
    part, metric = facts["part"], words_of(facts["metric"])
    drawn = {}
    sentences = []
    for setting, rows in facts["sensitivity"].items():
        symbol = SYMBOLS.get(setting, setting)
        drawn[f"{part.capitalize()} {metric} by {symbol}"] = charts.against(
            *(rows, "setting", "value", "family"),
            whiskers=True,
            references=facts["references"],
            x_title=symbol,
            y_title=f"{part} {metric} %",
        )
        low, high = (choose(rows, key=lambda row: row["value"]) for choose in (min, max))
        spread = sum(row["high"] - row["value"] for row in rows) / len(rows)
        sentences.append(
            f"{symbol} = {high['setting']:g} has the highest {part} {metric} ({high['value']:.2f} %) and "
            f"{low['setting']:g} the lowest ({low['value']:.2f} %); "
            f"seeds alone move it by {spread:.2f} points."
        )
    note = "Contestants that differ in one number; whiskers are a standard deviation to both sides."
    return Block("δ and other settings", " ".join(sentences), note, drawn)


def agreement(facts: Facts) -> Block | None:
    if not facts["curves"]["points"]:
        return None
    metric = words_of(facts["metric"])
    correlations = {row["contestant"]: row["correlation"] for row in facts["rows"]}
    chart = charts.scatter(
        *(facts["curves"]["points"], "loss", "figure"),
        r=correlations,
        fit=True,
        order=facts["names"],
        x_title="dev loss",
        y_title=f"dev {metric} %",
    )
    note = (
        f"Every evaluation on dev of every run. r: Pearson's correlation of dev loss and {metric} within a "
        "run, the mean over seeds."
    )
    known = {name: r for name, r in correlations.items() if r is not None}
    verdict = "Too few evaluations to tell whether the loss follows the metric."
    if known:
        parts = listed(f"{r:.2f} with {name}".replace("-", "−", 1) for name, r in known.items())
        verdict = f"−1 would mean that a lower dev loss always goes with a better {metric}: r is {parts}."
    return Block("Loss and metric", verdict, note, {"Does the loss tell the quality?": chart})


def savings(facts: Facts) -> Block | None:
    first, *others = facts["rows"]
    if not others and not first["won_share"]:
        return None
    drawn = {}
    if others:
        drawn["What it took"] = _costs(facts)
    drawn["Samples with a backward, by epoch"] = charts.lines(
        *(facts["curves"]["backwards"], "epoch", "value"),
        band=True,
        order=facts["names"],
        points=True,
        y_title="samples %",
        y_zero=True,
    )
    if not others:
        verdict = (
            f"{first['contestant']} had a backward pass for {100 * first['backwards']:.0f} % of the samples."
        )
        return Block("Time and samples saved", verdict, "", drawn)
    sentences = []
    for row in others:
        passes = f"{100 * row['forwards']:.0f} % of the forward and {100 * row['backwards']:.0f} % of the "
        time = ""
        if row["faster"] is not None:
            time = f"{100 / row['faster']:.0f} % of {first['contestant']}'s training time, "
        sentences.append(f"{row['contestant']} took {time}{passes}backward passes.")
    note = "Passes are counted against one forward and one backward pass per sample and epoch."
    return Block("Time and samples saved", " ".join(sentences), note, drawn)


def _costs(facts: Facts) -> Any:
    """Bars of time, passes and steps against the first contestant's."""
    first = facts["rows"][0]
    rows = []
    for row in facts["rows"]:
        shares = {"time": 1 / row["faster"] if row["faster"] else None}
        for what in ("forwards", "backwards", "updates"):
            name = "optimizer steps" if what == "updates" else what
            shares[name] = row[what] / first[what] if first[what] else None
        rows += [
            {"contestant": row["contestant"], "what": what, "share": 100 * share}
            for what, share in shares.items()
            if share is not None
        ]
    x_title = f"% of {first['contestant']}"
    return charts.bars(
        rows, "share", "what", "contestant", rules=[100], order=facts["names"], x_title=x_title
    )
