"""The data-parallel example runs as its docstring says; test_faults.py runs the class-parallel one."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.heads.parallel.launch import ENVIRONMENT, ROOT, torchrun

ACCELERATE = [sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2"]


def start(command: list[str], folder: Path) -> str:
    environment = {**ENVIRONMENT, "ACCELERATE_USE_CPU": "true"}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


@pytest.mark.parametrize(
    ("launch", "engine"), [(torchrun(2), "loop"), (ACCELERATE, "trainer")], ids=["torchrun", "accelerate"]
)
def test_ddp(launch: list[str], engine: str, tmp_path: Path) -> None:
    out = start(
        [*launch, str(ROOT / "examples" / "ddp.py"), "--samples", "200", "--epochs", "1", "--with", engine],
        tmp_path,
    )
    lines = re.findall(r"rank (\d) of 2: dev accuracy (\S+)%, weights (\S+)", out)
    assert sorted(rank for rank, *_ in lines) == ["0", "1"]
    assert lines[0][1:] == lines[1][1:]
