"""Runs for the tests of the report, made once by the real runner: small, with all that a page can show."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from sparring.lab.datasets import Data, Task
from sparring.lab.report import gather
from sparring.lab.report.gather import Section
from sparring.lab.runs.compare import contestants, plans_for
from sparring.lab.runs.config import Config
from sparring.lab.runs.plan import open_task
from sparring.lab.runs.runner import run
from tests.lab import data as colours

ATTACK = "<img src=x onerror=\"document.title='broken'\"></script><script>document.title='broken'</script>"
KINDS = ("pair", "token", "spelling", "multi-label", "generation")


def train(out: Path, task: Task, data: Data, names: list[str], n_seeds: int = 1, **settings: Any) -> None:
    """A run for each name and seed, one thread."""
    config = Config(task.name, out=str(out), threads=1, **{"epochs": 2, "batch_size": 8, **settings})
    for plan in plans_for(contestants(config, names, task, data), n_seeds, task, data, strict=False):
        run(plan)


def once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], None]) -> Path:
    """A folder that one of xdist's workers makes and all of them read."""
    base = factory.getbasetemp()
    out = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / name
    done = out.with_suffix(".done")
    with FileLock(out.with_suffix(".lock")):
        if not done.exists():
            make(out)
            done.touch()
    return out


def small(kind: str, attack: str = "") -> tuple[Task, Data]:
    """Colours under a name of their own; ``attack`` stands before every text."""
    data = colours.data(kind)
    for sample in [*data.train, *data.dev, *data.test] if attack else []:
        sample["text"] = attack + sample["text"]
    return dataclasses.replace(colours.task(kind, data), name=f"colours-{kind}"), data


def section(path: Path) -> Section:
    """The one section of a folder of runs."""
    (found,) = gather.sections(gather.find([path]))
    return found


@pytest.fixture(scope="session")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Softmax and two δ, three seeds each."""

    def make(out: Path) -> None:
        names = ["as-softmax:delta=0.1", "as-softmax:delta=0.3", "softmax"]
        sizes = {"n_train": 120, "n_dev": 60, "n_test": 160, "batch_size": 16, "eval_every": 4}
        train(out, *open_task(Config("digits")), names, 3, epochs=3, **sizes)

    return once(tmp_path_factory, "digits", make)


@pytest.fixture(scope="session")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The other kinds: a folder for each, contestants with long names, one seed."""

    def make(out: Path) -> None:
        for kind in KINDS:
            many = "multilabel-" if kind == "multi-label" else ""
            adaptive = f"{many}as-softmax:delta=0.2:warmup=0.25:accumulation=adaptive"
            names = [f"{many}softmax", f"{adaptive}:lam=2"]
            if kind == KINDS[0]:
                names.append(f"{adaptive}:lam=1.5:max_steps=4:weight_decay=0.02")
            train(out, *small(kind), names)

    return once(tmp_path_factory, "kinds", make)


@pytest.fixture(scope="session")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Texts that would run as a script if they were not escaped; one contestant, one run."""

    def make(out: Path) -> None:
        train(out, *small("multi-class", ATTACK), ["as-softmax"], epochs=1)

    return once(tmp_path_factory, "hostile", make)
