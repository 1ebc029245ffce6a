"""What the files of a run folder hold, to name what is wrong with one before it is used.

A check takes a value and the place it has in its file, and raises `ShapeError` for one that does not fit.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from sparring.lab.kinds import get_kind, list_kinds

Check = Callable[[Any, str], None]
LARGEST = 1e100  # of a number; squares of larger ones overflow
N_BINS = 40  # of a histogram of margins, from -1 to 1


class ShapeError(ValueError):
    """A value of the wrong type or range; the message names its place."""

    def __init__(self, place: str, expected: str, value: Any) -> None:
        text = repr(value)
        super().__init__(f"{place} must be {expected}, got {text if len(text) <= 60 else text[:57] + '...'}")


def parse(text: str) -> Any:
    """JSON, with null for NaN and infinities, and "?" for half of a surrogate pair. Raises ValueError."""
    try:
        value = json.loads(text, parse_constant=lambda _: None)
        if "\\ud" in text.lower():  # what is no character could not be written again
            value = json.loads(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return value


# ------------------------------------------------------------ checks


def is_text(value: Any, place: str) -> None:
    if not isinstance(value, str):
        raise ShapeError(place, "a text", value)


def is_number(value: Any, place: str) -> None:
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not -LARGEST <= value <= LARGEST:
        raise ShapeError(place, "a number", value)


def is_count(value: Any, place: str) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 53:
        raise ShapeError(place, "a whole number of at least 0", value)


def is_positive(value: Any, place: str) -> None:
    is_number(value, place)
    if not value > 0:
        raise ShapeError(place, "above 0", value)


def is_scalar(value: Any, place: str) -> None:
    if value is not None and not isinstance(value, (bool, str)):
        is_number(value, place)


def one_of(*words: str) -> Check:
    def check(value: Any, place: str) -> None:
        if value not in words:
            raise ShapeError(place, f"one of {', '.join(words)}", value)

    return check


def or_null(inner: Check) -> Check:
    return lambda value, place: None if value is None else inner(value, place)


def list_of(inner: Check, length: int | None = None) -> Check:
    def check(value: Any, place: str) -> None:
        if not isinstance(value, list) or length not in (None, len(value)):
            raise ShapeError(place, "a list" if length is None else f"a list of {length}", value)
        for i, item in enumerate(value):
            inner(item, f"{place}[{i}]")

    return check


def object_of(required: dict[str, Check], others: Check | None = None) -> Check:
    """An object with these keys; ``others`` checks the values of further keys."""

    def check(value: Any, place: str) -> None:
        if not isinstance(value, dict):
            raise ShapeError(place, "an object", value)
        for name, inner in required.items():
            if name not in value:
                raise ShapeError(place, f'an object with "{name}"', value)
            inner(value[name], name if place == WHOLE else f"{place}.{name}")
        for name, item in value.items():
            if others is not None and name not in required:
                others(item, name if place == WHOLE else f"{place}.{name}")

    return check


def either(one: Check, other: Check) -> Check:
    def check(value: Any, place: str) -> None:
        try:
            one(value, place)
        except ShapeError:
            other(value, place)

    return check


# ------------------------------------------------------------ the files

WHOLE = "the content"
_FIGURES = object_of({}, or_null(is_number))
_TEXTS = list_of(is_text)
_COUNTS = ("best_step", "epochs", "n_forward", "n_backward", "n_updates", "n_rows", "n_won")
_NUMBERS = (*_COUNTS, "seconds", "cpu_seconds", "won_share")
_RESULT: dict[str, Check] = {
    **dict.fromkeys(("task", "contestant", "model", "metric"), is_text),
    **dict.fromkeys(_NUMBERS, is_number),
    **dict.fromkeys(("n_samples", "n_planned"), is_positive),
    "seed": is_count,
    "dev": _FIGURES,
    "test": or_null(_FIGURES),
    "correlation": or_null(is_number),
}
_CONFIG = object_of({"loss": is_text}, is_scalar)
_SUMMARY = object_of({**_RESULT, "folder": is_text, "config": _CONFIG})
_MACHINE = object_of({"gpu": or_null(is_text), "versions": object_of({}, or_null(is_text))}, is_scalar)


def is_summary(value: Any, place: str) -> None:
    _SUMMARY(value, place)
    _has_metric(value)
    or_null(object_of({}, is_text))(value.get("checksums"), "checksums")


def _has_metric(summary: dict[str, Any]) -> None:
    """The figure that decides is there, on dev and, where test was looked at, on test."""
    for part in ("dev", "test"):
        if summary[part] is not None:
            is_number(summary[part].get(summary["metric"]), f"{part}.{summary['metric']}")


def is_kind(value: Any, place: str) -> None:
    one_of(*(form.name for form in list_kinds()))(value, place)


FILES: dict[str, Check] = {
    "summary": is_summary,
    "machine": _MACHINE,
    "data": object_of(
        {
            **dict.fromkeys(("task", "source", "fingerprint"), is_text),
            "kind": is_kind,
            "notes": _TEXTS,
            "top_k": or_null(is_count),
            "sizes": object_of({"train": is_positive, "dev": is_count, "test": is_count}),
            "labels": _TEXTS,
        }
    ),
}
_figure = or_null(is_number)
_SPENT = ("n_forward", "n_backward", "seconds")
LINES: dict[str, Check] = {
    "steps": object_of({"step": is_count, "epoch": is_count, "loss": _figure, "won_share": _figure}, _figure),
    "epochs": object_of({"epoch": is_count, **dict.fromkeys(_SPENT, is_number)}, is_scalar),
    "evaluations": object_of(
        {
            "step": is_count,
            "epoch": is_count,
            "loss": _figure,
            "best": is_scalar,
            "margins": list_of(is_count, N_BINS),
        },
        _figure,
    ),
    "predictions": object_of({"predicted": either(is_text, _TEXTS), "margin": _figure}),
}


def check_prediction(kind: str, row: dict[str, Any]) -> None:
    """A line of predictions has the fields of its kind."""
    form = get_kind(kind)
    object_of({name: _TEXTS if name in form.list_fields else is_text for name in form.text_fields})(
        row, WHOLE
    )
    (_TEXTS if form.target in form.list_fields else is_text)(row["predicted"], "predicted")
    or_null(is_text)(row.get("picture"), "picture")
    if form.equal_lengths is not None:
        first, second = form.equal_lengths
        if len(row[first]) != len(row[second]):
            raise ShapeError(second, f"as many as the {len(row[first])} {first}", row[second])


# ------------------------------------------------------------ records of a study

_POINTS: dict[str, Check] = {
    "steps": list_of(object_of(dict.fromkeys(("step", "loss", "won_share"), is_number))),
    "evaluations": list_of(object_of({"step": is_number, "loss": _figure, "value": _figure})),
    "margins": list_of(is_count, N_BINS),
}
_ALWAYS = ("task", "seed", "metric", "test")
_RECORD = object_of({"study": is_text, "method": is_text, **{name: _RESULT[name] for name in _ALWAYS}})
_SOMETIMES: dict[str, Check] = {
    **{name: check for name, check in _RESULT.items() if name not in _ALWAYS},
    **_POINTS,
    "config": object_of({}, is_scalar),
    "machine": object_of({"gpu": or_null(is_text)}),
}
is_study = object_of({"study": is_text, "words": object_of({}, is_text)})


def check_record(row: Any) -> None:
    """A line of `sparring paper --save`: a summary, the machine, and the curves that its study draws."""
    _RECORD(row, WHOLE)
    for name, check in _SOMETIMES.items():
        if name in row:
            check(row[name], name)
    _has_metric({"dev": None, **row})
