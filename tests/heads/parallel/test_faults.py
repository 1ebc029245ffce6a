"""A rank that dies: the others end with an error, soon; under torchrun --max-restarts training goes on and ends as if nothing had been."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from sparring.heads.parallel import Checkpoints
from tests.heads.parallel.launch import ENVIRONMENT, ROOT, torchrun

pytestmark = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="finds ranks in /proc")
EXAMPLE = [str(ROOT / "examples" / "class_parallel.py"), "--steps", "60", "--names", "1500", "--batch", "64"]


def ranks(folder: Path) -> dict[int, int]:
    """By rank: the processes that work on a folder."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            words = path.with_name("cmdline").read_bytes()
            variables = dict(each.split(b"=", 1) for each in path.read_bytes().split(b"\0") if b"=" in each)
        except OSError:
            continue
        if str(folder).encode() in words and b"LOCAL_RANK" in variables and b"--nproc-per-node" not in words:
            found[int(variables[b"RANK"])] = int(path.parent.name)
    return found


def until(step: int, folder: Path, process: subprocess.Popen[str]) -> None:
    """Training has got as far as a checkpoint."""
    while not any(each >= step for each in Checkpoints(folder).steps()):
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)


def test_killed_and_restarted_it_ends_with_the_same_weights(tmp_path: Path) -> None:
    """kill -9 of one rank of two: to the bit."""
    command = [*torchrun(2, "--max-restarts", "1"), *EXAMPLE, "--folder", str(tmp_path / "killed")]
    process = subprocess.Popen(
        command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    until(20, tmp_path / "killed", process)
    victim = ranks(tmp_path / "killed")[1]
    os.kill(victim, signal.SIGKILL)
    out, error = process.communicate(timeout=300)
    assert process.returncode == 0, error[-3000:]
    assert "right" in out
    assert "SIGKILL" in error or str(victim) in error  # torchrun saw it
    whole = [*torchrun(2), *EXAMPLE, "--folder", str(tmp_path / "whole")]
    told = subprocess.run(
        whole, env=ENVIRONMENT, capture_output=True, check=True, timeout=300, text=True
    ).stdout
    assert re.search(r"^step 50: loss \d+\.\d+, \d+% won$", told, re.M)
    assert re.search(r"^[\d,]+ classes on 2 rank\(s\): \S+% right, \S+% among the first five$", told, re.M)
    a, b = (torch.load(tmp_path / name / "model.pt") for name in ("killed", "whole"))
    for part in a:
        assert all(torch.equal(value, b[part][name]) for name, value in a[part].items())


@pytest.mark.parametrize("signal_", [signal.SIGKILL, signal.SIGSTOP], ids=["dies", "hangs"])
def test_the_others_end_with_an_error_within_the_timeout(signal_: signal.Signals, tmp_path: Path) -> None:
    """Without torchrun, which would end them: at once where a rank is gone, after the group's timeout where it is silent."""
    port, started = "29" + str(os.getpid())[-3:].zfill(3), []
    for rank in range(2):
        variables = {
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": "2",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": port,
        }
        words = [sys.executable, "-m", "tests.heads.parallel.endless", str(tmp_path)]
        with (tmp_path / f"errors-{rank}").open("w") as errors:
            started.append(
                subprocess.Popen(words, env={**ENVIRONMENT, **variables}, stderr=errors, text=True, cwd=ROOT)
            )
    try:
        until(1, tmp_path, started[0])
        os.kill(started[1].pid, signal_)
        assert started[0].wait(timeout=60) != 0
        assert "RuntimeError" in (tmp_path / "errors-0").read_text()
    finally:
        for process in started:
            process.kill()
            process.wait()
