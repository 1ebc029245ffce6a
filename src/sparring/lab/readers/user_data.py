"""Open a user's own data: a file, a folder, or a data set on the Hugging Face hub.

Columns and kind are named by the user or guessed (columns.py). Missing dev and test sets are split off train:
always the same samples, stratified by class, and never the same text in two splits.
"""

import random
import re
from collections import Counter, defaultdict
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import Path
from typing import Any

from sparring.lab.kinds import Kind
from sparring.lab.readers.arrays import kind_of, read_folder
from sparring.lab.readers.columns import ColumnMapping, Columns, map_columns
from sparring.lab.readers.files import ENDINGS, RawTable, form_of, read_table, some
from sparring.lab.readers.hub import SPLIT_NAMES, class_names, load_hub, name_classes
from sparring.lab.readers.published import complete
from sparring.lab.task import SPLITS, Data, DataError, Sample, Splits, Task, Where
from sparring.lab.untrusted import file_name

HUB_NAME = re.compile(
    r"hf:(?P<name>[\w.-]+(/[\w.-]+)?)(:(?P<config>[\w.-]+))?|(?P<plain>[\w-][\w.-]*/[\w.-]+)"
)
GUESSED = Columns()
SHARE = 0.1  # of the inputs that a split gets
MAX_INPUTS = 5000  # of a split


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
    splits, split_notes = _split(kind, splits, source.place)
    notes = (*notes, *split_notes, *_quality_notes(kind, splits))
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
    splits = {split: _samples(mapping, table, tables["train"].name) for split, table in tables.items()}
    kind = mapping.kind
    counts: Counter[str] = Counter()
    if kind.labelled:
        samples = [sample for split in splits.values() for sample in split]
        counts.update(label for sample in samples for label in kind.labels_of(sample))
        _check_labels(mapping, counts, tables["train"].name)
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


def _samples(mapping: ColumnMapping, table: RawTable, train_name: str) -> list[Sample]:
    columns = set(table.columns)
    if missing := [column for column in mapping.columns if column not in columns]:
        raise DataError(
            f'{table.name}: expected the columns of {train_name}, "{missing[0]}" is missing; without labels '
            "it cannot be used: take it away, and a part of the train set takes its place"
        )
    return [mapping.sample(row, table.place(number)) for number, row in table.rows]


def _check_labels(mapping: ColumnMapping, counts: Counter[str], name: str) -> None:
    label = f'column "{mapping.roles["label"]}"' if "label" in mapping.roles else "the label columns"
    advice = "use --label-column to name another"
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


# ------------------------------------------------------------ splitting


def _split(kind: Kind, splits: Splits, place: str) -> tuple[Splits, tuple[str, ...]]:
    """Split missing dev and test sets off train."""
    missing = [split for split in ("test", "dev") if split not in splits]
    if not missing:
        return splits, ()
    splits = dict(splits)
    n_inputs = len({kind.key(sample) for sample in splits["train"]})
    if n_inputs < 1 + len(missing):
        problem = f"{n_inputs} different {kind.noun} are too few to split off {' and '.join(missing)}"
        raise DataError(f"{place}: {problem}; add rows, or give all three parts")
    for split in missing:
        splits["train"], splits[split] = split_off_inputs(kind, splits["train"], round(SHARE * n_inputs))
    missing.reverse()
    sizes = " and ".join(f"{len(splits[split])} for {split}" for split in missing)
    how = ", each class in its share" if kind.one_label else ""
    note = f"no {' and no '.join(missing)} set given: split off train, {sizes}{how}; always the same ones"
    return splits, (note,)


def split_off_inputs(
    kind: Kind, samples: list[Sample], n_inputs: int, seed: int = 0
) -> tuple[list[Sample], list[Sample]]:
    """The remaining samples, and all samples of ``n_inputs`` inputs (1 to `MAX_INPUTS`), both in their order.

    Inputs are sorted by class, shuffled within each class and taken at equal distances, so that the split is
    stratified. Classes with fewer than three inputs are left in train if others have more.
    """
    inputs: dict[Hashable, list[int]] = defaultdict(list)
    for i, sample in enumerate(samples):
        inputs[kind.key(sample)].append(i)
    classes: dict[str, list[list[int]]] = defaultdict(list)
    for indices in inputs.values():
        classes[samples[indices[0]][kind.target] if kind.one_label else ""].append(indices)
    rng = random.Random(seed)
    large = [label for label in sorted(classes) if len(classes[label]) >= 3]
    order: list[list[int]] = []
    for label in large or sorted(classes):
        order += rng.sample(classes[label], len(classes[label]))
    n_inputs = max(1, min(n_inputs, MAX_INPUTS, len(order) // 3))
    off = {i for k in range(n_inputs) for i in order[(2 * k + 1) * len(order) // (2 * n_inputs)]}
    return [sample for i, sample in enumerate(samples) if i not in off], [samples[i] for i in sorted(off)]


def _quality_notes(kind: Kind, splits: Splits) -> list[str]:
    """Notes on labels without training samples, samples without a label, and inputs in two splits."""
    notes = []
    if kind.labelled:
        labels = {split: {label for s in splits[split] for label in kind.labels_of(s)} for split in SPLITS}
        if new := sorted((labels["dev"] | labels["test"]) - labels["train"]):
            notes.append(f"labels seen only in dev or test: {some(new)}")
        samples = [sample for split in splits.values() for sample in split]
        if n_unlabelled := sum(not kind.labels_of(sample) for sample in samples):
            notes.append(f"rows without any label: {n_unlabelled}")
    keys = {split: {kind.key(sample) for sample in splits[split]} for split in SPLITS}
    for first, second in combinations(SPLITS, 2):
        if n_both := len(keys[first] & keys[second]):
            notes.append(f"{kind.noun} of {second} that are also in {first}: {n_both}")
    return notes
