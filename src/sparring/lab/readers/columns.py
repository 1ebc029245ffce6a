"""Which column holds what, and of what kind the samples are: named by the user, else guessed and said, never guessed between equals."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from sparring.lab.kinds import Kind, get_kind, list_kinds
from sparring.lab.readers.files import Row, Table, as_list, check_sample, is_empty, is_written_list, some
from sparring.lab.task import DataError, Sample, UserError

# Names as normal() gives them: lower case, letters and digits alone.
# fmt: off
TEXTS = {
    "abstract", "article", "body", "comment", "commenttext", "content", "description", "document", "email", "headline", "message",
    "passage", "phrase", "post", "query", "question", "review", "reviewbody", "reviewtext", "sentence", "sms", "text", "title", "tweet",
    "utterance",
}
MANY = {"categories", "classes", "emotions", "genres", "intents", "labels", "tags", "topics"}  # they promise several in a cell
LABELS = MANY | {
    "category", "class", "emotion", "genre", "intent", "label", "polarity", "rating", "sentiment", "stance", "stars", "tag", "target",
    "topic",
}
# fmt: on
PAIRS = (
    ("premise", "hypothesis"),
    ("sentence1", "sentence2"),
    ("question1", "question2"),
    ("text1", "text2"),
    ("texta", "textb"),
    ("sentencea", "sentenceb"),
    ("text", "textb"),
)
IDS = {"id", "idx", "index", "guid", "uid", "uuid", "rowid", "unnamed0"}
SEPARATORS = ("|", ";", ",")
MARKS = {"0": False, "1": True, "0.0": False, "1.0": True, "false": False, "true": True}
FLAGS = {"text": "--text-column", "text_b": "--text-b-column", "label": "--label-column"}


@dataclass(frozen=True)
class Columns:
    """What the user says of the columns; what is None is guessed."""

    text: str | None = None
    text_b: str | None = None
    label: str | None = None
    kind: str | None = None
    separator: str | None = None  # between the labels, or the tokens, in one cell of a table


@dataclass(frozen=True)
class Plan:
    """How a row becomes a sample."""

    kind: Kind
    roles: dict[str, str]  # column by text, text_b, label
    separator: str | None = None
    one_hot: tuple[str, ...] = ()  # columns of 0 and 1, one a label, in place of a label column
    notes: tuple[str, ...] = ()

    @property
    def columns(self) -> list[str]:
        return [*self.roles.values(), *self.one_hot]

    def sample(self, row: Row, place: str) -> Sample:
        made: Row = {
            field: self._value(role, row, place)
            for role, field in self.kind.roles.items()
            if role in self.roles
        }
        if self.one_hot:
            bad = next((column for column in self.one_hot if _mark(row.get(column)) is None), None)
            if bad is not None:
                raise DataError(f'{place}: column "{bad}" must hold 0 or 1, got {row.get(bad)!r:.80}')
            made["labels"] = [column for column in self.one_hot if _mark(row[column])]
        sample = check_sample(self.kind, made, place)
        return {**sample, "labels": list(dict.fromkeys(sample["labels"]))} if self.kind.multilabel else sample

    def _value(self, role: str, row: Row, place: str) -> Any:
        column = self.roles[role]
        value = row.get(column)
        if self.kind.roles[role] in self.kind.list_fields:
            listed = as_list(value, self.separator or self.kind.separator)
            if column not in row or not (listed or self.kind.multilabel):
                raise DataError(f'{place}: column "{column}" is empty')
            return listed
        if is_empty(value):
            raise DataError(f'{place}: column "{column}" is empty')
        exact = self.kind.equal_lengths is not None or isinstance(value, (list, dict))
        return str(value).strip() if role == "label" and not exact else value


def make_plan(table: Table, asked: Columns) -> Plan:
    """The plan for a table, from what the user asked for and what the columns are called and hold."""
    kinds = {candidate.name: candidate for candidate in list_kinds() if candidate.roles}
    if asked.kind is not None and asked.kind not in kinds:
        raise UserError(f'--kind must be one of {", ".join(kinds)}, got "{asked.kind}"')
    roles = {
        role: _named(table, getattr(asked, role), flag)
        for role, flag in FLAGS.items()
        if getattr(asked, role) is not None
    }
    if len(set(roles.values())) < len(roles):
        raise UserError(
            f"{' and '.join(FLAGS[role] for role in roles)} must name different columns, got {', '.join(roles.values())}"
        )
    given = frozenset(roles)
    kind = kinds[asked.kind] if asked.kind else _kind_by_names(table, roles)
    if kind is not None and "text_b" in kind.roles:
        roles = {**_pair(table, roles), **roles}
    elif "text_b" in roles:
        raise UserError(f"--text-b-column goes with --kind pair, got {kind}")
    form = kind or get_kind("multi-class")
    column_names: Mapping[str, Iterable[str]] = form.column_names or {"text": TEXTS, "label": LABELS}
    for role, names in column_names.items():
        _by_name(table, roles, role, names, best=form.roles[role])
    one_hot = _one_hot(table, roles) if kind is None or kind.multilabel else ()
    if not one_hot:
        _by_what_is_left(table, roles, kind)
    separator = asked.separator
    if kind is None:
        several, separator = (True, None) if one_hot else _several_labels(table, roles["label"], separator)
        kind = get_kind("multi-label" if several else "multi-class")
    elif kind.multilabel and not one_hot:
        separator = separator or _find_separator(_values(table, roles["label"]))
    if asked.separator is not None and not kind.has_separator:
        raise UserError(f"--label-separator goes with --kind multi-label or token, got {kind}")
    roles = {role: roles[role] for role in FLAGS if role in roles}
    fields = {kind.roles[role]: column for role, column in roles.items() if role not in given}
    notes = [f'{field} from column "{column}"' for field, column in fields.items() if field != column]
    used = {*roles.values(), *one_hot}
    if unused := [column for column in table.columns if column not in used]:
        notes.append(f"columns not used: {some(unused, 20)}")
    return Plan(kind, roles, separator, one_hot, tuple(notes))


@lru_cache(maxsize=2**17)  # asked for every column and role, and a file may have a hundred thousand columns
def normal(name: str) -> str:
    """
    >>> normal("Text_A"), normal("ner tags")
    ('texta', 'nertags')
    """
    return re.sub(r"[\W_]+", "", name).lower()


def _mark(value: Any) -> bool | None:
    return MARKS.get(str(value).strip().lower())


def _values(table: Table, column: str) -> list[Any]:
    return [value for _, row in table.rows if not is_empty(value := row.get(column))]


def _named(table: Table, name: str, flag: str) -> str:
    """The column the user named; the case of its letters matters only where two differ in nothing else."""
    found = [column for column in table.columns if column == name] or [
        c for c in table.columns if c.lower() == name.lower()
    ]
    if len(found) != 1:
        raise UserError(
            f'{table.name}: no column "{name}" ({flag}); the columns are {_listed(table.columns)}'
        )
    return found[0]


def _listed(columns: Iterable[str]) -> str:
    return some((f'"{column:.38}"' for column in columns), 20) or "none"


def _find(table: Table, roles: dict[str, str], names: Iterable[str]) -> list[str]:
    """Columns with no role yet whose names are among these."""
    return [column for column in table.columns if column not in roles.values() and normal(column) in names]


def _kind_by_names(table: Table, roles: dict[str, str]) -> Kind | None:
    """Token, spelling, generation and pair show in the names of the columns; None for one text with a label or several."""

    def has(*names: str) -> bool:
        return all(len(_find(table, roles, {name})) == 1 for name in names)

    pair, token = get_kind("pair"), get_kind("token")
    if "text_b" in roles:
        return pair
    if "text" in roles:
        return token if _holds_lists(table, roles["text"]) else None
    tags = token.column_names["label"]
    tagged = (
        normal(roles["label"]) in tags or _holds_lists(table, roles["label"])
        if "label" in roles
        else _find(table, roles, tags)
    )
    if tagged and _find(table, roles, token.column_names["text"]):
        return token
    if "label" not in roles and has("source", "target") and not _find(table, roles, TEXTS):
        one, other = _find(table, roles, {"source"})[0], _find(table, roles, {"target"})[0]
        n_equal = sum(len(str(row.get(one))) == len(str(row.get(other))) for _, row in table.rows)
        if n_equal >= 0.95 * len(table.rows):
            return get_kind("spelling")
        n_values = len({str(value) for value in _values(table, other)})
        return get_kind("generation") if 2 * n_values > len(table.rows) else None  # labels would recur
    return pair if any(has(*names) for names in PAIRS) else None


def _holds_lists(table: Table, column: str) -> bool:
    values = _values(table, column)
    return bool(values) and all(isinstance(value, list) or is_written_list(value) for value in values)


def _pair(table: Table, roles: dict[str, str]) -> dict[str, str]:
    """The two texts by their names, else the two columns that are left beside the label."""
    if "text" in roles and "text_b" in roles:
        return {}
    found = [_find(table, roles, {one}) + _find(table, roles, {other}) for one, other in PAIRS]
    found = [pair for pair in found if len(pair) == 2] if not {"text", "text_b"} & set(roles) else []
    if not found:
        label = (
            [roles["label"]]
            if "label" in roles
            else _find(table, roles, {"label"}) or _find(table, roles, LABELS)
        )
        left = [column for column in _left(table, roles) if column not in label]
        missing = [role for role in ("text", "text_b") if role not in roles]
        if len(label) == 1 and len(left) == len(missing):
            return dict(zip(missing, left, strict=True))
    if len(found) != 1:
        raise _ambiguous(table, "the two texts", "text", "text_b")
    return {"text": found[0][0], "text_b": found[0][1]}


def _by_name(table: Table, roles: dict[str, str], role: str, names: Iterable[str], best: str) -> None:
    """Give the role to the one column with such a name; the plainest name goes before all others."""
    if role in roles:
        return
    found = _find(table, roles, {best}) or _find(table, roles, names)
    if len(found) > 1:
        raise _ambiguous(table, f"the {role}", role)
    if found:
        roles[role] = found[0]


def _left(table: Table, roles: dict[str, str]) -> list[str]:
    return [column for column in table.columns if column not in roles.values() and normal(column) not in IDS]


def _one_hot(table: Table, roles: dict[str, str]) -> tuple[str, ...]:
    """The columns beside the text where there are several and all hold 0 and 1; the text may be the one column that does not."""
    if "label" in roles or not table.rows:
        return ()
    left = _left(table, roles)
    marks = [column for column in left if all(_mark(row.get(column)) is not None for _, row in table.rows)]
    hot = set(marks)
    others = [column for column in left if column not in hot]
    if len(marks) < 2 or len(others) != (0 if "text" in roles else 1):
        return ()
    if others:
        _refuse_data(table, [*others, *marks])
        roles["text"] = others[0]
    return tuple(marks)


def _by_what_is_left(table: Table, roles: dict[str, str], kind: Kind | None) -> None:
    """One column and one role left, or two of both: of these the label has fewer different values."""
    missing = [role for role in ("text", "label") if role not in roles]
    left = _left(table, roles)
    if len(missing) == 2 and len(left) == 2 and (kind is None or not kind.column_names):
        n_values = [len({str(value) for value in _values(table, column)}) for column in left]
        text, label = left if n_values[0] > n_values[1] else left[::-1]
        _refuse_data(table, [text, label], label)
        if n_values[0] != n_values[1]:
            roles.update(text=text, label=label)
            return
    if len(missing) == 1 and len(left) == 1:
        roles[missing[0]] = left[0]
    elif missing:
        raise _ambiguous(table, " and ".join(f"the {role}" for role in missing), *missing)


def _refuse_data(table: Table, names: list[str], label: str | None = None) -> None:
    """A first line that is itself a row must not be taken for the names of the columns."""
    like_data = any(re.fullmatch(r"[-+]?[\d.]+", name) or len(name.split()) > 5 for name in names)
    if like_data or (label is not None and label in map(str, _values(table, label))):
        raise DataError(
            f"{table.name}: the first line must name the columns, as in text,label; it looks like a row: {_listed(table.columns)}"
        )


def _ambiguous(table: Table, what: str, *roles: str) -> DataError:
    flags = " and ".join(FLAGS[role] for role in roles)
    return DataError(
        f"{table.name}: cannot tell which column holds {what}; the columns are {_listed(table.columns)}; use {flags}"
    )


def _several_labels(table: Table, column: str, separator: str | None) -> tuple[bool, str | None]:
    """Whether a cell may hold several labels, and their separator: every value is a list, or a separator was given, or found in a
    column whose name promises several."""
    if _holds_lists(table, column):
        return True, None
    if separator is None and normal(column) in MANY:
        separator = _find_separator(_values(table, column))
    return separator is not None, separator


def _find_separator(values: list[Any]) -> str | None:
    """The first that some cells hold, with a piece found in different cells: labels combine, the parts of "Paris, France" do not."""
    cells = {value for value in values if isinstance(value, str) and not is_written_list(value)}
    for separator in SEPARATORS:
        cut = [set(as_list(cell, separator)) for cell in cells]
        pieces = Counter(piece for cell in cut for piece in cell)
        if any(len(cell) > 1 for cell in cut) and pieces.total() > len(pieces):
            return separator
    return None
