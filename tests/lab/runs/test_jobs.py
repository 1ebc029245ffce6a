"""Runs side by side: an interrupt saves all of them, an error of one is told."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sparring.lab.errors import UserError
from sparring.lab.runs.compare import plans_for
from sparring.lab.runs.config import Config
from sparring.lab.runs.jobs import run_all
from sparring.lab.table import console
from tests.lab.data import data, task

COMMAND = [
    sys.executable,
    "-m",
    "sparring.cli",
    "compare",
    "digits",
    "--losses",
    "softmax,as-softmax",
    "--epochs",
    "12",
    "--json",
]


def rows(out: str) -> list[list[object]]:
    return [
        [row[name] for name in ("contestant", "test", "dev", "backwards", "correlation")]
        for row in json.loads(out)["rows"]
    ]


@pytest.mark.skipif(os.name != "posix", reason="signals to a group of processes")
def test_ctrl_c_saves_every_run_and_the_same_command_goes_on(tmp_path: Path) -> None:
    command = [*COMMAND, "--jobs", "2", "--out", str(tmp_path / "stopped")]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    while len(steps := list(tmp_path.rglob("steps.jsonl"))) < 2 or any(
        path.read_text().count("\n") < 5 for path in steps
    ):
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    out, error = process.communicate(timeout=120)
    assert (process.returncode, out) == (130, ""), error
    assert error == "interrupted; the same command continues where it stopped\n"
    assert len(list(tmp_path.rglob("checkpoint.pt"))) == 2
    assert not list(tmp_path.rglob("summary.json"))
    again = subprocess.run(command, capture_output=True, text=True, check=True)
    whole = subprocess.run(
        [*COMMAND, "--threads", "1", "--out", str(tmp_path / "whole")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert rows(again.stdout) == rows(whole.stdout)


def test_a_mistake_of_a_run_is_told_as_it_is(tmp_path: Path) -> None:
    """Found in a worker: the model's folder is only looked at there."""
    made = data("multi-class")
    config = Config("digits", out=str(tmp_path), model=str(tmp_path / "no-model"), epochs=1)
    plans = plans_for([config.replace(loss="softmax"), config], 1, task("multi-class", made), made)
    with pytest.raises(UserError, match="no-model"):
        run_all(plans, 2, console(stderr=True))
