"""Find out which column of a table holds what, and the kind of its samples.

The user may name columns and kind. The rest is guessed from the names and the values of the columns, and the
guess is reported. Between equally good columns nothing is guessed: an error asks for it.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sparring.lab.errors import EmptyCellError, option
from sparring.lab.kinds import Kind, get_kind, list_kinds
from sparring.lab.readers.files import RawTable, Row, as_list, check_sample, is_empty, is_written_list, some
from sparring.lab.task import DataError, Sample, UserError

# Names of columns without case, spaces and punctuation (see `normalized`).
# fmt: off
TEXTS = frozenset({
    "abstract", "article", "body", "comment", "commenttext", "content", "description", "document", "email",
    "headline", "message", "passage", "phrase", "post", "query", "question", "review", "reviewbody",
    "reviewtext", "sentence", "sms", "text", "title", "tweet", "utterance",
})
PLURALS = frozenset({"categories", "classes", "emotions", "genres", "intents", "labels", "tags", "topics"})
LABELS = PLURALS | {
    "category", "class", "emotion", "genre", "intent", "label", "polarity", "rating", "sentiment", "stance",
    "stars", "tag", "target", "topic",
}
# fmt: on
IDS = frozenset({"id", "idx", "index", "guid", "uid", "uuid", "rowid", "unnamed0"})
SEPARATORS = ("|", ";", ",")
BOOLEANS = {"0": False, "1": True, "0.0": False, "1.0": True, "false": False, "true": True}
ROLES = {"text": "text_column", "text_b": "text_b_column", "label": "label_column"}  # and their settings


@dataclass(frozen=True)
class Columns:
    """What the user says about the columns of a table. None: guess."""

    text: str | None = None
    text_b: str | None = None
    label: str | None = None
    kind: str | None = None
    separator: str | None = None  # of the labels, or the tokens, in a cell
    missing: str | None = None  # drop: leave out rows with an empty cell


@dataclass(frozen=True)
class ColumnMapping:
    """How the rows of a table become samples."""

    kind: Kind
    roles: Mapping[str, str]  # the columns by role: text, text_b, label
    separator: str | None = None  # of several values in a cell
    label_columns: tuple[str, ...] = ()  # columns of 0 and 1, one per label, in place of a label column
    notes: tuple[str, ...] = ()  # on what was guessed

    @property
    def columns(self) -> list[str]:
        """All columns that are used."""
        return [*self.roles.values(), *self.label_columns]

    def describe(self, n_labels: int) -> str:
        """Tell a user how the columns were understood."""
        if self.label_columns:
            return f"{n_labels} columns of 0 and 1, one per label: {some(self.label_columns)}"
        separator = f', separated by "{self.separator}"' if self.separator and self.kind.multilabel else ""
        return self.kind.description.format(**self.roles, n_labels=n_labels) + separator

    def sample(self, row: Row, place: str) -> Sample:
        """Make a sample of a row; ``place`` is for errors."""
        fields = {self.kind.roles[role]: self._value(role, row, place) for role in self.roles}
        if self.label_columns:
            fields[self.kind.target] = self._marked_labels(row, place)
        sample = check_sample(self.kind, fields, place)
        if self.kind.multilabel:
            sample[self.kind.target] = list(dict.fromkeys(sample[self.kind.target]))
        return sample

    def _marked_labels(self, row: Row, place: str) -> list[str]:
        for column in self.label_columns:
            if is_empty(row.get(column)):
                raise EmptyCellError(place, column)
            if _boolean(row.get(column)) is None:
                raise DataError(f'{place}: column "{column}" must hold 0 or 1, got {row.get(column)!r:.80}')
        return [column for column in self.label_columns if _boolean(row[column])]

    def _value(self, role: str, row: Row, place: str) -> Any:
        column = self.roles[role]
        value = row.get(column)
        if self.kind.roles[role] in self.kind.list_fields:
            value = as_list(value, self.separator or self.kind.separator)
            empty = column not in row or not (value or self.kind.multilabel)
        else:
            empty = is_empty(value)
        if empty:
            raise EmptyCellError(place, column)
        if role != "label" or isinstance(value, (list, dict)) or self.kind.equal_lengths is not None:
            return value
        return str(value).strip()


def map_columns(table: RawTable, requested: Columns) -> ColumnMapping:
    """Decide the role of each column and the kind, from what the user requests and what the columns hold."""
    kinds = {candidate.name: candidate for candidate in list_kinds() if candidate.roles}
    name = requested.kind
    if name is not None and name not in kinds:
        raise UserError(f'{option("kind")} must be one of {", ".join(kinds)}, got "{name}"')
    matcher = ColumnMatcher(table)
    roles = matcher.roles
    matcher.assign_requested(requested)
    guessed = [role for role in ROLES if role not in roles]
    candidates = [kinds[name]] if name else [form for form in kinds.values() if form.recognises(matcher)]
    kind = candidates[0] if candidates else None
    if kind is not None and "text_b" in kind.roles:
        matcher.assign_pair(kind.text_pairs)
    elif "text_b" in roles:
        raise UserError(f"{option('text_b_column')} goes with {option('kind', 'pair')}, got {kind}")
    matcher.assign_by_name(kind or get_kind("multi-class"))
    label_columns = matcher.indicator_columns() if kind is None or kind.multilabel else ()
    if not label_columns:
        matcher.assign_remaining(by_values=kind is None or not kind.column_names)
    separator = requested.separator
    if kind is None:
        lists = bool(label_columns) or matcher.holds_lists(roles["label"])
        if lists:
            separator = None
        elif separator is None and normalized(roles["label"]) in PLURALS:
            separator = _find_separator(matcher.values(roles["label"]))
        kind = get_kind("multi-label" if lists or separator is not None else "multi-class")
    elif kind.multilabel and not label_columns:
        separator = separator or _find_separator(matcher.values(roles["label"]))
    if requested.separator is not None and not kind.has_separator:
        fits = f"{option('kind', 'multi-label')} or token"
        raise UserError(f"{option('label_separator')} goes with {fits}, got {kind}")
    roles = {role: roles[role] for role in ROLES if role in roles}
    fields = {kind.roles[role]: roles[role] for role in guessed if role in roles}
    notes = [f'{field} from column "{column}"' for field, column in fields.items() if field != column]
    used = {*roles.values(), *label_columns}
    if unused := [column for column in table.columns if column not in used]:
        notes.append(f"columns not used: {some(unused, 20)}")
    return ColumnMapping(kind, roles, separator, label_columns, tuple(notes))


class ColumnMatcher:
    """Finds the column of each role. `Kind.recognises` looks at a table through it."""

    def __init__(self, table: RawTable) -> None:
        self.table = table
        self.roles: dict[str, str] = {}  # the columns that were found, by role: text, text_b, label
        self._columns: dict[str, list[str]] = defaultdict(list)  # by normalized name
        for column in table.columns:
            self._columns[normalized(column)].append(column)

    def find(self, *names: str) -> list[str]:
        """The columns without a role that have one of these names."""
        columns = [column for name in names for column in self._columns.get(name, ())]
        return [column for column in columns if column not in self.roles.values()]

    def values(self, column: str) -> list[Any]:
        """All values of a column that are not empty."""
        return [value for _, row in self.table.rows if not is_empty(value := row.get(column))]

    def is_named(self, column: str, names: Collection[str]) -> bool:
        return normalized(column) in names

    def n_values(self, column: str) -> int:
        """The number of different values of a column."""
        return len({str(value) for value in self.values(column)})

    def holds_lists(self, column: str) -> bool:
        """Whether all values of a column are lists."""
        values = self.values(column)
        return bool(values) and all(isinstance(value, list) or is_written_list(value) for value in values)

    def source_and_target(self) -> tuple[str, str] | None:
        """The columns "source" and "target", if there is no other text and the user names no column."""
        source, target = self.find("source"), self.find("target")
        if self.roles or len(source) != 1 or len(target) != 1 or self.find(*TEXTS):
            return None
        return source[0], target[0]

    def assign_requested(self, requested: Columns) -> None:
        """Assign the columns that the user names. Case matters only if two names differ in nothing else."""
        for role, setting in ROLES.items():
            name = getattr(requested, role)
            if name is None:
                continue
            columns = [column for column in self.table.columns if column.lower() == name.lower()]
            if name in columns:
                columns = [name]
            if len(columns) != 1:
                listed = _listed(self.table.columns)
                missing = f'no column "{name}" ({option(setting)})'
                raise UserError(f"{self.table.name}: {missing}; the columns are {listed}")
            self.roles[role] = columns[0]
        if len(set(self.roles.values())) < len(self.roles):
            names = " and ".join(option(ROLES[role]) for role in self.roles)
            raise UserError(f"{names} must name different columns, got {', '.join(self.roles.values())}")

    def assign_pair(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Assign the two texts by their names; else the two columns that remain beside the label."""
        missing = [role for role in ("text", "text_b") if role not in self.roles]
        if not missing:
            return
        candidates = [self.find(first) + self.find(second) for first, second in pairs]
        candidates = [columns for columns in candidates if len(columns) == 2] if len(missing) == 2 else []
        if not candidates:
            label = [column for role, column in self.roles.items() if role == "label"]
            label = label or self.find("label") or self.find(*LABELS)
            columns = [column for column in self._remaining() if column not in label]
            candidates = [columns] if len(label) == 1 and len(columns) == len(missing) else []
        if len(candidates) != 1:
            raise self._ambiguous("the two texts", "text", "text_b")
        self.roles |= zip(missing, candidates[0], strict=True)

    def assign_by_name(self, kind: Kind) -> None:
        """Assign text and label to the columns with such names; the name of the field is preferred."""
        for role, names in (kind.column_names or {"text": TEXTS, "label": LABELS}).items():
            if role in self.roles:
                continue
            columns = self.find(kind.roles[role]) or self.find(*names)
            if len(columns) > 1:
                raise self._ambiguous(f"the {role}", role)
            if columns:
                self.roles[role] = columns[0]

    def indicator_columns(self) -> tuple[str, ...]:
        """Two or more columns of 0 and 1 beside the text; the text may be the one other column."""
        if "label" in self.roles or not self.table.rows:
            return ()
        remaining = self._remaining()
        rows = [row for _, row in self.table.rows]
        is_indicator = {c: all(_boolean(row.get(c)) is not None for row in rows) for c in remaining}
        indicators = [column for column in remaining if is_indicator[column]]
        others = [column for column in remaining if not is_indicator[column]]
        if len(indicators) < 2 or len(others) != (0 if "text" in self.roles else 1):
            return ()
        if others:
            self._check_header([*others, *indicators])
            self.roles["text"] = others[0]
        return tuple(indicators)

    def assign_remaining(self, by_values: bool) -> None:
        """Assign one missing role to the one remaining column, or two to two: the label has fewer values."""
        missing = [role for role in ("text", "label") if role not in self.roles]
        remaining = self._remaining()
        if len(missing) == len(remaining) == 2 and by_values:
            counts = {column: self.n_values(column) for column in remaining}
            label, text = sorted(remaining, key=lambda column: counts[column])
            self._check_header([text, label], label)
            if counts[label] < counts[text]:
                self.roles |= {"text": text, "label": label}
                return
        if len(missing) == len(remaining) == 1:
            self.roles[missing[0]] = remaining[0]
        elif missing:
            raise self._ambiguous(" and ".join(f"the {role}" for role in missing), *missing)

    def _remaining(self) -> list[str]:
        taken = {*self.roles.values(), *self.find(*IDS)}
        return [column for column in self.table.columns if column not in taken]

    def _check_header(self, names: Collection[str], label: str | None = None) -> None:
        """Refuse names of columns that look like a row."""
        like_data = any(re.fullmatch(r"[-+]?[\d.]+", name) or len(name.split()) > 5 for name in names)
        if like_data or (label is not None and label in map(str, self.values(label))):
            expected = "the first line must name the columns, as in text,label"
            listed = _listed(self.table.columns)
            raise DataError(f"{self.table.name}: {expected}; it looks like a row: {listed}")

    def _ambiguous(self, what: str, *roles: str) -> DataError:
        names = " and ".join(option(ROLES[role]) for role in roles)
        columns = f"the columns are {_listed(self.table.columns)}"
        return DataError(f"{self.table.name}: cannot tell which column holds {what}; {columns}; use {names}")


def normalized(name: str) -> str:
    """The name in lower case, without spaces and punctuation: ``Text_A`` and ``text a`` are ``texta``."""
    return re.sub(r"[\W_]+", "", name).lower()


def _boolean(value: Any) -> bool | None:
    return BOOLEANS.get(str(value).strip().lower())


def _listed(columns: Iterable[str]) -> str:
    return some((f'"{column:.38}"' for column in columns), 20) or "none"


def _find_separator(values: Iterable[Any]) -> str | None:
    """The first separator in the cells that yields recurring pieces: labels do, "Paris, France" does not."""
    cells = {value for value in values if isinstance(value, str) and not is_written_list(value)}
    for separator in SEPARATORS:
        pieces = [set(as_list(cell, separator)) for cell in cells]
        counts = Counter(piece for cell in pieces for piece in cell)
        if any(len(cell) > 1 for cell in pieces) and counts.total() > len(counts):
            return separator
    return None
