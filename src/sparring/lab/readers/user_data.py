"""Your own data: a file, a folder of files or a data set on the Hugging Face hub, without a line of code.

Columns and kind are named or guessed, and the guess is said (columns.py). What is not there of dev and test is split off train:
always the same samples, each class in its share, and never the same text on both sides.
"""

from __future__ import annotations

import random
import re
from collections import Counter, defaultdict
from collections.abc import Hashable
from pathlib import Path
from typing import Any

from sparring.lab.kinds import Kind, get_kind
from sparring.lab.readers.arrays import kind_of, read_folder
from sparring.lab.readers.columns import Columns, Plan, make_plan
from sparring.lab.readers.files import ENDINGS, Table, form_of, read_table, some
from sparring.lab.readers.hub import SPLIT_NAMES, class_names, load_hub
from sparring.lab.readers.published import complete
from sparring.lab.task import (
    SPLITS,
    Data,
    DataError,
    Sample,
    Splits,
    Task,
    Where,
)
from sparring.lab.untrusted import file_name

HUB_NAME = re.compile(
    r"hf:(?P<name>[\w.-]+(/[\w.-]+)?)(:(?P<config>[\w.-]+))?|(?P<plain>[\w-][\w.-]*/[\w.-]+)"
)
GUESSED = Columns()
SHARE, MOST = 0.1, 5000  # of what is split off


def is_yours(target: str) -> bool:
    """A path that is there or looks like one, or a name on the hub.

    >>> is_yours("my.csv.gz"), is_yours("owner/name"), is_yours("hf:name:config"), is_yours("clinc_oos")
    (True, True, True, False)
    """
    path = Path(target).expanduser()
    return target != "" and (
        path.exists() or form_of(path) is not None or "/" in target or HUB_NAME.fullmatch(target) is not None
    )


def open_yours(
    target: str, where: Where, columns: Columns = GUESSED, side: int | None = None
) -> tuple[Task, Data]:
    """Read everything at once: the task's ``load`` gives what is already there. ``side``: of images in a folder."""
    path = Path(target).expanduser()
    if path.is_dir() and (kind := kind_of(path)) is not None:
        return _open_arrays(path, kind, side)
    name, source, home, tables = _read(target, where)
    for part, table in tables.items():
        if not table.rows:
            raise DataError(f"{table.name}: the {part} set is empty")
    if "train" not in tables:
        raise DataError(f"{source}: there is no train set, only {', '.join(tables)}")
    plan = make_plan(tables["train"], columns)
    tables, hidden = _without_hidden(plan, tables) if source.startswith("hf:") else (tables, ())
    splits = {part: _samples(plan, table, tables["train"]) for part, table in tables.items()}
    _check_labels(plan, splits, tables["train"].name)
    whole, split_notes = _split(plan.kind, splits, source)
    read_notes = tuple(note for table in tables.values() for note in table.notes)
    notes = (
        *read_notes,
        _kind_note(plan, splits),
        *plan.notes,
        *hidden,
        *split_notes,
        *_part_notes(plan.kind, whole),
    )
    data = complete(plan.kind, whole, source, notes)
    sizes = (len(data.train), len(data.dev), len(data.test))
    task = Task(
        name,
        plan.kind,
        f"your data, {source}",
        lambda _where: data,
        plan.kind.default_metric(data.labels),
        home,
        sizes,
    )
    return task, data


def _open_arrays(folder: Path, kind: Kind, side: int | None) -> tuple[Task, Data]:
    """A folder of images or sounds."""
    splits, notes = read_folder(folder, kind, side)
    if len(labels := {sample["label"] for sample in splits["train"]}) < 2:
        raise DataError(
            f"{folder}: at least 2 classes are needed, got {some(sorted(labels))}; "
            "expected a folder for each below it"
            + "".join(f"; {note}" for note in notes if "left out" in note)
        )
    whole, split_notes = _split(kind, splits, str(folder))
    data = complete(kind, whole, str(folder), (*notes, *split_notes, *_part_notes(kind, whole)))
    sizes = (len(data.train), len(data.dev), len(data.test))
    name = file_name(folder.resolve().name)
    task = Task(
        name,
        kind,
        f"your data, {folder}",
        lambda _where: data,
        kind.default_metric(data.labels),
        str(folder),
        sizes,
        settings=kind.task_settings,
    )
    return task, data


def _read(target: str, where: Where) -> tuple[str, str, str, dict[str, Table]]:
    """Name, source, home, and the tables by train, dev, test."""
    path = Path(target).expanduser()
    if path.is_dir():
        return file_name(path.resolve().name), str(path), str(path), _read_folder(path)
    match = HUB_NAME.fullmatch(target)
    if path.exists() or form_of(path) is not None or match is None:
        table = read_table(path)
        stem = re.sub(r"\.[^.]+$", "", re.sub(r"\.gz$", "", path.name, flags=re.IGNORECASE))
        return file_name(stem), str(path), str(path), {"train": table}
    name, config = match["name"] or match["plain"], match["config"]
    if not where.hub:
        raise DataError(
            f"{target}: no such file or folder, and the Hugging Face hub is not to be asked (HF_HUB_OFFLINE)"
        )
    try:
        found = load_hub(name, config)
    except DataError as error:
        raise DataError(
            f"{error}; there is no such file or folder either" if match["plain"] else str(error)
        ) from None
    tables = {part: _hub_table(f"{name} ({part})", rows) for part, rows in found.items()}
    if not tables:
        raise DataError(f"{name}: no split of this data set is named train, validation or test")
    full_name = name if config is None else f"{name}:{config}"
    home = f"https://huggingface.co/datasets/{name}"
    return file_name(full_name.replace("/", "--").replace(":", "--")), f"hf:{full_name}", home, tables


def _read_folder(folder: Path) -> dict[str, Table]:
    tables = {}
    files = [path for path in sorted(folder.iterdir()) if path.is_file() and form_of(path) is not None]
    for part, names in SPLIT_NAMES.items():
        found = [path for path in files if path.name.lower().split(".")[0] in names]
        if len(found) > 1:
            raise DataError(
                f"{folder}: more than one file for {part}: {', '.join(path.name for path in found)}; leave one"
            )
        if found:
            tables[part] = read_table(found[0])
    if "train" not in tables:
        raise DataError(
            f"{folder}: no train set; expected train, dev and test, each a {ENDINGS}; found {some(p.name for p in files) or 'none'}"
        )
    return tables


def _hub_table(name: str, rows: Any) -> Table:
    """Class numbers become names; a label the publisher hides (-1) becomes None."""
    columns = list(rows.features)
    names = {column: found for column in columns if (found := class_names(rows, column)) is not None}

    def named(column: str, value: Any) -> Any:
        if isinstance(value, list):
            return [named(column, item) for item in value]
        return value if column not in names else None if value is None or value < 0 else names[column][value]

    return Table(
        name,
        columns,
        [(i, {column: named(column, row[column]) for column in columns}) for i, row in enumerate(rows, 1)],
        ", row ",
    )


def _without_hidden(plan: Plan, tables: dict[str, Table]) -> tuple[dict[str, Table], tuple[str, ...]]:
    """Rows of published sets may have no label: they are left out, and parts of such rows too."""
    kept, notes = {}, []
    for part, table in tables.items():
        rows = [
            (number, row)
            for number, row in table.rows
            if all(row.get(column) is not None for column in plan.columns)
        ]
        if len(rows) < len(table.rows):
            notes.append(
                f"{len(table.rows) - len(rows)} of {len(table.rows)} {part} rows have no label and are left out"
            )
        if rows:
            kept[part] = Table(table.name, table.columns, rows, table.unit, table.notes)
    if "train" not in kept:
        raise DataError(f"{tables['train'].name}: no row has a label")
    return kept, tuple(notes)


def _samples(plan: Plan, table: Table, train: Table) -> list[Sample]:
    columns = set(table.columns)
    missing = [column for column in plan.columns if column not in columns]
    if missing:
        raise DataError(
            f'{table.name}: expected the columns of {train.name}, "{missing[0]}" is missing; without labels it cannot be used: '
            "take it away, and a part of the train set takes its place"
        )
    return [plan.sample(row, table.place(number)) for number, row in table.rows]


def _check_labels(plan: Plan, splits: Splits, name: str) -> None:
    if not plan.kind.labelled:
        return
    counts = Counter(
        label for samples in splits.values() for sample in samples for label in plan.kind.labels_of(sample)
    )
    what = f'column "{plan.roles["label"]}"' if "label" in plan.roles else "the label columns"
    if len(counts) < 2:
        raise DataError(
            f"{name}: {what} must hold at least 2 different values, got {some(counts) or 'none'}; use --label-column to name another"
        )
    if not plan.kind.one_label:
        return
    if 2 * len(counts) > counts.total():
        raise DataError(
            f"{name}: {what} has {len(counts)} different values in {counts.total()} rows ({some(counts)}); "
            "classification needs labels that recur; use --label-column to name another"
        )
    fractions = [label for label in counts if re.fullmatch(r"[-+]?\d*\.\d*[1-9]\d*", label)]
    if fractions and all(re.fullmatch(r"[-+]?\d*\.?\d*", label) for label in counts):
        raise DataError(
            f"{name}: {what} holds numbers to be predicted ({some(fractions)}); classification needs labels that recur"
        )


def _split(kind: Kind, splits: Splits, source: str) -> tuple[Splits, tuple[str, ...]]:
    """Dev and test where they are not given."""
    absent = [part for part in ("test", "dev") if part not in splits]
    if not absent:
        return splits, ()
    whole, n_all = dict(splits), len({kind.key(sample) for sample in splits["train"]})
    if n_all < 1 + len(absent):
        raise DataError(
            f"{source}: {n_all} different {kind.noun} are too few to split off {' and '.join(absent)}; add rows, or give all"
            " three parts"
        )
    for part in absent:
        whole["train"], whole[part] = split_off_texts(kind, whole["train"], round(SHARE * n_all))
    said = " and ".join(f"{len(whole[part])} for {part}" for part in absent[::-1])
    how = ", each class in its share" if kind.one_label else ""
    return whole, (
        f"no {' and no '.join(absent[::-1])} set given: split off train, {said}{how}; always the same ones",
    )


def split_off_texts(
    kind: Kind | str, samples: list[Sample], n_off: int, seed: int = 0
) -> tuple[list[Sample], list[Sample]]:
    """The rest, and the samples of ``n_off`` texts (1 to 5000), in the order they came in.

    Texts stand in line class by class, shuffled within, and are taken at even distances: each class gives its share. A class with fewer
    than three texts gives none where others have more. All samples of one text go the same way.
    """
    kind = get_kind(kind)
    texts: dict[Hashable, list[int]] = defaultdict(list)
    for i, sample in enumerate(samples):
        texts[kind.key(sample)].append(i)
    classes: dict[str, list[list[int]]] = defaultdict(list)
    for members in texts.values():
        classes[samples[members[0]]["label"] if kind.one_label else ""].append(members)
    line: list[list[int]] = []
    chance = random.Random(seed)
    large = [label for label in sorted(classes) if len(classes[label]) >= 3]
    for label in large or sorted(classes):
        line += chance.sample(classes[label], len(classes[label]))
    n_off = max(1, min(n_off, MOST, len(line) // 3))
    off = {i for k in range(n_off) for i in line[(2 * k + 1) * len(line) // (2 * n_off)]}
    return [sample for i, sample in enumerate(samples) if i not in off], [samples[i] for i in sorted(off)]


def _kind_note(plan: Plan, splits: Splits) -> str:
    kind = plan.kind
    labels: set[str] = set()
    if kind.labelled:
        labels = {
            label for samples in splits.values() for sample in samples for label in kind.labels_of(sample)
        }
    return kind.describe(plan.roles, len(labels), plan.separator, some(plan.one_hot))


def _part_notes(kind: Kind, splits: Splits) -> list[str]:
    """What the parts have that they should not."""
    notes = []
    if kind.labelled:
        seen = {
            part: {label for sample in splits[part] for label in kind.labels_of(sample)} for part in SPLITS
        }
        if new := sorted((seen["dev"] | seen["test"]) - seen["train"]):
            notes.append(f"labels seen only in dev or test: {some(new)}")
    if kind.multilabel and (
        n_bare := sum(not sample["labels"] for samples in splits.values() for sample in samples)
    ):
        notes.append(f"rows without any label: {n_bare}")
    keys = {part: {kind.key(sample) for sample in splits[part]} for part in SPLITS}
    for one, other in (("train", "dev"), ("train", "test"), ("dev", "test")):
        if n_both := len(keys[one] & keys[other]):
            notes.append(f"{kind.noun} of {other} that are also in {one}: {n_both}")
    return notes
