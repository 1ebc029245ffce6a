"""Rows of a file with the line each stands on: JSONL, a JSON array, CSV, TSV, gzipped or not; and samples checked against their kind.

An error names the file and the line, says what was expected and what came.
"""

from __future__ import annotations

import ast
import csv
import io
import json
import re
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sparring.lab.kinds import Kind, get_kind
from sparring.lab.task import DataError, Sample
from sparring.lab.untrusted import MAX_TEXT, check_text, parse_json
from sparring.lab.untrusted import read_text as read_text  # the loaders take it from here

FORMS = ("jsonl", "csv", "tsv")
ENDINGS = ".jsonl, .json, .csv or .tsv file (.gz too)"
csv.field_size_limit(MAX_TEXT)  # a document may be longer than the 131072 characters allowed by default
Row = dict[str, Any]
Cells = list[tuple[int, list[str]]]  # the line a record of a table begins on, and its cells


@dataclass(frozen=True)
class Table:
    """Rows with their numbers, and the columns in the order they were first seen."""

    name: str  # of the file, or of what else they come from
    columns: list[str]
    rows: list[tuple[int, Row]]
    unit: str = ":"  # stands between name and number: ":" before a line, ", row " where lines say nothing
    notes: tuple[str, ...] = ()

    def place(self, number: int) -> str:
        return f"{self.name}{self.unit}{number}"


def form_of(path: Path) -> str | None:
    """jsonl (also for a JSON array), csv or tsv by the file's name, None for anything else."""
    ending = Path(path.name.lower().removesuffix(".gz")).suffix[1:]
    ending = {"ndjson": "jsonl", "json": "jsonl", "tab": "tsv"}.get(ending, ending)
    return ending if ending in FORMS else None


def read_lines(path: Path, encoding: str = "utf-8-sig", *, blank: bool = True) -> Iterator[tuple[str, str]]:
    """The place of each line (``path:number``) and the line without its end.

    Only \\n and \\r\\n end a line: a text may hold other separators. ``blank=False`` leaves out empty lines.
    """
    for number, line in enumerate(read_text(path, encoding).split("\n"), 1):
        if blank or line.strip():
            place = f"{path}:{number}"
            yield place, check_text(line.removesuffix("\r"), place)


def match_lines(path: Path, pattern: str, expected: str) -> Iterator[tuple[str, re.Match[str]]]:
    """The place and the match of each line that is not blank.

    Raises:
        DataError: If a line, stripped, does not match the pattern; ``expected`` describes it.
    """
    for place, line in read_lines(path, blank=False):
        match = re.fullmatch(pattern, line.strip())
        if match is None:
            raise DataError(f"{place}: expected {expected}, got {line!r:.80}")
        yield place, match


def some(names: Iterable[Any], most: int = 5) -> str:
    """The first names, shortened, and how many more there are: a file may have a hundred thousand columns."""
    names = list(names)
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(f"{name:.40}" for name in names[:most]) + more


def read_table(path: Path) -> Table:
    """The rows of a JSONL, JSON, CSV or TSV file. The first line of a CSV or TSV file names the columns."""
    form = form_of(path)
    if form is None:
        raise DataError(f"{path}: expected a {ENDINGS}")
    return _json_table(path) if form == "jsonl" else _cell_table(path, form)


def read_samples(path: Path, kind: Kind | str) -> list[Sample]:
    """A file whose columns are the fields of the kind."""
    table = read_table(path)
    return [check_sample(kind, row, table.place(number)) for number, row in table.rows]


def _json_table(path: Path) -> Table:
    text = read_text(path)
    array = text.lstrip().startswith("[")
    rows = _array_rows(path, text) if array else _line_rows(path, text)
    columns = list(dict.fromkeys(column for _, row in rows for column in row))
    return Table(str(path), columns, rows, unit=", row " if array else ":")


def _array_rows(path: Path, text: str) -> list[tuple[int, Row]]:
    try:
        rows = parse_json(text)
    except json.JSONDecodeError as error:
        raise DataError(
            f"{path}:{error.lineno}: not a JSON array: {error.msg} at column {error.colno}"
        ) from None
    for number, row in enumerate(rows, 1):
        if not isinstance(row, dict):
            raise DataError(f"{path}, row {number}: expected a JSON object, got {type(row).__name__}")
    return list(enumerate(rows, 1))


def _line_rows(path: Path, text: str) -> list[tuple[int, Row]]:
    rows: list[tuple[int, Row]] = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            row = parse_json(line)
        except json.JSONDecodeError as error:
            if not rows:
                _refuse_one_object(path, text)
            raise DataError(
                f"{path}:{number}: expected one JSON object a line: {error.msg} at column {error.colno}"
            ) from None
        if not isinstance(row, dict):
            raise DataError(f"{path}:{number}: expected a JSON object, got {type(row).__name__}")
        rows.append((number, row))
    if len(rows) == 1 and any(
        isinstance(value, list) and value and isinstance(value[0], dict) for value in rows[0][1].values()
    ):
        _refuse_one_object(path, text)
    return rows


def _refuse_one_object(path: Path, text: str) -> None:
    try:
        keys = ", ".join(parse_json(text))
    except (json.JSONDecodeError, TypeError):
        return
    raise DataError(
        f"{path}: expected an array of objects, or one object a line; got one object with the keys {keys:.80}. "
        "Keep the array of samples alone, or make a folder with a file for each of train, dev and test"
    )


def _cell_table(path: Path, form: str) -> Table:
    text = read_text(path)
    separator = "\t" if form == "tsv" else _separator(text)
    cells = _tsv_cells(path, text) if separator == "\t" else _cells(path, text, separator)
    header = cells[0][1] if cells else []
    kept = [
        i for i, name in enumerate(header) if name
    ]  # a column without a name is an index, or empty: spreadsheets write both
    columns = [header[i] for i in kept]
    notes = (
        []
        if form == "tsv" or separator == ","
        else [f"{path.name}: columns are separated by {_shown(separator)}"]
    )
    if len(kept) < len(header):
        notes.append(
            f"{path.name}: {len(header) - len(kept)} of {len(header)} columns have no name and are left out"
        )
    rows: list[tuple[int, Row]] = [(number, {header[i]: row[i] for i in kept}) for number, row in cells[1:]]
    return Table(str(path), columns, rows, notes=tuple(notes))


def _separator(text: str) -> str:
    """Whichever cuts the first line into most columns: spreadsheets write ";" where "," is the decimal sign."""
    header = re.split(r"[\r\n]", text.lstrip("\r\n"), maxsplit=1)[0].replace("\0", "")[:MAX_TEXT]
    return max(",;\t", key=lambda separator: len(next(csv.reader([header], delimiter=separator), [])))


def _shown(separator: str) -> str:
    return "tabs" if separator == "\t" else f'"{separator}"'


def _tsv_cells(path: Path, text: str) -> Cells:
    """Tables with tabs come with quoted cells, and more often with quotes as plain characters.

    Quoted unless that is not well-formed, or joins lines that are each a good row as they stand.
    """
    try:
        plain = _cells(path, text, "\t", quoted=False)
    except DataError:
        return _cells(path, text, "\t")
    try:
        quoted = _cells(path, text, "\t")
    except DataError:
        return plain
    return quoted if len(quoted) >= len(plain) else plain


def _cells(path: Path, text: str, separator: str, quoted: bool = True) -> Cells:
    # Line numbers count \n, as editors do; a lone \r ends a line only where there is no \n at all.
    lines = io.StringIO(text, newline="\n" if "\n" in text else "")
    reader = csv.reader(
        lines, delimiter=separator, strict=True, quoting=csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE
    )
    records: Cells = []
    begin = 1
    try:
        for cells in reader:
            number, begin = begin, reader.line_num + 1
            if not cells or cells == [""]:
                continue
            if not records:
                cells = [name.strip() for name in cells]
                named = [name for name in cells if name]
                if len(set(named)) < len(named):
                    raise DataError(f"{path}:{number}: two columns have the same name: {some(named, 20)}")
            elif len(cells) != len(header := records[0][1]):
                raise DataError(
                    f"{path}:{number}: expected {len(header)} columns ({some(header, 20)}), got {len(cells)}"
                )
            records.append((number, cells))
    except csv.Error as error:
        reason = str(error).split(" - do you need")[0]  # the rest is advice to programmers
        if "field limit" in reason:
            reason = (
                f"a cell has more than {MAX_TEXT:,} characters; cut it, or look for a missing quotation mark"
            )
        raise DataError(f"{path}:{begin}: not a well-formed table: {reason}") from None
    return records


def check_sample(kind: Kind | str, row: Row, place: str) -> Sample:
    """A row as a sample of its kind; ``place`` is file and line, for the error."""
    kind = get_kind(kind)
    missing = [name for name in kind.fields if row.get(name) is None]
    if missing:
        raise DataError(
            f"{place}: a {kind} sample needs {', '.join(kind.fields)}; {', '.join(missing)} missing, got {some(row, 20)}"
        )
    sample = {name: _value(name, row[name], name in kind.list_fields, place) for name in kind.fields}
    if kind.equal_lengths is not None:
        one, other = kind.equal_lengths
        if len(sample[one]) != len(sample[other]):
            raise DataError(
                f"{place}: {one} and {other} must have the same length, got {len(sample[one])} and {len(sample[other])}"
            )
    return sample


def _value(name: str, value: Any, is_list: bool, place: str) -> Any:
    if is_list:
        if not isinstance(value, list) or any(
            isinstance(item, (list, dict)) or item is None for item in value
        ):
            raise DataError(f"{place}: {name} must be a list of strings, got {value!r:.80}")
        return [check_text(str(item), f"{place}: {name}") for item in value]
    if isinstance(value, (list, dict)):
        raise DataError(f"{place}: {name} must be a string, got {value!r:.80}")
    return check_text(str(value), f"{place}: {name}")


def is_empty(value: Any) -> bool:
    return (
        value is None or value != value or (isinstance(value, str) and not value.strip())
    )  # NaN is not itself


def as_list(value: Any, separator: str | None) -> list[Any]:
    """A list, a list written into a cell (as JSON or as Python shows it), or a cell cut at the separator.

    >>> as_list('["a", "b"]', None), as_list("['a']", None), as_list("a; b", ";"), as_list("", ";")
    (['a', 'b'], ['a'], ['a', 'b'], [])
    """
    if isinstance(value, list):
        return value
    if is_empty(value):
        return []
    text = str(value).strip()
    if text.startswith("[") and text.endswith("]"):
        for parse in (parse_json, _parse_python):
            try:
                parsed = parse(text)
            except (
                ValueError,
                SyntaxError,
                TypeError,
                RecursionError,
                MemoryError,
            ):  # all of them are ways not to be a list
                continue
            if isinstance(parsed, list):
                return parsed
    if separator == " ":
        return text.split()
    return [piece.strip() for piece in text.split(separator) if piece.strip()] if separator else [text]


def _parse_python(text: str) -> Any:
    """What a Python literal stands for; warnings of odd escapes in it are for programmers."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.literal_eval(text)


def is_written_list(value: Any) -> bool:
    return (
        isinstance(value, str) and value.strip().startswith("[") and as_list(value, None) != [value.strip()]
    )
