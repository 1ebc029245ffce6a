"""Open a user's own data: a file, a folder, or a data set on the Hugging Face hub.

Columns and kind are named by the user or guessed (columns.py). Missing dev and test sets are split off train
(splits.py).
"""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sparring.lab.errors import EmptyCellError, option
from sparring.lab.kinds import Kind
from sparring.lab.readers.arrays import kind_of, read_folder
from sparring.lab.readers.columns import ColumnMapping, Columns, map_columns, normalized
from sparring.lab.readers.files import ENDINGS, RawTable, form_of, read_table, some
from sparring.lab.readers.hub import SPLIT_NAMES, class_names, load_hub, name_classes
from sparring.lab.readers.published import complete
from sparring.lab.readers.splits import quality_notes, split_missing
from sparring.lab.task import Data, DataError, Sample, Splits, Task, Where
from sparring.lab.untrusted import file_name

HUB_NAME = re.compile(
    r"hf:(?P<name>[\w.-]+(/[\w.-]+)?)(:(?P<config>[\w.-]+))?|(?P<plain>[\w-][\w.-]*/[\w.-]+)"
)
GUESSED = Columns()
NO_LABEL = frozenset({"nan", "none", "null", "na", "nil"})  # without case and punctuation: N/A is one, too


def is_user_data(target: str) -> bool:
    """Whether a target is a path, looks like one, or is a name on the hub.

    >>> is_user_data("my.csv.gz"), is_user_data("owner/name"), is_user_data("hf:name:config")
    (True, True, True)
    >>> is_user_data("clinc_oos")
    False
    """
    path = Path(target).expanduser()
    return target != "" and (
        path.exists() or form_of(path) is not None or "/" in target or HUB_NAME.fullmatch(target) is not None
    )


def open_user_data(
    target: str, where: Where, columns: Columns = GUESSED, image_size: int | None = None
) -> tuple[Task, Data]:
    """Read a file, a folder or a data set on the hub.

    Args:
        target: A path or a name on the hub (see `is_user_data`).
        where: Whether the hub may be asked.
        columns: What the user says about the columns of tables.
        image_size: Width and height of images in a folder.

    Returns:
        A task, whose ``load`` returns the data, and the data.
    """
    path = Path(target).expanduser()
    kind = kind_of(path) if path.is_dir() else None
    if kind is not None:
        source = Source(file_name(path.resolve().name), str(path), str(path))
        splits, notes = _read_media(path, kind, image_size)
    else:
        source = _find_tables(target, where)
        kind, splits, notes = _read_samples(source, columns)
    splits, split_notes = split_missing(kind, splits, source.place)
    notes = (*notes, *split_notes, *quality_notes(kind, splits))
    data = complete(kind, splits, source.place, notes)
    task = Task(
        name=source.name,
        kind=kind,
        about=f"your data, {source.place}",
        load=lambda _where: data,
        metric=kind.default_metric(data.labels),
        home=source.home,
        sizes=(len(data.train), len(data.dev), len(data.test)),
        settings=kind.task_settings,
    )
    return task, data


# ------------------------------------------------------------ reading


@dataclass(frozen=True)
class Source:
    """Where data comes from."""

    name: str  # for folders of runs
    place: str  # for messages
    home: str  # path or address
    tables: Mapping[str, RawTable] = field(default_factory=dict)


def _read_media(folder: Path, kind: Kind, image_size: int | None) -> tuple[Splits, tuple[str, ...]]:
    splits, notes = read_folder(folder, kind, image_size)
    if len(labels := {sample["label"] for sample in splits["train"]}) < 2:
        left_out = "".join(f"; {note}" for note in notes if "left out" in note)
        raise DataError(
            f"{folder}: at least 2 classes are needed, got {some(sorted(labels))}; "
            f"expected a folder for each below it{left_out}"
        )
    return splits, notes


def _find_tables(target: str, where: Where) -> Source:
    path = Path(target).expanduser()
    if path.is_dir():
        return Source(file_name(path.resolve().name), str(path), str(path), _folder_tables(path))
    match = HUB_NAME.fullmatch(target)
    if path.exists() or form_of(path) is not None or match is None:
        stem = re.sub(r"\.[^.]+$", "", re.sub(r"\.gz$", "", path.name, flags=re.IGNORECASE))
        return Source(file_name(stem), str(path), str(path), {"train": read_table(path)})
    if not where.hub:
        reason = "the Hugging Face hub is not to be asked (HF_HUB_OFFLINE)"
        raise DataError(f"{target}: no such file or folder, and {reason}")
    name, config = match["name"] or match["plain"], match["config"]
    try:
        splits = load_hub(name, config)
    except DataError as error:
        also = "; there is no such file or folder either" if match["plain"] else ""
        raise DataError(f"{error}{also}") from None
    if not splits:
        raise DataError(f"{name}: no split of this data set is named train, validation or test")
    tables = {split: _hub_table(f"{name} ({split})", rows) for split, rows in splits.items()}
    full_name = name if config is None else f"{name}:{config}"
    home = f"https://huggingface.co/datasets/{name}"
    return Source(file_name(re.sub("[/:]", "--", full_name)), f"hf:{full_name}", home, tables)


def _folder_tables(folder: Path) -> dict[str, RawTable]:
    tables = {}
    files = [path for path in sorted(folder.iterdir()) if path.is_file() and form_of(path) is not None]
    for split, names in SPLIT_NAMES.items():
        paths = [path for path in files if path.name.lower().split(".")[0] in names]
        if len(paths) > 1:
            listed = ", ".join(path.name for path in paths)
            raise DataError(f"{folder}: more than one file for {split}: {listed}; leave one")
        if paths:
            tables[split] = read_table(paths[0])
    if "train" not in tables:
        raise DataError(
            f"{folder}: no train set; expected train, dev and test, each a {ENDINGS}; "
            f"found {some(path.name for path in files) or 'none'}"
        )
    return tables


def train_table(target: str) -> RawTable | None:
    """The table that holds the training samples of a user's file or folder; None for any other data."""
    path = Path(target).expanduser()
    if path.is_dir() and kind_of(path) is None:
        return _folder_tables(path)["train"]
    return read_table(path) if path.is_file() else None


def _hub_table(name: str, rows: Any) -> RawTable:
    """The rows with names of classes; a label that the publisher hides becomes None."""
    columns = list(rows.features)
    classes = [column for column in columns if class_names(rows, column) is not None]
    return RawTable(name, columns, list(enumerate(name_classes(rows, classes), 1)), ", row ")


def _read_samples(source: Source, columns: Columns) -> tuple[Kind, Splits, tuple[str, ...]]:
    """The kind of a table, its samples, and notes on how it was understood."""
    tables = source.tables
    for split, table in tables.items():
        if not table.rows:
            raise DataError(f"{table.name}: the {split} set is empty")
    if "train" not in tables:
        raise DataError(f"{source.place}: there is no train set, only {', '.join(tables)}")
    mapping = map_columns(tables["train"], columns)
    hidden: list[str] = []
    if source.place.startswith("hf:"):
        tables, hidden = _labelled_rows(mapping, tables)
    drop = columns.missing == "drop"
    splits: Splits = {}
    for split, table in tables.items():
        splits[split], n_dropped = _samples(mapping, table, tables["train"].name, drop)
        if n_dropped:
            hidden.append(f"{n_dropped} of {len(table.rows)} {split} rows with an empty cell are left out")
        if not splits[split]:
            raise DataError(f"{table.name}: no row of the {split} set has all cells; nothing is left")
    kind = mapping.kind
    counts: Counter[str] = Counter()
    if kind.labelled:
        samples = [sample for split in splits.values() for sample in split]
        counts.update(label for sample in samples for label in kind.labels_of(sample))
        _check_labels(mapping, counts, tables["train"].name)
        hidden += [
            f'{n} rows have the label "{label}", which is a class here; if it stands for no label, empty '
            f"these cells and use {option('missing', 'drop')}"
            for label, n in counts.items()
            if normalized(label) in NO_LABEL
        ]
    description = f"kind {kind}: {mapping.describe(len(counts))}"
    table_notes = [note for table in tables.values() for note in table.notes]
    return kind, splits, (*table_notes, description, *mapping.notes, *hidden)


def _labelled_rows(
    mapping: ColumnMapping, tables: Mapping[str, RawTable]
) -> tuple[dict[str, RawTable], list[str]]:
    """Leave out rows without a label, which published sets may have, and splits of such rows only."""
    labelled = {}
    notes = []
    for split, table in tables.items():
        used = mapping.columns
        rows = [pair for pair in table.rows if all(pair[1].get(column) is not None for column in used)]
        if n_hidden := len(table.rows) - len(rows):
            notes.append(f"{n_hidden} of {len(table.rows)} {split} rows have no label and are left out")
        if rows:
            labelled[split] = replace(table, rows=rows)
    if "train" not in labelled:
        raise DataError(f"{tables['train'].name}: no row has a label")
    return labelled, notes


def _samples(
    mapping: ColumnMapping, table: RawTable, train_name: str, drop: bool
) -> tuple[list[Sample], int]:
    """The samples of a table, and how many rows were dropped since a cell is empty."""
    columns = set(table.columns)
    if missing := [column for column in mapping.columns if column not in columns]:
        raise DataError(
            f'{table.name}: expected the columns of {train_name}, "{missing[0]}" is missing; without labels '
            "it cannot be used: take it away, and a part of the train set takes its place"
        )
    samples = []
    for number, row in table.rows:
        try:
            samples.append(mapping.sample(row, table.place(number)))
        except EmptyCellError:
            if not drop:
                raise
    return samples, len(table.rows) - len(samples)


def _check_labels(mapping: ColumnMapping, counts: Counter[str], name: str) -> None:
    label = f'column "{mapping.roles["label"]}"' if "label" in mapping.roles else "the label columns"
    advice = f"use {option('label_column')} to name another"
    if len(counts) < 2:
        values = some(counts) or "none"
        raise DataError(f"{name}: {label} must hold at least 2 different values, got {values}; {advice}")
    if not mapping.kind.one_label:
        return
    if 2 * len(counts) > counts.total():
        values = f"{len(counts)} different values in {counts.total()} rows ({some(counts)})"
        raise DataError(f"{name}: {label} has {values}; classification needs labels that recur; {advice}")
    fractions = [value for value in counts if re.fullmatch(r"[-+]?\d*\.\d*[1-9]\d*", value)]
    if fractions and all(re.fullmatch(r"[-+]?\d*\.?\d*", value) for value in counts):
        values = f"numbers to be predicted ({some(fractions)})"
        raise DataError(f"{name}: {label} holds {values}; classification needs labels that recur")
