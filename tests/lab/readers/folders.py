"""Folders with the files of a publisher, for the tests of the loaders."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def write(folder: Path, files: Mapping[str, str], encoding: str = "utf-8") -> Path:
    """The files in the folder, gzipped where their names say so."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(
            gzip.compress(text.encode(encoding)) if name.endswith(".gz") else text.encode(encoding)
        )
    return folder


def jsonl(*rows: Mapping[str, Any]) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def tsv(*rows: str) -> str:
    """Bars stand for tabs."""
    return "".join(row.replace("|", "\t") + "\n" for row in rows)
