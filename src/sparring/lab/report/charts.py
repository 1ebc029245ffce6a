"""Charts as altair definitions. A page embeds a definition; `save` writes it as SVG, PNG, HTML or JSON.

Every function takes rows (dicts), the names of the fields to draw, and the options of `Look`. Values are
drawn as they are. A spread is drawn from the fields "low" and "high" of the rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import altair as alt

from sparring.files import atomic_write, sweep
from sparring.lab.errors import UserError
from sparring.lab.report.chart_parts import (
    PALETTE,
    SPREAD,
    Look,
    Rows,
    axis,
    base_chart,
    colours,
    emphasis,
    finish,
    fitted_lines,
    menu_of,
    names_of,
    tooltips,
    vertical_rules,
    whole_ticks,
    words,
)
from sparring.lab.table import number

SUFFIXES = (".svg", ".png", ".html", ".json")

# ------------------------------------------------------------ charts


def lines(
    rows: Rows, x: str, y: str, colour: str = "contestant", *, band: bool = False, **options: Any
) -> alt.LayerChart:
    """A line for each value of ``colour``, in a ``band`` around it. A click in the legend selects one."""
    look = Look(**options)
    selection = alt.selection_point(fields=[colour], bind="legend")
    y_title = look.y_title or words(y)
    ticks = whole_ticks(rows, x)
    x_axis = axis(alt.X, x, look.x_title, **ticks)
    base = base_chart(rows).encode(x=x_axis, color=colours(rows, colour, look.order))
    line = base.mark_line(point=alt.OverlayMarkDef(size=22) if look.points else False, strokeWidth=1.8)
    line = line.encode(
        y=axis(alt.Y, y, y_title, zero=look.y_zero),
        opacity=emphasis(selection, 1.0, 0.12),
        tooltip=tooltips([colour], [x, y, *(SPREAD if band else ())]),
    )
    layers: list[Any] = [line.add_params(selection)]
    if band:
        edges = {"y": axis(alt.Y, "low", y_title, zero=look.y_zero), "y2": alt.Y2("high")}
        area = base.mark_area(strokeWidth=0).encode(**edges, opacity=emphasis(selection, 0.16, 0.02))
        layers.insert(0, area)
    return finish(layers, look)


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
    base = base_chart(rows).encode(
        x=axis(alt.X, x, look.x_title, zero=False),
        y=axis(alt.Y, y, look.y_title, zero=False),
        color=colours(rows, colour, list(labels.values())),
    )
    tooltip = tooltips([colour], [x, y])
    dots = base.mark_circle(size=34).encode(opacity=emphasis(selection, 0.75, 0.06), tooltip=tooltip)
    layers: list[Any] = [dots.add_params(selection)]
    if fit and (ends := fitted_lines(rows, x, y, colour)):
        line = base.properties(data=alt.InlineData(values=ends)).mark_line(strokeWidth=1, strokeDash=[4, 3])
        layers.append(line.encode(opacity=emphasis(selection, 0.9, 0.05)))
    return finish(layers, look)


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
    y_title = look.y_title or words(y)
    tint = colours(rows, colour, look.order, legend=len(look.order or names_of(rows, colour)) > 1, first=1)
    base = base_chart(rows).encode(x=axis(alt.X, x, look.x_title, zero=False), color=tint)
    line = base.mark_line(point=alt.OverlayMarkDef(size=40))
    tooltip = tooltips([colour], [x, y, *(SPREAD if whiskers else ())])
    layers: list[Any] = [line.encode(y=axis(alt.Y, y, y_title), tooltip=tooltip)]
    if whiskers:
        rule = base.mark_rule(opacity=0.55)
        layers.append(rule.encode(y=axis(alt.Y, "low", y_title), y2=alt.Y2("high")))
    if references:
        levels = base_chart([{"name": name, y: value} for name, value in references.items()])
        levels = levels.encode(y=axis(alt.Y, y, y_title))
        rule = levels.mark_rule(strokeDash=[6, 4], strokeWidth=1.5, color=PALETTE[0])
        text = levels.mark_text(align="right", dy=-7, color=PALETTE[0])
        layers.append(rule.encode(tooltip=tooltips(["name"], [y])))
        layers.append(text.encode(x=alt.value("width"), text="name:N"))
    return finish(layers, look)


def histogram(
    rows: Rows, x: str, y: str, colour: str = "contestant", *, step: str | None = None, **options: Any
) -> alt.LayerChart:
    """Outlines over bins, see `bins`. ``step``: a field of whole numbers that a slider goes through."""
    look = Look(**options)
    selection = alt.selection_point(fields=[colour], bind="legend")
    base = base_chart(rows)
    if step:
        numbers = [row[step] for row in rows]
        slider = alt.binding_range(min=min(numbers), max=max(numbers), step=1, name=f"{step} ")
        parameter = alt.param(name=step, value=max(numbers), bind=slider)
        base = base.add_params(parameter).transform_filter(f"datum['{step}'] == {step}")
    scale = alt.Scale(domain=[0, max((row[y] for row in rows), default=1)], nice=True)
    outline = base.mark_area(interpolate="step-after", line=alt.OverlayMarkDef(strokeWidth=1.6)).encode(
        x=axis(alt.X, x, look.x_title),
        y=axis(alt.Y, y, look.y_title, stack=None, scale=scale),
        color=colours(rows, colour, look.order),
        fillOpacity=emphasis(selection, 0.14, 0.0),
        strokeOpacity=emphasis(selection, 1.0, 0.12),
        tooltip=tooltips([colour], [x, y]),
    )
    return finish([outline.add_params(selection), *vertical_rules(x, look.rules)], look)


def bars(rows: Rows, x: str, y: str, colour: str, **options: Any) -> alt.LayerChart:
    """Horizontal bars: a group for each value of ``y``, and in it a bar for each value of ``colour``."""
    look = Look(**options)
    names = list(look.order or names_of(rows, colour))
    groups = names_of(rows, y)
    bar = base_chart(rows).mark_bar()
    chart = bar.encode(
        x=axis(alt.X, x, look.x_title, zero=True),
        y=alt.Y(field=y, type="nominal", title=None, sort=groups, axis=alt.Axis(labelLimit=170)),
        yOffset=alt.YOffset(field=colour, type="nominal", sort=names),
        color=colours(rows, colour, names),
        tooltip=tooltips([y, colour], [x]),
    )
    height = 16 + max(1, len(groups)) * (6 + 11 * max(1, len(names)))
    return finish([chart, *vertical_rules(x, look.rules)], look, height)


def gains(rows: Rows, x: str, y: str, choose: str = "contestant", **options: Any) -> alt.LayerChart:
    """Bars to both sides of 0, the largest first, with whiskers from "low" to "high" where rows have them.

    A menu picks one of several values of ``choose``.
    """
    look = Look(**options)
    names = list(look.order or names_of(rows, choose))
    base, menu = menu_of(base_chart(rows), rows, choose)
    largest_first = alt.EncodingSortField(field=x, op="max", order="descending")
    base = base.encode(y=alt.Y(field=y, type="nominal", title=None, sort=largest_first))
    chart = base.mark_bar().encode(
        x=axis(alt.X, x, look.x_title, zero=True),
        color=alt.when(f"datum['{x}'] < 0").then(alt.value(PALETTE[2])).otherwise(alt.value(PALETTE[1])),
        tooltip=tooltips([y], [x, *SPREAD]),
    )
    layers = [chart.add_params(*menu)]
    if any("low" in row for row in rows):
        rule = base.mark_rule(strokeWidth=1.5, color=PALETTE[0])
        layers.append(rule.encode(x=axis(alt.X, "low", look.x_title), x2=alt.X2("high")))
    n_bars = max((sum(row[choose] == name for row in rows) for name in names), default=1)
    return finish(layers, look, 20 + 16 * max(1, n_bars))


def dots(rows: Rows, x: str, y: str, **options: Any) -> alt.LayerChart:
    """For each value of ``y`` a point for each row, their mean, and a standard deviation to both sides."""
    look = Look(**options)
    names = list(look.order or names_of(rows, y))
    base = base_chart(rows).encode(
        y=alt.Y(field=y, type="nominal", title=None, sort=names, axis=alt.Axis(labelLimit=300)),
        color=colours(rows, y, names, legend=False),
    )
    values = axis(alt.X, x, look.x_title, zero=False)
    point = base.mark_circle(size=40, opacity=0.5).encode(x=values, tooltip=tooltips([y], [x]))
    bar = base.mark_errorbar(extent="stdev", ticks=True).encode(x=values)
    mean = base.mark_point(size=90, filled=True).encode(
        x=axis(alt.X, x, look.x_title, zero=False, aggregate="mean")
    )
    return finish([bar, point, mean], look, 30 + 28 * len(names))


def diagonal(
    rows: Rows, x: str, y: str, size: str, colour: str, choose: str, **options: Any
) -> alt.LayerChart:
    """Points with the line y = x, both axes from 0 to 1, sizes by a field; a menu picks a ``choose``."""
    look = Look(**options)
    names = list(look.order or names_of(rows, colour))
    unit = alt.Scale(domain=[0, 1])
    base, menu = menu_of(base_chart(rows), rows, choose)
    encoding = {
        "x": axis(alt.X, x, look.x_title, scale=unit),
        "y": axis(alt.Y, y, look.y_title, scale=unit),
        "color": colours(rows, colour, names),
    }
    ends = base_chart([{x: 0.0, y: 0.0}, {x: 1.0, y: 1.0}])
    ideal = ends.mark_line(strokeDash=[4, 4], color=PALETTE[0]).encode(x=f"{x}:Q", y=f"{y}:Q")
    line = base.mark_line(strokeWidth=1.4).encode(**encoding)
    points = base.mark_circle(opacity=0.8).encode(
        **encoding,
        size=alt.Size(field=size, type="quantitative", legend=None, scale=alt.Scale(range=[12, 240])),
        tooltip=tooltips([colour], [x, y, size]),
    )
    return finish([ideal, line.add_params(*menu), points], look, 320)


def matrix(rows: Rows, x: str, y: str, value: str, choose: str, **options: Any) -> alt.LayerChart:
    """A coloured cell with its number for each row; a menu picks a ``choose``."""
    look = Look(**options)
    order = list(look.order or names_of(rows, y))
    base, menu = menu_of(base_chart(rows), rows, choose)
    largest = max((row[value] for row in rows if row[x] != row[y]), default=1.0) or 1.0
    base = base.encode(
        x=alt.X(field=x, type="nominal", title=look.x_title, sort=order, axis=alt.Axis(labelAngle=-45)),
        y=alt.Y(field=y, type="nominal", title=look.y_title, sort=order),
        tooltip=tooltips([choose, y, x], [value]),
    )
    scale = alt.Scale(domain=[0, largest], range=["#fdf3ec", PALETTE[2]], clamp=True)
    off = alt.Color(field=value, type="quantitative", scale=scale, legend=None)
    cells = base.mark_rect().encode(
        color=alt.when(f"datum['{x}'] == datum['{y}']").then(alt.value(PALETTE[1])).otherwise(off)
    )
    text = base.mark_text(fontSize=11).encode(
        text=alt.Text(field=value, type="quantitative", format=".3~g"), color=alt.value("#1d2330")
    )
    return finish([cells.add_params(*menu), text], look, 60 + 26 * len(order))


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
