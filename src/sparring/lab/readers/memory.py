"""Data in memory, written as JSONL files: a run and its workers read them again, also after a restart."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from sparring.files import write_text
from sparring.lab.errors import DataError
from sparring.lab.readers.hub import SPLIT_NAMES, class_names, name_classes
from sparring.lab.untrusted import file_name

EXPECTED = (
    "a path, a pandas DataFrame, a list of dicts or a datasets.Dataset, or a dict of train, dev and test"
)


def write_data(data: Any, folder: Path, name: str) -> Path:
    """Write rows below a folder.

    Args:
        data: A pandas or polars DataFrame, dicts, or a ``datasets.Dataset``; or several of them by split
            (train, dev or validation, test), such as a ``DatasetDict``.
        folder: The same data is written to the same place in it.
        name: Name of the task.

    Returns:
        The path to give to `open_user_data`: a file, or a folder with a file for each split.

    Raises:
        DataError: The data is of another type, or a value cannot be written.
    """
    name = file_name(name)
    if not isinstance(data, Mapping):
        text = _text(data, name)
        path = folder / _digest(text) / f"{name}.jsonl"
        write_text(path, text)
        return path
    known = {alias: split for split, aliases in SPLIT_NAMES.items() for alias in aliases}
    if unknown := [key for key in data if key not in known]:
        raise DataError(f"data must be {EXPECTED}; got a dict with the key {unknown[0]!r:.40}")
    texts = {known[split]: _text(rows, f"{name}, {split}") for split, rows in data.items()}
    root = folder / _digest("".join(texts.values())) / name
    for split, text in texts.items():
        write_text(root / f"{split}.jsonl", text)
    return root


def _digest(text: str) -> str:
    return f"rows-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def _text(data: Any, place: str) -> str:
    lines = []
    for number, row in enumerate(_rows(data), 1):
        if not isinstance(row, Mapping):
            raise DataError(f"data must be {EXPECTED}; got a row of type {type(row).__name__}")
        values = {str(column): _plain(value) for column, value in row.items()}
        try:
            lines.append(json.dumps(values, ensure_ascii=False, allow_nan=False) + "\n")
        except (TypeError, ValueError) as error:
            raise DataError(f"{place}, row {number}: expected texts, numbers or lists: {error}") from None
    return "".join(lines)


def _rows(data: Any) -> Iterable[Any]:
    """The rows of a table as dicts. Missing values are None."""
    if hasattr(data, "notna") and hasattr(data, "to_dict"):  # pandas
        if not data.columns.is_unique:
            raise DataError(f"two columns have the same name: {', '.join(map(str, data.columns)):.200}")
        objects = data.astype(object)
        rows: list[Any] = objects.where(data.notna(), None).to_dict("records")
        return rows
    if hasattr(data, "to_dicts"):  # polars
        return list(data.to_dicts())
    if hasattr(data, "features") and hasattr(data, "column_names"):  # datasets
        classes = [column for column in data.column_names if class_names(data, column) is not None]
        return name_classes(data, classes)
    if isinstance(data, (str, bytes)) or not isinstance(data, Iterable):
        raise DataError(f"data must be {EXPECTED}, got {type(data).__name__}")
    return data


def _plain(value: Any) -> Any:
    """A value as JSON has it: a number of numpy as Python's, an array as a list, NaN as None."""
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if hasattr(value, "tolist"):  # numpy
        return _plain(value.tolist())
    return None if isinstance(value, float) and value != value else value
