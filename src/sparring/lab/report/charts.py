"""Charts as altair definitions: plain rows in, a chart out. A page embeds the definition, `save` writes SVG, PNG, HTML or JSON of it.

Every function takes rows (dicts), the names of the fields to draw, and the same words for looks: ``title``, ``x_title``, ``y_title``,
``order`` (of the colours' names; the first one is grey), ``width`` (a number, or "container" on a page) and ``height``. Values are drawn as
they come: percent is the caller's to compute.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import altair as alt

from sparring.files import atomic_write, sweep
from sparring.lab.errors import UserError
from sparring.lab.runs.records import plain

Rows: TypeAlias = Sequence[Mapping[str, Any]]
PALETTE = (  # on white and on black
    "#80858f", "#1f9e77", "#e0703a", "#5b86e5", "#b266c4", "#b99a1b", "#d64c66", "#2fa7b8", "#8a6d4f", "#7aa636",
)  # fmt: skip
SUFFIXES = (".svg", ".png", ".html", ".json")


# ------------------------------------------------------------ charts


def lines(
    rows: Rows,
    x: str,
    y: str,
    colour: str = "contestant",
    *,
    low: str | None = None,
    high: str | None = None,
    points: bool = False,
    y_zero: bool = False,
    order: Sequence[str] | None = None,
    **look: Any,
) -> alt.LayerChart:
    """A line for each value of ``colour``, in a band from ``low`` to ``high`` if these are given. A click in the legend picks one."""
    tint, picked = (
        _colour(colour, names_of(rows, colour), order),
        alt.selection_point(fields=[colour], bind="legend"),
    )
    base = _base(rows).encode(x=_axis(alt.X, x, look.get("x_title")), color=tint)
    line = base.mark_line(point=alt.OverlayMarkDef(size=22) if points else False, strokeWidth=1.8).encode(
        y=_axis(alt.Y, y, look.get("y_title"), zero=y_zero),
        opacity=alt.when(picked).then(alt.value(1.0)).otherwise(alt.value(0.12)),
        tooltip=[_word(colour), *_numbers(x, y, low, high)],
    )
    layers: list[Any] = [line.add_params(picked)]
    if low and high:
        faint = alt.when(picked).then(alt.value(0.16)).otherwise(alt.value(0.02))
        edge = _axis(alt.Y, low, look.get("y_title") or _words(y), zero=y_zero)
        layers.insert(0, base.mark_area(strokeWidth=0).encode(y=edge, y2=alt.Y2(high), opacity=faint))
    return _finish(layers, **look)


def scatter(
    rows: Rows,
    x: str,
    y: str,
    colour: str = "contestant",
    *,
    r: Mapping[str, float | None] | None = None,
    fit: bool = False,
    order: Sequence[str] | None = None,
    **look: Any,
) -> alt.LayerChart:
    """A point a row. ``r``: a correlation for each value of ``colour``, written beside its name; ``fit``: a straight line through each."""
    names = list(order or names_of(rows, colour))
    shown = {name: name if r is None else f"{name}, r = {signed(r.get(name))}" for name in names}
    rows = [{**row, colour: shown[row[colour]]} for row in rows]
    tint = _colour(colour, list(shown.values()))
    base = _base(rows).encode(
        x=_axis(alt.X, x, look.get("x_title"), zero=False),
        y=_axis(alt.Y, y, look.get("y_title"), zero=False),
        color=tint,
    )
    picked = alt.selection_point(fields=[colour], bind="legend")
    dots = base.mark_circle(size=34).encode(
        opacity=alt.when(picked).then(alt.value(0.75)).otherwise(alt.value(0.06)),
        tooltip=[_word(colour), *_numbers(x, y)],
    )
    layers: list[Any] = [dots.add_params(picked)]
    if fit and (ends := _fitted(rows, x, y, colour)):
        line = base.properties(data=alt.InlineData(values=ends)).mark_line(strokeWidth=1, strokeDash=[4, 3])
        layers.append(line.encode(opacity=alt.when(picked).then(alt.value(0.9)).otherwise(alt.value(0.05))))
    return _finish(layers, **look)


def against(
    rows: Rows,
    x: str,
    y: str,
    colour: str = "contestant",
    *,
    low: str | None = None,
    high: str | None = None,
    references: Mapping[str, float] | None = None,
    order: Sequence[str] | None = None,
    **look: Any,
) -> alt.LayerChart:
    """A figure against a setting (δ, k, τ), whiskers from ``low`` to ``high``; ``references``, such as softmax, are dashed lines across."""
    names = order or names_of(rows, colour)
    tint = _colour(colour, names, legend=len(names) > 1, first=1)
    base = _base(rows).encode(x=_axis(alt.X, x, look.get("x_title"), zero=False), color=tint)
    y_title = look.get("y_title") or _words(y)
    line = base.mark_line(point=alt.OverlayMarkDef(size=40))
    layers: list[Any] = [
        line.encode(y=_axis(alt.Y, y, y_title), tooltip=[_word(colour), *_numbers(x, y, low, high)])
    ]
    if low and high:
        layers.append(base.mark_rule(opacity=0.55).encode(y=_axis(alt.Y, low, y_title), y2=alt.Y2(high)))
    if references:
        given = _base([{"name": name, y: value} for name, value in references.items()]).encode(
            y=_axis(alt.Y, y, y_title)
        )
        layers.append(
            given.mark_rule(strokeDash=[6, 4], strokeWidth=1.5, color=PALETTE[0]).encode(
                tooltip=[_word("name"), *_numbers(y)]
            )
        )
        layers.append(
            given.mark_text(align="right", dy=-7, color=PALETTE[0]).encode(
                x=alt.value("width"), text="name:N"
            )
        )
    return _finish(layers, **look)


def histogram(
    rows: Rows,
    x: str,
    y: str,
    colour: str = "contestant",
    *,
    step: str | None = None,
    rules: Sequence[float] = (),
    order: Sequence[str] | None = None,
    **look: Any,
) -> alt.LayerChart:
    """Outlines over bins; `bins` makes the rows. ``step``: a field of whole numbers that a slider goes through, look by look."""
    picked = alt.selection_point(fields=[colour], bind="legend")
    base = _base(rows)
    if step:
        first, last = min(row[step] for row in rows), max(row[step] for row in rows)
        slider = alt.binding_range(min=first, max=last, step=1, name=f"{step} ")
        base = base.add_params(alt.param(name=step, value=last, bind=slider)).transform_filter(
            f"datum['{step}'] == {step}"
        )
    top = max((row[y] for row in rows), default=1)
    outline = base.mark_area(interpolate="step-after", line=alt.OverlayMarkDef(strokeWidth=1.6)).encode(
        x=_axis(alt.X, x, look.get("x_title")),
        y=alt.Y(
            field=y,
            type="quantitative",
            title=look.get("y_title") or _words(y),
            stack=None,
            scale=alt.Scale(domain=[0, top], nice=True),
        ),
        color=_colour(colour, names_of(rows, colour), order),
        fillOpacity=alt.when(picked).then(alt.value(0.14)).otherwise(alt.value(0.0)),
        strokeOpacity=alt.when(picked).then(alt.value(1.0)).otherwise(alt.value(0.12)),
        tooltip=[_word(colour), *_numbers(x, y)],
    )
    return _finish([outline.add_params(picked), *_rules(x, rules)], **look)


def bars(
    rows: Rows,
    x: str,
    y: str,
    colour: str,
    *,
    rules: Sequence[float] = (),
    order: Sequence[str] | None = None,
    **look: Any,
) -> alt.LayerChart:
    """Bars to the right, a group for each value of ``y``, a bar in it for each value of ``colour``."""
    names = order or names_of(rows, colour)
    groups = list(names_of(rows, y))
    chart = (
        _base(rows)
        .mark_bar()
        .encode(
            x=_axis(alt.X, x, look.get("x_title"), zero=True),
            y=alt.Y(field=y, type="nominal", title=None, sort=groups, axis=alt.Axis(labelLimit=170)),
            yOffset=alt.YOffset(field=colour, type="nominal", sort=list(names)),
            color=_colour(colour, names),
            tooltip=[_word(y), _word(colour), *_numbers(x)],
        )
    )
    return _finish(
        [chart, *_rules(x, rules)],
        **{"height": 16 + max(1, len(groups)) * (6 + 11 * max(1, len(names))), **look},
    )


def gains(
    rows: Rows, x: str, y: str, choose: str = "contestant", *, order: Sequence[str] | None = None, **look: Any
) -> alt.LayerChart:
    """Bars to both sides of 0, the largest first; where there are several values of ``choose``, a menu picks the one that is shown."""
    names = list(order or names_of(rows, choose))
    base = _base(rows)
    if len(names) > 1:
        menu = alt.param(
            name=choose, value=names[0], bind=alt.binding_select(options=names, name=f"{choose} ")
        )
        base = base.add_params(menu).transform_filter(f"datum['{choose}'] == {choose}")
    chart = base.mark_bar().encode(
        x=_axis(alt.X, x, look.get("x_title"), zero=True),
        y=alt.Y(
            field=y,
            type="nominal",
            title=None,
            sort=alt.EncodingSortField(field=x, op="max", order="descending"),
        ),
        color=alt.when(f"datum['{x}'] < 0").then(alt.value(PALETTE[2])).otherwise(alt.value(PALETTE[1])),
        tooltip=[_word(y), *_numbers(x)],
    )
    most = max((sum(row[choose] == name for row in rows) for name in names), default=1)
    return _finish([chart], **{"height": 20 + 16 * max(1, most), **look})


# ------------------------------------------------------------ rows


def bins(
    counts: Sequence[float],
    low: float = -1.0,
    high: float = 1.0,
    *,
    x: str = "margin",
    y: str = "share",
    **labels: Any,
) -> list[dict[str, Any]]:
    """Rows of `histogram` for counts in equal bins: shares in percent at the left edges, and 0 at the right end.

    >>> bins([1, 3], epoch=2)  # doctest: +NORMALIZE_WHITESPACE
    [{'epoch': 2, 'margin': -1.0, 'share': 25.0}, {'epoch': 2, 'margin': 0.0, 'share': 75.0},
     {'epoch': 2, 'margin': 1.0, 'share': 0.0}]
    """
    total, size = sum(counts) or 1, (high - low) / len(counts)
    shares = [100 * count / total for count in counts]
    return [{**labels, x: round(low + i * size, 6), y: share} for i, share in enumerate([*shares, 0.0])]


def names_of(rows: Rows, field: str) -> list[str]:
    """The values of a field in the order they come."""
    return list(dict.fromkeys(row[field] for row in rows))


def signed(value: float | None, digits: int = 2) -> str:
    """A number with a true minus sign.

    >>> signed(-0.987), signed(None)
    ('−0.99', '–')
    """
    return "–" if value is None else f"{value:.{digits}f}".replace("-", "−")


# ------------------------------------------------------------ files


def save(chart: Any, path: str | Path, *, scale: float = 2.0) -> Path:
    """Write .svg, .png, .html (whole, without network) or .json, by the path's ending; beside, then renamed. ``scale`` is for .png."""
    path = Path(path)
    form = path.suffix.lower()
    if form not in SUFFIXES:
        raise UserError(f"{path}: a chart is saved as {', '.join(SUFFIXES)}, got {form or 'no ending'}")
    path.parent.mkdir(parents=True, exist_ok=True)
    extra: dict[str, dict[str, Any]] = {".html": {"inline": True}, ".png": {"scale_factor": scale}}
    sweep(path.parent, path.name)
    with atomic_write(path) as part:
        chart.save(str(part), format=form[1:], **extra.get(form, {}))
    return path


# ------------------------------------------------------------ parts


def _base(rows: Rows) -> alt.Chart:
    return alt.Chart(alt.InlineData(values=plain([dict(row) for row in rows])))


def _axis(channel: Any, field: str, title: str | None, *, zero: bool | None = None) -> Any:
    """A number's axis; for y the scale does not begin at 0 unless told."""
    if zero is None:
        zero = False if channel is alt.Y else None
    scale = {} if zero is None else {"scale": alt.Scale(zero=zero)}
    return channel(field=field, type="quantitative", title=_words(field) if title is None else title, **scale)


def _colour(
    field: str,
    names: Sequence[str],
    order: Sequence[str] | None = None,
    *,
    legend: bool = True,
    first: int = 0,
) -> alt.Color:
    """The same name has the same colour in every chart that is given the same order; the legend has the names that are drawn."""
    domain = list(order or names)
    tones = [PALETTE[(first + i) % len(PALETTE)] for i in range(len(domain))]
    columns, drawn = (
        1 if max(map(len, names), default=0) > 22 else 2,
        [name for name in domain if name in names],
    )
    shown = (
        alt.Legend(orient="top", columns=columns, labelLimit=330, symbolOpacity=1, title=None, values=drawn)
        if legend and drawn
        else None
    )
    return alt.Color(
        field=field, type="nominal", sort=domain, scale=alt.Scale(domain=domain, range=tones), legend=shown
    )


def _rules(x: str, values: Sequence[float]) -> list[alt.Chart]:
    """Dashed lines upright at these values."""
    made = _base([{x: value} for value in values]).mark_rule(strokeDash=[3, 3], color=PALETTE[0])
    return [made.encode(x=alt.X(field=x, type="quantitative"))] if values else []


def _fitted(rows: Rows, x: str, y: str, colour: str) -> list[dict[str, Any]]:
    """Both ends of the least squares line through each colour's points, where there are three and x is not the same in all."""
    ends: list[dict[str, Any]] = []
    for name in names_of(rows, colour):
        across, up = ([row[field] for row in rows if row[colour] == name] for field in (x, y))
        if len(across) > 2 and min(across) < max(across):
            slope, start = statistics.linear_regression(across, up)
            ends += [{colour: name, x: at, y: start + slope * at} for at in (min(across), max(across))]
    return ends


def _words(field: str) -> str:
    return field.replace("_", " ")


def _word(field: str) -> alt.Tooltip:
    return alt.Tooltip(field=field, type="nominal")


def _numbers(*fields: str | None) -> list[alt.Tooltip]:
    return [alt.Tooltip(field=field, type="quantitative", format=".4~g") for field in fields if field]


def _finish(
    layers: Sequence[Any],
    *,
    title: str | None = None,
    width: int | str = 430,
    height: int = 260,
    x_title: str | None = None,
    y_title: str | None = None,
) -> alt.LayerChart:
    """Size and title; the axes' titles were used before."""
    chart: alt.LayerChart = alt.layer(*layers).properties(width=width, height=height)  # type: ignore[assignment]
    return chart if title is None else chart.properties(title=title)
