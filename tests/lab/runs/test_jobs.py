"""Parallel runs: an interrupt saves them, an error of one is raised, results equal those of runs in turn."""

import json
import multiprocessing
import os
import signal
import time
from pathlib import Path

import pytest

from sparring.cli.app import main
from sparring.lab.errors import UserError
from sparring.lab.runs.compare import plans_for
from sparring.lab.runs.config import Config
from sparring.lab.runs.jobs import run_all
from sparring.lab.table import console
from tests.lab.data import data, task
from tests.processes import CONTEXT, Program

LOSSES = "softmax,as-softmax,t-softmax:lr=1e30"  # the last one diverges
SMALL = ["--epochs", "6", "--n-train", "400", "--n-dev", "100", "--n-test", "100"]
COMMAND = ["compare", "digits", "--losses", LOSSES, *SMALL, "--json"]


@pytest.mark.skipif(os.name != "posix", reason="signals to a group of processes")
def test_interrupted_parallel_runs_continue_and_end_as_runs_in_turn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first time its workers import everything, as a user's do."""
    parallel = [*COMMAND, "--jobs", "2", "--out", str(tmp_path / "parallel")]
    program = Program("sparring.cli", *parallel)
    while sum(file.read_text().count("\n") >= 5 for file in tmp_path.rglob("steps.jsonl")) < 2:
        assert program.poll() is None, program.err
        time.sleep(0.05)
    os.killpg(program.pid, signal.SIGINT)  # as a terminal does
    assert (program.wait(), program.out) == (130, ""), program.err
    assert program.err.endswith("interrupted; the same command goes on where it stopped\n")
    started = {file.parent for file in tmp_path.rglob("steps.jsonl") if "t-softmax" not in str(file.parent)}
    unfinished = {folder for folder in started if not (folder / "summary.json").exists()}
    assert unfinished
    assert all((folder / "checkpoint.pt").exists() for folder in unfinished)

    results = []
    monkeypatch.setattr(multiprocessing, "get_context", lambda _: CONTEXT)
    for command in (parallel, [*COMMAND, "--threads", "1", "--out", str(tmp_path / "in turn")]):
        assert main(command) == 1
        shown = capsys.readouterr()
        assert shown.err.count("training diverged") == 1
        facts = json.loads(shown.out)
        assert [failure["run"] for failure in facts["failed"]] == ["t-softmax tau=0.5 seed 0"]
        names = ("contestant", "test", "dev", "backwards", "correlation")
        results.append([[row[name] for name in names] for row in facts["rows"]])
    assert results[0] == results[1]
    assert len(results[0]) == 2


def test_an_error_in_a_worker_is_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the worker looks for the model's folder."""
    monkeypatch.setattr(multiprocessing, "get_context", lambda _: CONTEXT)
    samples = data("multi-class")
    config = Config("digits", out=str(tmp_path), model=str(tmp_path / "no-model"), epochs=1)
    plans = plans_for([config.replace(loss="softmax"), config], 1, task("multi-class", samples), samples)
    with pytest.raises(UserError, match="no-model"):
        run_all(plans, 2, console(stderr=True))
