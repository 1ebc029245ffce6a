"""A user's files, written and read for the tests."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from sparring.lab.readers.columns import Columns
from sparring.lab.readers.user_data import open_user_data
from sparring.lab.task import Data, UserError, Where

OFFLINE = Where(hub=False)
REVIEWS = [(f"film {i}", ("good", "bad", "so-so")[i % 3]) for i in range(30)]


def write(path: Path, *lines: str) -> str:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(path)


def jsonl(path: Path, rows: list[dict[str, Any]]) -> str:
    return write(path, *(json.dumps(row) for row in rows))


def table(path: Path, header: str, rows: list[Any], separator: str = ",") -> str:
    return write(path, header, *(separator.join(map(str, row)) for row in rows))


def load(target: str, **columns: str) -> Data:
    return open_user_data(target, OFFLINE, Columns(**columns))[1]


def everything(data: Data) -> list[dict[str, Any]]:
    return [*data.train, *data.dev, *data.test]


def refused(target: str, message: str, **columns: str) -> None:
    """The error begins with the message; with the path and the message if that begins with : or ,."""
    expected = f"{target}{message}" if message[0] in ":," else message
    with pytest.raises(UserError, match=f"^{re.escape(expected)}"):
        load(target, **columns)
