"""Parts that charts share: options, axes, colours, emphasis and tooltips."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import altair as alt

from sparring.lab.runs.records import plain

Rows: TypeAlias = Sequence[Mapping[str, Any]]
PALETTE = (  # on white and on black
    *("#80858f", "#1f9e77", "#e0703a", "#5b86e5", "#b266c4"),
    *("#b99a1b", "#d64c66", "#2fa7b8", "#8a6d4f", "#7aa636"),
)
SPREAD = ("low", "high")
WHOLE = ("epoch", "epochs")  # fields whose axes have whole numbers
MOST_TICKS = 10  # of such an axis


@dataclass(frozen=True)
class Look:
    """Options of every chart."""

    title: str | None = None
    x_title: str | None = None
    y_title: str | None = None
    width: int | str = 430  # "container" on a page
    height: int | None = None
    order: Sequence[str] = ()  # the names that have colours; the first one is grey
    rules: Sequence[float] = ()  # dashed vertical lines
    points: bool = False  # on lines
    y_zero: bool = False  # whether the y axis begins at 0


def names_of(rows: Rows, field: str) -> list[str]:
    """The different values of a field in their order."""
    return list(dict.fromkeys(row[field] for row in rows))


def base_chart(rows: Rows) -> alt.Chart:
    return alt.Chart(alt.InlineData(values=plain([dict(row) for row in rows])))


def axis(channel: Any, field: str, title: str | None, *, zero: bool | None = None, **options: Any) -> Any:
    """The axis of a number. The scale of y does not begin at 0 unless ``zero`` is True."""
    if zero is None and channel is alt.Y:
        zero = False
    if zero is not None:
        options.setdefault("scale", alt.Scale(zero=zero))
    title = words(field) if title is None else title
    return channel(field=field, type="quantitative", title=title, **options)


def whole_ticks(rows: Rows, field: str) -> dict[str, Any]:
    """The options of an axis whose ticks are whole numbers; none for a field that is not of `WHOLE`."""
    if field not in WHOLE or not rows:
        return {}
    first = math.floor(min(row[field] for row in rows))
    last = math.ceil(max(row[field] for row in rows))
    step = max(1, -(-(last - first) // MOST_TICKS))
    return {"axis": alt.Axis(values=list(range(first, last + 1, step)), format="d")}


def colours(
    rows: Rows, field: str, order: Sequence[str], *, legend: bool = True, first: int = 0
) -> alt.Color:
    """Colours by ``order``, the same in every chart that has the same order; the legend has what is drawn."""
    names = names_of(rows, field)
    domain = list(order or names)
    colours = [PALETTE[(first + i) % len(PALETTE)] for i in range(len(domain))]
    shown = None
    values = [name for name in domain if name in names]
    if legend and values:
        columns = 1 if max(map(len, names)) > 22 else 2
        shown = alt.Legend(
            orient="top", columns=columns, labelLimit=330, symbolOpacity=1, title=None, values=values
        )
    scale = alt.Scale(domain=domain, range=colours)
    return alt.Color(field=field, type="nominal", sort=domain, scale=scale, legend=shown)


def menu_of(chart: alt.Chart, rows: Rows, choose: str) -> tuple[alt.Chart, list[Any]]:
    """The chart of one value of ``choose``, and the menu that picks it; all rows if there is one value."""
    names = names_of(rows, choose)
    if len(names) < 2:
        return chart, []
    menu = alt.binding_select(options=names, name=f"{choose} ")
    parameter = alt.param(name=choose, value=names[0], bind=menu)
    return chart.transform_filter(f"datum['{choose}'] == {choose}"), [parameter]


def emphasis(selection: Any, selected: float, others: float) -> Any:
    return alt.when(selection).then(alt.value(selected)).otherwise(alt.value(others))


def vertical_rules(x: str, values: Sequence[float]) -> list[alt.Chart]:
    """Dashed vertical lines at these values."""
    rules = base_chart([{x: value} for value in values]).mark_rule(strokeDash=[3, 3], color=PALETTE[0])
    return [rules.encode(x=f"{x}:Q")] if values else []


def fitted_lines(rows: Rows, x: str, y: str, colour: str) -> list[dict[str, Any]]:
    """Both ends of the least-squares line through each colour's points, where x is not the same for all."""
    ends: list[dict[str, Any]] = []
    for name in names_of(rows, colour):
        xs, ys = ([row[field] for row in rows if row[colour] == name] for field in (x, y))
        if len(xs) > 2 and min(xs) < max(xs):
            slope, intercept = statistics.linear_regression(xs, ys)
            ends += [{colour: name, x: end, y: intercept + slope * end} for end in (min(xs), max(xs))]
    return ends


def words(field: str) -> str:
    return field.replace("_", " ")


def tooltips(words: Sequence[str], numbers: Sequence[str]) -> list[alt.Tooltip]:
    return [
        *(alt.Tooltip(field=field, type="nominal") for field in words),
        *(alt.Tooltip(field=field, type="quantitative", format=".4~g") for field in numbers),
    ]


def finish(layers: Sequence[Any], look: Look, height: int = 260) -> alt.LayerChart:
    """Set size and title; the titles of the axes have been used."""
    size = {"width": look.width, "height": look.height or height}
    chart: alt.LayerChart = alt.layer(*layers).properties(**size)  # type: ignore[assignment]
    return chart if look.title is None else chart.properties(title=look.title)
