"""Read the rows of JSONL, JSON, CSV and TSV files, gzipped or not, and check samples against their kind.

Errors name the file and the line, what was expected and what was found.
"""

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
from sparring.lab.untrusted import MAX_TEXT, check_text, parse_json, read_text

FORMS = {"jsonl": "jsonl", "ndjson": "jsonl", "json": "jsonl", "csv": "csv", "tsv": "tsv", "tab": "tsv"}
ENDINGS = ".jsonl, .json, .csv or .tsv file (.gz too)"
csv.field_size_limit(MAX_TEXT)  # a document may be longer than the 131072 characters allowed by default
Row = dict[str, Any]
Records = list[tuple[int, list[str]]]  # the line on which a record of a table begins, and its cells


@dataclass(frozen=True)
class RawTable:
    """Rows as they were read."""

    name: str  # the file, or the data set on the hub
    columns: list[str]  # in the order in which they first occur
    rows: list[tuple[int, Row]]  # with their numbers
    unit: str = ":"  # between name and number: ":" before a line, ", row " if lines mean nothing
    notes: tuple[str, ...] = ()

    def place(self, number: int) -> str:
        """A row, for an error message."""
        return f"{self.name}{self.unit}{number}"


def form_of(path: Path) -> str | None:
    """jsonl (also for a JSON array), csv or tsv by the name of a file; None for other files."""
    return FORMS.get(Path(path.name.lower().removesuffix(".gz")).suffix[1:])


def read_lines(path: Path, encoding: str = "utf-8-sig", *, blank: bool = True) -> Iterator[tuple[str, str]]:
    """The place of each line (``path:number``) and the line without its end.

    Only \\n and \\r\\n end a line: a text may hold other separators. ``blank=False`` leaves out empty lines.
    """
    for number, line in enumerate(read_text(path, encoding).split("\n"), 1):
        if blank or line.strip():
            place = f"{path}:{number}"
            yield place, check_text(line.removesuffix("\r"), place)


def match_lines(path: Path, pattern: str, expected: str) -> Iterator[tuple[str, re.Match[str]]]:
    """The place and the match of each line that is not empty.

    Raises:
        DataError: If a line, stripped, does not match the pattern; ``expected`` describes it.
    """
    for place, line in read_lines(path, blank=False):
        match = re.fullmatch(pattern, line.strip())
        if match is None:
            raise DataError(f"{place}: expected {expected}, got {line!r:.80}")
        yield place, match


def some(names: Iterable[Any], limit: int = 5) -> str:
    """The first names, shortened, and the number of others: a file may have a hundred thousand columns."""
    names = list(names)
    more = f" and {len(names) - limit:,} more" if len(names) > limit else ""
    return ", ".join(f"{name:.40}" for name in names[:limit]) + more


def read_table(path: Path) -> RawTable:
    """Read a JSONL, JSON, CSV or TSV file. The first line of a CSV or TSV file names the columns."""
    form = form_of(path)
    if form is None:
        raise DataError(f"{path}: expected a {ENDINGS}")
    text = read_text(path)
    return _json_table(path, text) if form == "jsonl" else _cell_table(path, text, form)


# ------------------------------------------------------------ JSON


def _json_table(path: Path, text: str) -> RawTable:
    is_array = text.lstrip().startswith("[")
    unit = ", row " if is_array else ":"
    rows = _array_rows(path, text) if is_array else _line_rows(path, text)
    for number, row in rows:
        if not isinstance(row, dict):
            raise DataError(f"{path}{unit}{number}: expected a JSON object, got {type(row).__name__}")
    return RawTable(str(path), list(dict.fromkeys(column for _, row in rows for column in row)), rows, unit)


def _array_rows(path: Path, text: str) -> list[tuple[int, Any]]:
    try:
        return list(enumerate(parse_json(text), 1))
    except json.JSONDecodeError as error:
        place = f"{path}:{error.lineno}"
        raise DataError(f"{place}: not a JSON array: {error.msg} at column {error.colno}") from None


def _line_rows(path: Path, text: str) -> list[tuple[int, Any]]:
    rows: list[tuple[int, Any]] = []
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                rows.append((number, parse_json(line)))
            except json.JSONDecodeError as error:
                if not rows:
                    _refuse_one_object(path, text)
                problem = f"{error.msg} at column {error.colno}"
                raise DataError(f"{path}:{number}: expected one JSON object a line: {problem}") from None
    if len(rows) == 1 and isinstance(rows[0][1], dict):
        values = rows[0][1].values()
        if any(isinstance(value, list) and value and isinstance(value[0], dict) for value in values):
            _refuse_one_object(path, text)
    return rows


def _refuse_one_object(path: Path, text: str) -> None:
    """Raise an error if the whole text is one JSON object."""
    try:
        keys = ", ".join(parse_json(text))
    except (json.JSONDecodeError, TypeError):
        return
    raise DataError(
        f"{path}: expected an array of objects, or one object a line; got one object with the keys "
        f"{keys:.80}. Keep the array of samples alone, or make a folder with a file for each split"
    )


# ------------------------------------------------------------ CSV and TSV


def _cell_table(path: Path, text: str, form: str) -> RawTable:
    separator = "\t" if form == "tsv" else _guess_separator(text)
    records = _tsv_records(path, text) if separator == "\t" else _records(path, text, separator)
    header = records[0][1] if records else []
    named = [i for i, name in enumerate(header) if name]  # spreadsheets write columns without a name
    notes = []
    if form == "csv" and separator != ",":
        shown = "tabs" if separator == "\t" else f'"{separator}"'
        notes.append(f"{path.name}: columns are separated by {shown}")
    if n_unnamed := len(header) - len(named):
        notes.append(f"{path.name}: {n_unnamed} of {len(header)} columns have no name and are left out")
    rows = [(number, {header[i]: cells[i] for i in named}) for number, cells in records[1:]]
    return RawTable(str(path), [header[i] for i in named], rows, notes=tuple(notes))


def _guess_separator(text: str) -> str:
    """What cuts the first line into most columns: spreadsheets write ";" where "," is the decimal sign."""
    header = re.split(r"[\r\n]", text.lstrip("\r\n"), maxsplit=1)[0].replace("\0", "")[:MAX_TEXT]
    return max(",;\t", key=lambda separator: len(next(csv.reader([header], delimiter=separator), [])))


def _tsv_records(path: Path, text: str) -> Records:
    """Read quotation marks as plain characters if reading them as quotes fails or joins well-formed lines."""
    try:
        plain = _records(path, text, "\t", quoted=False)
    except DataError:
        return _records(path, text, "\t")
    try:
        quoted = _records(path, text, "\t")
    except DataError:
        return plain
    return quoted if len(quoted) >= len(plain) else plain


def _records(path: Path, text: str, separator: str, quoted: bool = True) -> Records:
    # Line numbers count \n, as editors do; a lone \r ends a line only where there is no \n at all.
    lines = io.StringIO(text, newline="\n" if "\n" in text else "")
    quotes: Any = csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE
    reader = csv.reader(lines, delimiter=separator, strict=True, quoting=quotes)
    records: Records = []
    next_line = 1
    try:
        for cells in reader:
            number, next_line = next_line, reader.line_num + 1
            if cells in ([], [""]):
                continue
            if not records:
                cells = [name.strip() for name in cells]
                names = [name for name in cells if name]
                if len(set(names)) < len(names):
                    raise DataError(f"{path}:{number}: two columns have the same name: {some(names, 20)}")
            elif len(cells) != len(header := records[0][1]):
                columns = f"{len(header)} columns ({some(header, 20)})"
                raise DataError(f"{path}:{number}: expected {columns}, got {len(cells)}")
            records.append((number, cells))
    except csv.Error as error:
        problem = str(error).split(" - do you need")[0]  # the rest is advice to programmers
        if "field limit" in problem:
            problem = f"a cell has more than {MAX_TEXT:,} characters; is a quotation mark missing?"
        raise DataError(f"{path}:{next_line}: not a well-formed table: {problem}") from None
    return records


# ------------------------------------------------------------ samples and cells


def read_samples(path: Path, kind: Kind) -> list[Sample]:
    """Read a file whose columns are the fields of the kind."""
    table = read_table(path)
    return [check_sample(kind, row, table.place(number)) for number, row in table.rows]


def check_sample(kind: Kind | str, row: Row, place: str) -> Sample:
    """Make a sample of a row; ``place`` is for errors."""
    kind = get_kind(kind)
    if missing := [name for name in kind.fields if row.get(name) is None]:
        raise DataError(
            f"{place}: a {kind} sample needs {', '.join(kind.fields)}; "
            f"{', '.join(missing)} missing, got {some(row, 20)}"
        )
    lists = kind.list_fields
    sample = {name: _check_value(row[name], name in lists, f"{place}: {name}") for name in kind.fields}
    if kind.equal_lengths is not None:
        lengths = [len(sample[name]) for name in kind.equal_lengths]
        if lengths[0] != lengths[1]:
            names = " and ".join(kind.equal_lengths)
            raise DataError(f"{place}: {names} must have the same length, got {lengths[0]} and {lengths[1]}")
    return sample


def _check_value(value: Any, is_list: bool, place: str) -> str | list[str]:
    items = value if is_list and isinstance(value, list) else [value]
    if is_list != isinstance(value, list) or any(
        isinstance(item, (list, dict)) or item is None for item in items
    ):
        expected = "a list of strings" if is_list else "a string"
        raise DataError(f"{place} must be {expected}, got {value!r:.80}")
    texts = [check_text(str(item), place) for item in items]
    return texts if is_list else texts[0]


def is_empty(value: Any) -> bool:
    """Whether a cell is None, NaN, or has no text."""
    return value is None or value != value or (isinstance(value, str) and not value.strip())


def as_list(value: Any, separator: str | None) -> list[Any]:
    """A list; a list written into a cell, as JSON or as Python shows it; or a cell split at the separator.

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
            except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):  # not a list
                continue
            if isinstance(parsed, list):
                return parsed
    if not separator:
        return [text]
    pieces = text.split() if separator == " " else [piece.strip() for piece in text.split(separator)]
    return [piece for piece in pieces if piece]


def _parse_python(text: str) -> Any:
    """The value of a Python literal. Warnings about odd escapes are for programmers."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.literal_eval(text)


def is_written_list(value: Any) -> bool:
    """Whether a cell holds a list as text."""
    text = value.strip() if isinstance(value, str) else ""
    return text.startswith("[") and as_list(text, None) != [text]
