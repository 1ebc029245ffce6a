"""Progress without a terminal: a line for each tenth, or every 30 seconds, with a clock of its own."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from rich.console import Console

from sparring.lab.runs.config import Config
from sparring.lab.runs.plan import plan
from sparring.lab.runs.run_log import Lines, RunProgress
from tests.lab.data import data, task


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def watched(tmp_path: Path) -> tuple[RunProgress, Clock, io.StringIO]:
    """One of two runs, of a hundred steps each."""
    samples = data("multi-class")
    planned = plan(Config("colours", out=str(tmp_path)), task("multi-class", samples), samples)
    clock, out = Clock(), io.StringIO()
    progress = RunProgress(Lines(Console(file=out, width=40), 2, clock), planned)
    progress.begin(100)
    return progress, clock, out


def step(n: int) -> dict[str, Any]:
    return {"step": n, "loss": 0.5, "won_share": 0.25, "accumulation": 1}


def test_short_work_has_no_line(tmp_path: Path) -> None:
    progress, clock, out = watched(tmp_path)
    for n in range(1, 101):
        clock.now += 0.04
        progress.step(step(n))
    progress.end()
    assert out.getvalue() == ""


def test_a_line_for_each_tenth_or_every_thirty_seconds(tmp_path: Path) -> None:
    progress, clock, out = watched(tmp_path)
    for n in range(1, 61):  # a tenth of all is twenty steps
        clock.now += 1
        progress.step(step(n))
    assert [line.partition(",")[0] for line in out.getvalue().splitlines()] == [
        "10% done",
        "20% done",
        "30% done",
    ]
    clock.now += 31
    progress.evaluation({"accuracy": 0.5})
    progress.step(step(61))
    *_, last = out.getvalue().splitlines()
    assert last.startswith("30% done, 0 of 2 runs, about 3 min left; as-softmax delta=0.8 seed 0: loss 0.500")
    assert last.endswith("dev accuracy 50.00")


def test_a_preset_is_said_once(tmp_path: Path) -> None:
    progress, _, out = watched(tmp_path)
    for _ in range(3):
        progress.note("speed fast: δ 0.6")
    assert out.getvalue() == "as-softmax delta=0.8: speed fast: δ 0.6\n"
