"""The process of a run: its machine, its threads and its device."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest
import torch

from sparring.lab import process
from sparring.lab.errors import UserError
from sparring.lab.runs.records import RunFolder, write_json


def test_the_machine_is_named() -> None:
    facts = process.machine()
    assert facts["versions"]["torch"]
    assert facts["cores"] >= 1


@pytest.mark.parametrize(
    ("usage", "quota", "expected"),
    [([0.0] * 4, 4.0, 4), ([99.0, 10.0, 80.0, 0.0], 4.0, 2), ([99.0] * 4, 4.0, 1), ([0.0] * 4, 1.5, 1)],
)
def test_threads_are_the_cores_that_are_free(
    usage: list[float], quota: float, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(psutil, "cpu_percent", lambda *_, **__: usage)
    monkeypatch.setattr(process.os, "sched_getaffinity", lambda _: {0, 1, 2, 3}, raising=False)
    monkeypatch.setattr(process, "_quota", lambda: quota)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 8)
    assert process.free_threads.__wrapped__() == expected


def test_an_unfinished_run_keeps_its_threads(tmp_path: Path) -> None:
    assert RunFolder(tmp_path).threads() is None
    write_json(tmp_path / "machine.json", {**process.machine(), "threads": 3})
    assert RunFolder(tmp_path).threads() == 3


@pytest.mark.parametrize("device", ["cuda", "mps"])
def test_a_device_that_is_not_there_is_named(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(UserError, match=f"device {device}: torch finds no .* GPU here"):
        process.check_device(device)
    process.check_device(None)
    process.check_device("cpu")
