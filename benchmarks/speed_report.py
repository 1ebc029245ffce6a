"""What the speed benchmark's runs come to: rows, a table for the terminal, one for the page, and a chart."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import altair as alt
from speed_contestants import Contestant, epochs_of, lines

from sparring.files import atomic_write
from sparring.lab.runs.summaries import percent_cell, spread
from sparring.lab.table import Cell, Table

Summary = dict[str, Any]
COLUMNS = (
    "",
    "test %",
    "dev %",
    "time",
    "processor time",
    "seconds",
    "forwards",
    "backwards",
    "updates",
    "won by epoch %",
    "to softmax's dev",
)


def row_of(
    contestant: Contestant, group: Sequence[Summary], done: dict[tuple[str, int], Summary]
) -> dict[str, Any]:
    """One contestant over its seeds. ``time`` is its mean seconds over softmax's on the same seeds."""
    base = [done["softmax", one["seed"]] for one in group]
    metric, n_samples = group[0]["metric"], group[0]["n_samples"]
    planned = base[0]["n_samples"] * base[0]["epochs"]
    epochs = [epochs_of(one) for one in group]
    reached = [
        _reached(one, softmax["seconds"], _final(softmax)) for one, softmax in zip(group, base, strict=True)
    ]
    return {
        "contestant": contestant.name,
        "command": contestant.words,
        "control": contestant.control,
        "metric": metric,
        "n_samples": n_samples,
        "seeds": [one["seed"] for one in group],
        "test": spread([one["test"][metric] for one in group]),
        "dev": spread([one["dev"][metric] for one in group]),
        "seconds": [one["seconds"] for one in group],
        "time": statistics.mean(one["seconds"] for one in group)
        / statistics.mean(one["seconds"] for one in base),
        "cpu_seconds": [one["cpu_seconds"] for one in group],
        "cpu_time": statistics.mean(one["cpu_seconds"] for one in group)
        / statistics.mean(one["cpu_seconds"] for one in base),
        "epochs": [one["epochs"] for one in group],
        "forwards": statistics.mean(one["n_forward"] for one in group) / planned,
        "backwards": statistics.mean(one["n_backward"] for one in group) / planned,
        "updates": statistics.mean(one["n_updates"] for one in group),
        "won_share": _by_epoch(epochs, lambda epoch: epoch["won_share"]),
        "resting": _by_epoch(epochs, lambda epoch: epoch["rest"] / n_samples),
        "without_backward": _by_epoch(epochs, lambda epoch: 1 - epoch["n_backward"] / n_samples),
        "epoch_seconds": _by_epoch(epochs, lambda epoch: epoch["seconds"]),
        "reached": reached,
        "curve": [[(e["seconds"], e[metric]) for e in lines(one, "evaluations")] for one in group],
    }


def _by_epoch(epochs: Sequence[list[dict[str, Any]]], figure: Any) -> list[float]:
    return [statistics.mean(figure(epoch) for epoch in same) for same in zip(*epochs, strict=False)]


def _final(summary: Summary) -> float:
    """The dev score a run ended with."""
    return float(lines(summary, "evaluations")[-1][summary["metric"]])


def _reached(summary: Summary, seconds: float, score: float) -> float | None:
    """The share of softmax's time until a run reaches softmax's final dev score; None if it never does."""
    shares = (e["seconds"] / seconds for e in lines(summary, "evaluations") if e[summary["metric"]] >= score)
    return next(shares, None)


# ------------------------------------------------------------ tables


def cells(row: dict[str, Any]) -> tuple[str | Cell, ...]:
    reached = [share for share in row["reached"] if share is not None]
    there = f"{statistics.mean(reached):.2f}" if reached else "never"
    some = f" ({len(reached)} of {len(row['reached'])})" if 0 < len(reached) < len(row["reached"]) else ""
    won = " ".join(f"{100 * share:.0f}" for share in row["won_share"]) if any(row["won_share"]) else "–"
    return (
        ("control: " if row["control"] else "") + row["contestant"],
        percent_cell(row["test"]),
        percent_cell(row["dev"]),
        f"{row['time']:.2f}",
        f"{row['cpu_time']:.2f}",
        f"{statistics.mean(row['seconds']):.0f}",
        f"{row['forwards']:.2f}",
        f"{row['backwards']:.2f}",
        f"{row['updates']:.0f}",
        won,
        there + some,
    )


def title_of(result: dict[str, Any]) -> str:
    first, settings = result["rows"][0], result["settings"]
    words = ", ".join(f"{name} {value}" for name, value in settings.items() if name != "freeze_embeddings")
    size = f"{first['n_samples']:,} samples, {len(first['seeds'])} seed(s)"
    return f"{result['task']}: {first['metric']}, {size}, {words}"


def table_of(result: dict[str, Any]) -> Table:
    return Table(title_of(result), COLUMNS, [cells(row) for row in result["rows"]])


# ------------------------------------------------------------ chart


def chart(result: dict[str, Any], path: Path) -> None:
    """Test quality against the time it took, and dev quality on the way."""
    metric = result["rows"][0]["metric"].replace("_", " ")
    points = [
        {
            "contestant": row["contestant"],
            "kind": kind(row),
            "time": row["time"],
            "test": 100 * row["test"]["mean"],
            "spread": 100 * (row["test"]["std"] or 0),
        }
        for row in result["rows"]
    ]
    softmax = statistics.mean(result["rows"][0]["seconds"])
    shown = [
        row
        for row in result["rows"]
        if row["contestant"] in ("softmax", "AS-Softmax", "AS-Speed", "everything on") or row["control"]
    ]
    curves = [
        {
            "contestant": row["contestant"],
            "time": statistics.mean(s for s, _ in same) / softmax,
            "dev": 100 * statistics.mean(v for _, v in same),
        }
        for row in shown
        for same in zip(*row["curve"], strict=False)
    ]
    across = alt.X("time:Q", title="training time, softmax = 1", scale=alt.Scale(zero=True))
    base = alt.Chart(alt.Data(values=points)).transform_calculate(
        low="datum.test - datum.spread", high="datum.test + datum.spread"
    )
    colour = alt.Color(
        "kind:N",
        title=None,
        scale=alt.Scale(domain=["softmax", "ours", "control"], range=["#444444", "#1b7f5c", "#c8553d"]),
    )
    bars = base.mark_rule(opacity=0.5).encode(
        x=across,
        y=alt.Y("low:Q", title=f"test {metric} %", scale=alt.Scale(zero=False)),
        y2="high:Q",
        color=colour,
    )
    dots = base.mark_circle(size=70, opacity=1).encode(
        x=across, y=alt.Y("test:Q", scale=alt.Scale(zero=False)), color=colour
    )
    names = base.mark_text(align="left", dx=7, dy=-6, fontSize=10).encode(
        x=across, y="test:Q", text="contestant:N", color=colour
    )
    on_the_way = (
        alt.Chart(alt.Data(values=curves))
        .mark_line(point=alt.OverlayMarkDef(size=18))
        .encode(
            x=across,
            y=alt.Y(
                "dev:Q",
                title=f"dev {metric} %",
                scale=alt.Scale(zero=False, domainMin=floor(curves), clamp=True),
            ),
            color=alt.Color("contestant:N", title=None, sort=[row["contestant"] for row in shown]),
        )
    )
    left = (bars + dots + names).properties(
        width=430, height=330, title=f"{result['task']}: what it took, what came out"
    )
    right = on_the_way.properties(width=430, height=330, title="on the way")
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as part:
        (left | right).resolve_scale(color="independent").save(str(part), format=path.suffix[1:])


def floor(curves: Sequence[dict[str, Any]]) -> float:
    """The first epochs lie far below; what matters is the upper part."""
    best = max(point["dev"] for point in curves)
    return best - 0.3 * (best - min(point["dev"] for point in curves))


def kind(row: dict[str, Any]) -> str:
    return "control" if row["control"] else "softmax" if row["contestant"] == "softmax" else "ours"
