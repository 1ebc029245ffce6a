"""The data-parallel example with either engine; test_faults.py runs the class-parallel one under torchrun."""

import re
import subprocess
import sys
from pathlib import Path

from tests.heads.parallel.launch import ENVIRONMENT
from tests.processes import ROOT, run_ranks

SCRIPT = str(ROOT / "examples" / "ddp.py")
SMALL = ("--samples", "200", "--epochs", "1")


def check(out: str) -> None:
    """Both ranks end with the same weights."""
    # lines of two processes may run together
    lines = re.findall(r"rank (\d) of 2: dev accuracy (\S+)%, weights ([\d.]+)", out)
    assert sorted(rank for rank, *_ in lines) == ["0", "1"]
    assert lines[0][1:] == lines[1][1:]


def test_the_loop_under_accelerate_launch(tmp_path: Path) -> None:
    launch = [sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2"]
    environment = {**ENVIRONMENT, "ACCELERATE_USE_CPU": "true"}
    done = subprocess.run(
        [*launch, SCRIPT, *SMALL], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-4000:]
    check(done.stdout)


def test_the_trainer(tmp_path: Path) -> None:
    check(run_ranks(2, SCRIPT, *SMALL, "--with", "trainer", cwd=tmp_path))
