"""Folders with the files of a publisher, for the tests of data sets."""

import gzip
import json
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from sparring.lab.datasets import DataError


def write(folder: Path, files: Mapping[str, str], encoding: str = "utf-8") -> Path:
    """Write the files into the folder, gzipped where their names end in .gz."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        raw = text.encode(encoding)
        path.write_bytes(gzip.compress(raw) if name.endswith(".gz") else raw)
    return folder


def jsonl(*rows: Mapping[str, Any]) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def tsv(*rows: str) -> str:
    """Bars stand for tabs."""
    return "".join(row.replace("|", "\t") + "\n" for row in rows)


def read(module: str, folder: Path) -> Any:
    """The publisher's files in a folder, as a module such as "text.sst5" reads them."""
    return import_module(f"sparring.lab.datasets.{module}").original(folder)


def check_read(module: str, folder: Path, files: Mapping[str, str], expected: Any) -> None:
    """An empty folder holds nothing; these files hold the expected splits."""
    assert read(module, folder) is None
    assert read(module, write(folder, files)) == expected


def check_refused(module: str, folder: Path, files: Mapping[str, str], message: str) -> None:
    """The files are refused with a message that matches."""
    with pytest.raises(DataError, match=message):
        read(module, write(folder, files))
