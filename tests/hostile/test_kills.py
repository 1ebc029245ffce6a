"""Real kills at random moments: a resumed run ends with the same bits, and no incomplete file remains."""

import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from sparring.lab.runs.records import RunFolder
from tests.hostile.size import FACTOR
from tests.processes import CONTEXT
from tests.training import slow_run
from tests.training.test_resume import same

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals")
TIMES = ("seconds", "cpu_seconds", "folder", "config")


def train(folder: str, out: str, pause: str) -> None:
    """A loop with everything on."""
    slow_run.main(Path(folder), Path(out), float(pause))


def lab(*arguments: str) -> None:
    """``sparring run``."""
    from sparring.cli.app import main

    sys.stdout = open(os.devnull, "w")  # noqa: SIM115, the process ends with it
    sys.exit(main(arguments))


def ends(target: Callable[..., None], *arguments: str) -> None:
    process = CONTEXT.Process(target=target, args=arguments)
    process.start()
    process.join()
    assert process.exitcode == 0


def kill(target: Callable[..., None], *arguments: str, folder: Path, wait: float) -> bool:
    """Some time after it has begun to write. False where it had ended by then."""
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    process = CONTEXT.Process(target=target, args=arguments)
    process.start()
    while process.is_alive() and not _written(folder, before):
        time.sleep(0.005)
    time.sleep(wait)
    process.kill()
    process.join()
    assert process.exitcode in (0, -signal.SIGKILL)
    return bool(process.exitcode)


def _written(folder: Path, before: dict[Path, int]) -> bool:
    """Whether a checkpoint or a journal is new."""
    for path in [*folder.rglob("checkpoint*"), *folder.rglob("steps.jsonl")]:
        try:
            if path.stat().st_mtime_ns > before.get(path, 0):
                return True
        except FileNotFoundError:
            continue
    return False


def parts(folder: Path) -> list[Path]:
    return list(folder.rglob("*.part"))


def test_a_loop_ends_the_same(tmp_path: Path) -> None:
    draw = random.Random(0)
    ends(train, str(tmp_path / "whole"), str(tmp_path / "whole.pt"), "0")
    (tmp_path / "cut").mkdir()
    (tmp_path / "cut" / "checkpoint.pt.4194305.part").write_bytes(b"of a process that was killed")
    cut = (str(tmp_path / "cut"), str(tmp_path / "cut.pt"))
    for _ in range(2 * FACTOR):
        kill(train, *cut, "0.001", folder=tmp_path / "cut", wait=draw.uniform(0, 0.3))
    ends(train, *cut, "0")
    assert same(*(torch.load(tmp_path / name) for name in ("whole.pt", "cut.pt")))
    assert not parts(tmp_path)


def results(out: Path) -> tuple[Any, ...]:
    """What does not depend on time and place: summary, checksums of the weights, journals, predictions."""
    (path,) = out.rglob("summary.json")
    folder = RunFolder(path.parent)
    summary = {name: value for name, value in folder.summary().items() if name not in TIMES}
    lines = [folder.lines(name) for name in ("steps", "predictions")]
    return (
        json.dumps(summary, sort_keys=True),
        lines,
        sorted(str(p.relative_to(path.parent)) for p in path.parent.rglob("*")),
    )


def test_a_run_of_the_lab_ends_the_same(tmp_path: Path) -> None:
    draw = random.Random(1)
    flags = "--epochs 4 --n-train 300 --save-every 2 --threads 1 --device cpu --rest"
    command = ["run", "digits", *flags.split(), "--out"]
    ends(lab, *command, str(tmp_path / "whole"))
    cut = tmp_path / "cut"
    cut.mkdir()
    n_killed = sum(
        kill(lab, *command, str(cut), folder=cut, wait=draw.uniform(0, 0.4)) for _ in range(2 * FACTOR)
    )
    assert n_killed
    for folder in {path.parent for path in cut.rglob("config.toml")}:
        part = folder / f"summary.json.{os.getpid()}.part"  # a running process has the number of the dead one
        part.write_text("{")
    ends(lab, *command, str(cut))
    assert results(cut) == results(tmp_path / "whole")
    assert not parts(cut)
    assert not list(cut.rglob("checkpoint*"))
