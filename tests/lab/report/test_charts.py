"""Charts: what a definition draws, and the files it is saved to."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sparring.lab.errors import UserError
from sparring.lab.report import chart_parts, charts

ROWS = [
    {
        "contestant": name,
        "epoch": epoch,
        "value": 10 * epoch + i,
        "low": 10 * epoch + i - 1,
        "high": 10 * epoch + i + 1,
    }
    for i, name in enumerate(("softmax", "as-softmax"))
    for epoch in (1, 2, 3)
]
MARGINS = [
    row
    for look in (1, 2)
    for name in ("a", "b")
    for row in charts.bins([1, look], contestant=name, evaluation=look)
]
MADE = {
    "lines": lambda **look: charts.lines(ROWS, "epoch", "value", band=True, **look),
    "scatter": lambda **look: charts.scatter(ROWS, "epoch", "value", r={"softmax": -0.98}, fit=True, **look),
    "against": lambda **look: charts.against(
        ROWS, "epoch", "value", whiskers=True, references={"softmax": 12.0}, **look
    ),
    "histogram": lambda **look: charts.histogram(
        MARGINS, "margin", "share", step="evaluation", rules=[0], **look
    ),
    "bars": lambda **look: charts.bars(ROWS, "value", "epoch", "contestant", rules=[10], **look),
    "gains": lambda **look: charts.gains(ROWS, "value", "epoch", **look),
}


def layers(chart: Any) -> list[dict[str, Any]]:
    return list(chart.to_dict()["layer"])


def marks(chart: Any) -> list[str]:
    return [layer["mark"]["type"] for layer in layers(chart)]


def found(value: Any, key: str) -> Iterator[Any]:
    """Every value of a key, however deep."""
    if isinstance(value, dict):
        if key in value:
            yield value[key]
        for inner in value.values():
            yield from found(inner, key)
    elif isinstance(value, list):
        for inner in value:
            yield from found(inner, key)


@pytest.mark.parametrize("name", MADE)
def test_looks_are_taken_by_all(name: str) -> None:
    made = MADE[name](title="A title", x_title="across", y_title="up", width=321, height=123).to_dict()
    assert (made["title"], made["width"], made["height"]) == ("A title", 321, 123)
    assert "across" in found(made, "title")
    assert MADE[name](width="container").to_dict()["width"] == "container"


@pytest.mark.parametrize("name", MADE)
def test_every_chart_is_drawn(name: str, tmp_path: Path) -> None:
    drawn = charts.save(MADE[name](), tmp_path / "chart.svg").read_text(encoding="utf-8")
    assert drawn.startswith("<svg")
    assert any(f"mark-{kind} " in drawn for kind in ("line", "symbol", "area", "rect"))
    assert "NaN" not in drawn


def test_lines_have_a_band_only_where_it_is_given() -> None:
    assert marks(MADE["lines"]()) == ["area", "line"]
    assert marks(charts.lines(ROWS, "epoch", "value")) == ["line"]


def test_a_name_has_one_colour_whatever_else_is_drawn() -> None:
    alone = charts.lines(ROWS[3:], "epoch", "value", order=["softmax", "as-softmax"])
    for chart in (
        alone,
        MADE["lines"](),
        charts.histogram(MARGINS, "margin", "share", order=["softmax", "as-softmax"]),
    ):
        scale = next(found(chart.to_dict(), "color"))["scale"]
        assert dict(zip(scale["domain"], scale["range"], strict=True)) == {
            "softmax": chart_parts.PALETTE[0],
            "as-softmax": chart_parts.PALETTE[1],
        }


def test_more_names_than_colours() -> None:
    rows = [{"contestant": f"{i}", "x": i, "y": i} for i in range(25)]
    scale = next(found(charts.lines(rows, "x", "y").to_dict(), "color"))["scale"]
    assert len(scale["range"]) == 25


def test_r_stands_beside_the_name() -> None:
    assert next(found(MADE["scatter"]().to_dict(), "color"))["scale"]["domain"] == [
        "softmax, r = −0.98",
        "as-softmax, r = –",
    ]
    assert next(found(charts.scatter(ROWS, "epoch", "value").to_dict(), "color"))["scale"]["domain"] == [
        "softmax",
        "as-softmax",
    ]


def test_the_reference_is_a_line_across(tmp_path: Path) -> None:
    assert marks(MADE["against"]()) == ["line", "rule", "rule", "text"]
    assert marks(charts.against(ROWS, "epoch", "value")) == ["line"]
    assert ">softmax</text>" in charts.save(MADE["against"](), tmp_path / "a.svg").read_text(encoding="utf-8")


def test_the_slider_goes_through_all_looks() -> None:
    slider = next(p for p in MADE["histogram"]().to_dict()["params"] if p["name"] == "evaluation")
    assert (slider["value"], slider["bind"]["min"], slider["bind"]["max"]) == (2, 1, 2)
    assert "evaluation" not in [
        p["name"] for p in charts.histogram(MARGINS, "margin", "share").to_dict()["params"]
    ]


def test_a_menu_only_where_there_is_a_choice() -> None:
    menu = MADE["gains"]().to_dict()["params"][0]
    assert menu["bind"]["options"] == ["softmax", "as-softmax"]
    assert "params" not in charts.gains(ROWS[:3], "value", "epoch").to_dict()


def test_bins_add_up() -> None:
    rows = charts.bins([2, 0, 6, 0])
    assert [(row["margin"], row["share"]) for row in rows] == [(-1, 25), (-0.5, 0), (0, 75), (0.5, 0), (1, 0)]
    assert [row["share"] for row in charts.bins([0, 0])] == [0, 0, 0]


def test_nan_is_null() -> None:
    made = charts.lines([{"contestant": "a", "x": 1, "y": float("nan")}], "x", "y").to_json()
    assert "NaN" not in made


@pytest.mark.parametrize(
    ("suffix", "begins"),
    [(".svg", b"<svg"), (".png", b"\x89PNG"), (".html", b"<!DOCTYPE html>"), (".json", b"{")],
)
def test_saved_by_suffix_and_whole(suffix: str, begins: bytes, tmp_path: Path) -> None:
    path = charts.save(MADE["lines"](), tmp_path / "new" / f"chart{suffix}")
    assert path.read_bytes().lstrip().startswith(begins)
    assert [found.name for found in path.parent.iterdir()] == [path.name]
    if suffix == ".json":
        assert json.loads(path.read_text())["layer"]
    if suffix == ".html":
        assert "<script src=" not in path.read_text(encoding="utf-8")  # whole: no network


def test_another_suffix_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"chart.gif: a chart is saved as .svg, .png, .html, .json, got .gif"):
        charts.save(MADE["lines"](), tmp_path / "chart.gif")
