"""Charts as altair definitions. A page embeds a definition; `save` writes it as SVG, PNG, HTML or JSON.

Every function takes rows (dicts), the names of the fields to draw, and the options of `Look`. Values are
drawn as they are. A spread is drawn from the fields "low" and "high" of the rows.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import altair as alt

from sparring.files import atomic_write, sweep
from sparring.lab.errors import UserError
from sparring.lab.runs.records import plain
from sparring.lab.table import number

Rows: TypeAlias = Sequence[Mapping[str, Any]]
PALETTE = (  # on white and on black
    *("#80858f", "#1f9e77", "#e0703a", "#5b86e5", "#b266c4"),
    *("#b99a1b", "#d64c66", "#2fa7b8", "#8a6d4f", "#7aa636"),
)
SPREAD = ("low", "high")
SUFFIXES = (".svg", ".png", ".html", ".json")


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


# ------------------------------------------------------------ charts


def lines(
    rows: Rows, x: str, y: str, colour: str = "contestant", *, band: bool = False, **options: Any
) -> alt.LayerChart:
    """A line for each value of ``colour``, in a ``band`` around it. A click in the legend selects one."""
    look = Look(**options)
    selection = alt.selection_point(fields=[colour], bind="legend")
    y_title = look.y_title or _words(y)
    base = _base(rows).encode(x=_axis(alt.X, x, look.x_title), color=_colour(rows, colour, look.order))
    line = base.mark_line(point=alt.OverlayMarkDef(size=22) if look.points else False, strokeWidth=1.8)
    line = line.encode(
        y=_axis(alt.Y, y, y_title, zero=look.y_zero),
        opacity=_emphasis(selection, 1.0, 0.12),
        tooltip=_tooltip([colour], [x, y, *(SPREAD if band else ())]),
    )
    layers: list[Any] = [line.add_params(selection)]
    if band:
        edges = {"y": _axis(alt.Y, "low", y_title, zero=look.y_zero), "y2": alt.Y2("high")}
        area = base.mark_area(strokeWidth=0).encode(**edges, opacity=_emphasis(selection, 0.16, 0.02))
        layers.insert(0, area)
    return _finish(layers, look)


def scatter(
    rows: Rows,
    x: str,
    y: str,
    colour: str = "contestant",
    *,
    r: Mapping[str, float | None] | None = None,
    fit: bool = False,
    **options: Any,
) -> alt.LayerChart:
    """A point for each row. ``r``: correlations for the legend; ``fit``: a straight line for each colour."""
    look = Look(**options)
    names = look.order or names_of(rows, colour)
    correlation = {name: number(value).text.replace("-", "−") for name, value in (r or {}).items()}
    labels = {name: name if r is None else f"{name}, r = {correlation.get(name, '–')}" for name in names}
    rows = [{**row, colour: labels[row[colour]]} for row in rows]
    selection = alt.selection_point(fields=[colour], bind="legend")
    base = _base(rows).encode(
        x=_axis(alt.X, x, look.x_title, zero=False),
        y=_axis(alt.Y, y, look.y_title, zero=False),
        color=_colour(rows, colour, list(labels.values())),
    )
    tooltip = _tooltip([colour], [x, y])
    dots = base.mark_circle(size=34).encode(opacity=_emphasis(selection, 0.75, 0.06), tooltip=tooltip)
    layers: list[Any] = [dots.add_params(selection)]
    if fit and (ends := _fitted(rows, x, y, colour)):
        line = base.properties(data=alt.InlineData(values=ends)).mark_line(strokeWidth=1, strokeDash=[4, 3])
        layers.append(line.encode(opacity=_emphasis(selection, 0.9, 0.05)))
    return _finish(layers, look)


def against(
    rows: Rows,
    x: str,
    y: str,
    colour: str = "contestant",
    *,
    whiskers: bool = False,
    references: Mapping[str, float] | None = None,
    **options: Any,
) -> alt.LayerChart:
    """A value against a setting such as δ; ``references`` are dashed horizontal lines."""
    look = Look(**options)
    y_title = look.y_title or _words(y)
    tint = _colour(rows, colour, look.order, legend=len(look.order or names_of(rows, colour)) > 1, first=1)
    base = _base(rows).encode(x=_axis(alt.X, x, look.x_title, zero=False), color=tint)
    line = base.mark_line(point=alt.OverlayMarkDef(size=40))
    tooltip = _tooltip([colour], [x, y, *(SPREAD if whiskers else ())])
    layers: list[Any] = [line.encode(y=_axis(alt.Y, y, y_title), tooltip=tooltip)]
    if whiskers:
        rule = base.mark_rule(opacity=0.55)
        layers.append(rule.encode(y=_axis(alt.Y, "low", y_title), y2=alt.Y2("high")))
    if references:
        levels = _base([{"name": name, y: value} for name, value in references.items()])
        levels = levels.encode(y=_axis(alt.Y, y, y_title))
        rule = levels.mark_rule(strokeDash=[6, 4], strokeWidth=1.5, color=PALETTE[0])
        text = levels.mark_text(align="right", dy=-7, color=PALETTE[0])
        layers.append(rule.encode(tooltip=_tooltip(["name"], [y])))
        layers.append(text.encode(x=alt.value("width"), text="name:N"))
    return _finish(layers, look)


def histogram(
    rows: Rows, x: str, y: str, colour: str = "contestant", *, step: str | None = None, **options: Any
) -> alt.LayerChart:
    """Outlines over bins, see `bins`. ``step``: a field of whole numbers that a slider goes through."""
    look = Look(**options)
    selection = alt.selection_point(fields=[colour], bind="legend")
    base = _base(rows)
    if step:
        numbers = [row[step] for row in rows]
        slider = alt.binding_range(min=min(numbers), max=max(numbers), step=1, name=f"{step} ")
        parameter = alt.param(name=step, value=max(numbers), bind=slider)
        base = base.add_params(parameter).transform_filter(f"datum['{step}'] == {step}")
    scale = alt.Scale(domain=[0, max((row[y] for row in rows), default=1)], nice=True)
    outline = base.mark_area(interpolate="step-after", line=alt.OverlayMarkDef(strokeWidth=1.6)).encode(
        x=_axis(alt.X, x, look.x_title),
        y=_axis(alt.Y, y, look.y_title, stack=None, scale=scale),
        color=_colour(rows, colour, look.order),
        fillOpacity=_emphasis(selection, 0.14, 0.0),
        strokeOpacity=_emphasis(selection, 1.0, 0.12),
        tooltip=_tooltip([colour], [x, y]),
    )
    return _finish([outline.add_params(selection), *_rules(x, look.rules)], look)


def bars(rows: Rows, x: str, y: str, colour: str, **options: Any) -> alt.LayerChart:
    """Horizontal bars: a group for each value of ``y``, and in it a bar for each value of ``colour``."""
    look = Look(**options)
    names = list(look.order or names_of(rows, colour))
    groups = names_of(rows, y)
    bar = _base(rows).mark_bar()
    chart = bar.encode(
        x=_axis(alt.X, x, look.x_title, zero=True),
        y=alt.Y(field=y, type="nominal", title=None, sort=groups, axis=alt.Axis(labelLimit=170)),
        yOffset=alt.YOffset(field=colour, type="nominal", sort=names),
        color=_colour(rows, colour, names),
        tooltip=_tooltip([y, colour], [x]),
    )
    height = 16 + max(1, len(groups)) * (6 + 11 * max(1, len(names)))
    return _finish([chart, *_rules(x, look.rules)], look, height)


def gains(rows: Rows, x: str, y: str, choose: str = "contestant", **options: Any) -> alt.LayerChart:
    """Bars to both sides of 0, the largest first. A menu picks one of several values of ``choose``."""
    look = Look(**options)
    names = list(look.order or names_of(rows, choose))
    base = _base(rows)
    if len(names) > 1:
        menu = alt.binding_select(options=names, name=f"{choose} ")
        parameter = alt.param(name=choose, value=names[0], bind=menu)
        base = base.add_params(parameter).transform_filter(f"datum['{choose}'] == {choose}")
    largest_first = alt.EncodingSortField(field=x, op="max", order="descending")
    chart = base.mark_bar().encode(
        x=_axis(alt.X, x, look.x_title, zero=True),
        y=alt.Y(field=y, type="nominal", title=None, sort=largest_first),
        color=alt.when(f"datum['{x}'] < 0").then(alt.value(PALETTE[2])).otherwise(alt.value(PALETTE[1])),
        tooltip=_tooltip([y], [x]),
    )
    n_bars = max((sum(row[choose] == name for row in rows) for name in names), default=1)
    return _finish([chart], look, 20 + 16 * max(1, n_bars))


# ------------------------------------------------------------ rows and files


def bins(counts: Sequence[float], **labels: Any) -> list[dict[str, Any]]:
    """Rows of `histogram`: shares in percent at the left edges of equal bins from -1 to 1, and 0 at the end.

    >>> bins([1, 3], epoch=2)  # doctest: +NORMALIZE_WHITESPACE
    [{'epoch': 2, 'margin': -1.0, 'share': 25.0}, {'epoch': 2, 'margin': 0.0, 'share': 75.0},
     {'epoch': 2, 'margin': 1.0, 'share': 0.0}]
    """
    total = sum(counts) or 1
    shares = [*(100 * count / total for count in counts), 0.0]
    edges = [round(-1 + 2 * i / len(counts), 6) for i in range(len(shares))]
    return [{**labels, "margin": edge, "share": share} for edge, share in zip(edges, shares, strict=True)]


def names_of(rows: Rows, field: str) -> list[str]:
    """The different values of a field in their order."""
    return list(dict.fromkeys(row[field] for row in rows))


def save(chart: Any, path: str | Path, *, scale: float = 2.0) -> Path:
    """Write a chart in the format of the path's suffix; HTML needs no network, and ``scale`` is for PNG."""
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise UserError(f"{path}: a chart is saved as {', '.join(SUFFIXES)}, got {suffix or 'no ending'}")
    path.parent.mkdir(parents=True, exist_ok=True)
    options: dict[str, dict[str, Any]] = {".html": {"inline": True}, ".png": {"scale_factor": scale}}
    sweep(path.parent, path.name)
    with atomic_write(path) as part:
        chart.save(str(part), format=suffix[1:], **options.get(suffix, {}))
    return path


# ------------------------------------------------------------ parts of charts


def _base(rows: Rows) -> alt.Chart:
    return alt.Chart(alt.InlineData(values=plain([dict(row) for row in rows])))


def _axis(channel: Any, field: str, title: str | None, *, zero: bool | None = None, **options: Any) -> Any:
    """The axis of a number. The scale of y does not begin at 0 unless ``zero`` is True."""
    if zero is None and channel is alt.Y:
        zero = False
    if zero is not None:
        options.setdefault("scale", alt.Scale(zero=zero))
    title = _words(field) if title is None else title
    return channel(field=field, type="quantitative", title=title, **options)


def _colour(
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


def _emphasis(selection: Any, selected: float, others: float) -> Any:
    return alt.when(selection).then(alt.value(selected)).otherwise(alt.value(others))


def _rules(x: str, values: Sequence[float]) -> list[alt.Chart]:
    """Dashed vertical lines at these values."""
    rules = _base([{x: value} for value in values]).mark_rule(strokeDash=[3, 3], color=PALETTE[0])
    return [rules.encode(x=f"{x}:Q")] if values else []


def _fitted(rows: Rows, x: str, y: str, colour: str) -> list[dict[str, Any]]:
    """Both ends of the least-squares line through each colour's points, where x is not the same for all."""
    ends: list[dict[str, Any]] = []
    for name in names_of(rows, colour):
        xs, ys = ([row[field] for row in rows if row[colour] == name] for field in (x, y))
        if len(xs) > 2 and min(xs) < max(xs):
            slope, intercept = statistics.linear_regression(xs, ys)
            ends += [{colour: name, x: end, y: intercept + slope * end} for end in (min(xs), max(xs))]
    return ends


def _words(field: str) -> str:
    return field.replace("_", " ")


def _tooltip(words: Sequence[str], numbers: Sequence[str]) -> list[alt.Tooltip]:
    return [
        *(alt.Tooltip(field=field, type="nominal") for field in words),
        *(alt.Tooltip(field=field, type="quantitative", format=".4~g") for field in numbers),
    ]


def _finish(layers: Sequence[Any], look: Look, height: int = 260) -> alt.LayerChart:
    """Set size and title; the titles of the axes have been used."""
    size = {"width": look.width, "height": look.height or height}
    chart: alt.LayerChart = alt.layer(*layers).properties(**size)  # type: ignore[assignment]
    return chart if look.title is None else chart.properties(title=look.title)
