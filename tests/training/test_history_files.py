"""The file of a history: it survives the round trip, and everything else is refused with ValueError."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sparring.training import MarginHistory
from tests.training.test_history import NAMES, patchy_history
from tests.training.test_resume import same


def test_files(tmp_path: Path) -> None:
    """Nothing but the file itself is left behind."""
    patchy = patchy_history()
    patchy.save(tmp_path / "history.npz")
    assert same(MarginHistory.load(tmp_path / "history.npz").state_dict(), patchy.state_dict())
    assert [path.name for path in tmp_path.iterdir()] == ["history.npz"]


def test_damaged_files(tmp_path: Path) -> None:
    """A changed byte or a missing end is refused with ValueError, or does not matter to the content."""
    patchy = patchy_history()
    path, damaged = tmp_path / "history.npz", tmp_path / "damaged.npz"
    patchy.save(path)
    content = path.read_bytes()
    n_refused = 0
    for position in range(0, len(content), 9):
        for changed in (bytes([content[position] ^ 0x55]) + content[position + 1 :], b""):
            damaged.write_bytes(content[:position] + changed)
            try:
                history = MarginHistory.load(damaged)
            except ValueError:
                n_refused += 1
            else:
                assert same(history.state_dict(), patchy.state_dict())
    assert n_refused > len(content) // 9


TABLES = {name: table.numpy() for name, table in MarginHistory(4).state_dict().items()}
WRONG = [
    {"margin": np.zeros((0, 4), np.float32)},
    {"rival": np.zeros((0, 3), np.int32)},
    {"state": np.array([[None] * 4])},
    {"state": np.full((1, 4), 9, np.uint8), **{n: np.zeros((1, 4), TABLES[n].dtype) for n in NAMES[:4]}},
    *({n: np.zeros(shape, TABLES[n].dtype) for n in NAMES} for shape in ((), (4,), (1, 4, 1), (2, 0))),
    {"margin": np.array([["x"] * 4])},
]


@pytest.mark.parametrize("wrong", WRONG)
def test_files_with_something_else(wrong: dict[str, Any], tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "history.npz", **{**TABLES, **wrong})
    with pytest.raises(ValueError, match=r"history.npz|saved history"):
        MarginHistory.load(tmp_path / "history.npz")


@pytest.mark.parametrize("content", [b"", b"text", pickle.dumps({"state": 1}), b"\x93NUMPY\x01\x00v\x00{"])
def test_files_that_are_no_archive(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "history.npz").write_bytes(content)
    with pytest.raises(ValueError, match=r"cannot be read as a history of margins"):
        MarginHistory.load(tmp_path / "history.npz")
