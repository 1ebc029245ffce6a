"""What the files of a run folder hold: pydantic models, which check a file before it is used."""

import json
from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    create_model,
    model_validator,
)

from sparring.lab.calibration import FIGURES
from sparring.lab.kinds import get_kind, list_kinds

LARGEST = 1e100  # squares of larger numbers overflow
N_BINS = 40  # bins of a histogram of margins, from -1 to 1
WHOLE = "the content"

Number = Annotated[float, Field(ge=-LARGEST, le=LARGEST)]
Positive = Annotated[float, Field(gt=0, le=LARGEST)]
Count = Annotated[int, Field(ge=0, lt=1 << 53)]
Histogram = Annotated[list[Count], Field(min_length=N_BINS, max_length=N_BINS)]
Scalar = bool | str | Number | None
Metrics = dict[str, Number | None]


class FileRecord(BaseModel):
    """An object in a file. Further keys are allowed."""

    model_config = ConfigDict(strict=True, extra="allow")


class NumberRecord(FileRecord):
    """The values of further keys are numbers or null."""

    __pydantic_extra__: dict[str, Number | None]


class ScalarRecord(FileRecord):
    """The values of further keys are numbers, text, booleans or null."""

    __pydantic_extra__: dict[str, Scalar]


class Result(FileRecord):
    """What each record of a result has. The metric that decides must be among those of dev and of test."""

    task: str
    seed: Count
    metric: str
    test: Metrics | None

    @model_validator(mode="after")
    def _check_metric(self) -> "Result":
        for split in ("dev", "test"):
            metrics = getattr(self, split, None)
            if metrics is not None and metrics.get(self.metric) is None:
                raise ValueError(f"{split}.{self.metric} must be a number, got {metrics.get(self.metric)}")
        return self


def _record(
    base: type[FileRecord], optional: Mapping[str, Any] | None = None, **fields: Any
) -> type[FileRecord]:
    """A model with these fields and their types. An optional field may be missing, but not null."""
    required: Any = {name: (type_, ...) for name, type_ in fields.items()}
    others: Any = {name: (type_, None) for name, type_ in (optional or {}).items()}
    return create_model("FileRecord", __base__=base, **required, **others)


def _check_kind(name: str) -> str:
    names = [form.name for form in list_kinds()]
    if name not in names:
        raise ValueError(f"kind must be one of {', '.join(names)}, got {name!r:.60}")
    return name


_counts = ("best_step", "epochs", "n_forward", "n_backward", "n_updates", "n_rows", "n_won")
_summary = {
    **dict.fromkeys(("contestant", "model"), str),
    **dict.fromkeys((*_counts, "seconds", "cpu_seconds", "won_share"), Number),
    **dict.fromkeys(("n_samples", "n_planned"), Positive),
    "dev": Metrics,
    "correlation": Number | None,
}
_calibrated = _record(
    FileRecord,
    None,
    **dict.fromkeys(FIGURES, Number),
    bins=list[Annotated[list[Number], Field(min_length=3, max_length=3)]],
)
_calibration = _record(
    FileRecord, temperature=Positive | None, split=str, before=_calibrated, after=_calibrated | None
)
FILES: dict[str, type[FileRecord]] = {
    "summary": _record(
        Result,
        {
            "checksums": dict[str, str] | None,
            "notes": list[str] | None,
            "calibration": _calibration | None,
        },
        **_summary,
        folder=str,
        config=_record(ScalarRecord, loss=str),
    ),
    "machine": _record(ScalarRecord, gpu=str | None, versions=dict[str, str | None]),
    "data": _record(
        FileRecord,
        None,
        **dict.fromkeys(("task", "source", "fingerprint"), str),
        **dict.fromkeys(("notes", "labels"), list[str]),
        kind=Annotated[str, AfterValidator(_check_kind)],
        top_k=Count | None,
        sizes=_record(FileRecord, train=Positive, dev=Count, test=Count),
    ),
}
LINES: dict[str, type[FileRecord]] = {
    "steps": _record(NumberRecord, step=Count, epoch=Count, loss=Number | None, won_share=Number | None),
    "epochs": _record(ScalarRecord, epoch=Count, n_forward=Number, n_backward=Number, seconds=Number),
    "evaluations": _record(
        NumberRecord, step=Count, epoch=Count, loss=Number | None, best=Scalar, margins=Histogram
    ),
    "suspects": _record(
        FileRecord,
        {"picture": str | None},
        index=Count,
        sample=str,
        given=str,
        proposed=str,
        score=Number,
        lead=Number,
        conceded=Number,
    ),
    "predictions": _record(
        FileRecord, {"picture": str | None}, predicted=str | list[str], margin=Number | None
    ),
}
_curves = {
    "steps": list[_record(FileRecord, step=Number, loss=Number, won_share=Number)],  # type: ignore[misc]
    "evaluations": list[_record(FileRecord, step=Number, loss=Number | None, value=Number | None)],  # type: ignore[misc]
    "margins": Histogram,
    "config": dict[str, Scalar],
    "machine": _record(FileRecord, gpu=str | None),
}
STUDY = _record(FileRecord, study=str, words=dict[str, str])
STUDY_RECORD = _record(Result, _summary | _curves, study=str, method=str)

# ------------------------------------------------------------ checks


def parse(text: str) -> Any:
    """Parse JSON, with null for NaN and infinities, and "?" for half of a surrogate pair.

    Raises:
        ValueError: It is not JSON.
    """
    try:
        value = json.loads(text, parse_constant=lambda _: None)
        if "\\ud" in text.lower():  # a lone surrogate could not be written again
            value = json.loads(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return value


def check(model: type[FileRecord], value: Any) -> None:
    """Raise ValueError, which names the place, unless a value fits the model."""
    try:
        model.model_validate(value)
    except ValidationError as error:
        raise ValueError(_explain(error, value)) from None


def check_record(row: Any) -> None:
    """Check a line that ``sparring paper --save`` wrote."""
    check(STUDY_RECORD, row)


def is_study(value: Any, place: str = WHOLE) -> None:
    """Check the first line that ``sparring paper --save`` wrote."""
    check(STUDY, value)


def check_prediction(kind: str, row: dict[str, Any]) -> None:
    """Check a line of predictions, which has the fields of its kind."""
    check(_prediction(kind), row)
    if pair := get_kind(kind).equal_lengths:
        lengths = [len(row[name]) for name in pair]
        if lengths[0] != lengths[1]:
            raise ValueError(f"{pair[1]} must be as many as the {lengths[0]} {pair[0]}, got {lengths[1]}")


@cache
def _prediction(kind: str) -> type[FileRecord]:
    form = get_kind(kind)
    types = {name: list[str] if name in form.list_fields else str for name in form.fields}
    fields: dict[str, Any] = {name: types[name] for name in form.text_fields}
    return _record(LINES["predictions"], predicted=types[form.target], **fields)


def _explain(error: ValidationError, value: Any) -> str:
    """The first problem as one line: place, what is expected, what was found."""
    problem = error.errors(include_url=False)[0]
    if problem["type"] == "value_error":  # from a validator of this file
        return str(problem["ctx"]["error"])
    place = ""
    for key in problem["loc"]:
        try:
            value = value[key]
        except (LookupError, TypeError):  # a missing field, or pydantic's name of a union's member
            break
        place += f"[{key}]" if isinstance(key, int) else f".{key}"
    place = place.removeprefix(".") or WHOLE
    if problem["type"] == "missing":
        return f'{place} must be an object with "{problem["loc"][-1]}", got {_shorten(value)}'
    expected = problem["msg"].removeprefix("Input should be ").partition(" or instance of")[0]
    expected = expected.replace("dictionary", "object").replace("string", "text")
    return f"{place} must be {expected}, got {_shorten(value)}"


def _shorten(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
