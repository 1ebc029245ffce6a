"""A rank dies or hangs: the others fail soon, and training restarts under torchrun --max-restarts."""

import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pycountry
import pytest
import torch

from sparring.heads.parallel import Checkpoints
from tests.heads.parallel.launch import ENVIRONMENT, ROOT, torchrun
from tests.processes import Program, run_ranks, start_ranks

pytestmark = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="finds ranks in /proc")
EXAMPLE = [str(ROOT / "examples" / "class_parallel.py"), "--steps", "50", "--names", "800", "--batch", "32"]


def ranks(folder: Path) -> dict[int, int]:
    """The process ids by rank of those that work on a folder."""
    processes = {}
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            words = path.with_name("cmdline").read_bytes()
            pairs = (line for line in path.read_bytes().split(b"\0") if b"=" in line)
            variables = dict(line.split(b"=", 1) for line in pairs)
        except OSError:
            continue
        if str(folder).encode() in words and b"LOCAL_RANK" in variables and b"--nproc-per-node" not in words:
            processes[int(variables[b"RANK"])] = int(path.parent.name)
    return processes


def until(step: int, folder: Path, process: subprocess.Popen[str] | Program) -> None:
    """Wait for a checkpoint of this step or a later one."""
    while max(Checkpoints(folder).steps(), default=-1) < step:
        assert process.poll() is None
        time.sleep(0.05)


def few_languages(folder: Path) -> str:
    """A folder for PYTHONPATH with a pycountry of five languages: the example reads all that there are."""
    for language in ("de", "el", "fi", "ja", "tr"):
        (folder / language).symlink_to(Path(pycountry.LOCALES_DIR, language), target_is_directory=True)
    (folder / "pycountry.py").write_text(f"LOCALES_DIR = {str(folder)!r}\n")
    return str(folder)


def test_killed_and_restarted_it_ends_with_the_same_weights(tmp_path: Path) -> None:
    """kill -9 of one rank of two: to the bit."""
    (tmp_path / "languages").mkdir()
    paths = os.pathsep.join([few_languages(tmp_path / "languages"), ENVIRONMENT["PYTHONPATH"]])
    command = [*torchrun(2, "--max-restarts", "1"), *EXAMPLE, "--folder", str(tmp_path / "killed")]
    environment = {**ENVIRONMENT, "PYTHONPATH": paths}
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    until(20, tmp_path / "killed", process)
    victim = ranks(tmp_path / "killed")[1]
    os.kill(victim, signal.SIGKILL)
    out, error = process.communicate(timeout=300)
    assert process.returncode == 0, error[-3000:]
    assert "SIGKILL" in error or str(victim) in error  # torchrun saw it
    assert re.search(r"^step 50: loss \d+\.\d+, \d+% won$", out, re.M)
    assert re.search(r"^[\d,]+ classes on 2 rank\(s\): \S+% right, \S+% among the top 5", out, re.M)
    run_ranks(2, *EXAMPLE, "--folder", tmp_path / "whole", PYTHONPATH=paths)
    a, b = (torch.load(tmp_path / name / "model.pt") for name in ("killed", "whole"))
    for part in a:
        assert all(torch.equal(value, b[part][name]) for name, value in a[part].items())


def test_the_other_rank_fails_within_the_timeout(tmp_path: Path) -> None:
    """At once where a rank is dead, after the group's timeout where it hangs. No torchrun would end it."""
    folders = {signal.SIGKILL: tmp_path / "dies", signal.SIGSTOP: tmp_path / "hangs"}
    pairs = {}
    for number, folder in folders.items():
        folder.mkdir()
        pairs[number] = start_ranks(2, "tests.heads.parallel.endless_training", folder)
    try:
        for number, programs in pairs.items():
            until(1, folders[number], programs[0])
            os.kill(programs[1].pid, number)
        for programs in pairs.values():
            assert programs[0].wait(timeout=60) != 0
            assert "RuntimeError" in programs[0].err
    finally:
        for program in (program for programs in pairs.values() for program in programs):
            program.kill()
