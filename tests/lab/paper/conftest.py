"""A small task for the commands, run folders that they share, and records made by hand."""

import dataclasses
import string
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sparring import cli
from sparring.lab import datasets as registry
from sparring.lab.paper import run_settings
from sparring.lab.table import Cell, Table
from tests.lab import data as colours

LETTERS = string.ascii_lowercase[:12]
TINY = ["--tasks", "letters", "--seeds", "1", "--epochs", "1", "--batch-size", "8"]


def paper(*words: str) -> int:
    """Run ``sparring paper``."""
    return cli.main(["paper", *words])


@pytest.fixture(scope="package")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder in which the studies share their runs, and two small tasks to run them on."""
    samples = [{"text": letter * 3, "label": letter} for letter in 4 * LETTERS]
    data = dataclasses.replace(
        colours.data("multi-class"), train=samples, dev=samples[:24], test=samples[:24]
    )
    task = dataclasses.replace(colours.task("multi-class", data), name="letters")
    multilabel = dataclasses.replace(colours.task("multi-label"), name="colours-multilabel")
    tiny = {"model": "tiny"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(registry._TASKS, "letters", task)
        patch.setitem(registry._TASKS, "colours-multilabel", multilabel)
        patch.setitem(run_settings.NETWORKS, "letters", {"from scratch": tiny, "pre-trained": tiny})
        yield tmp_path_factory.mktemp("runs")


def record(method: str, seed: int, **values: Any) -> dict[str, Any]:
    """A record of sst5; ``values`` replace its own."""
    return {
        "study": "table2",
        "method": method,
        "seed": seed,
        "task": "sst5",
        "metric": "accuracy",
        "test": {"accuracy": 0.5, "macro_f1": 0.4, "matthews": 0.3},
        "dev": {"accuracy": 0.5},
        "seconds": 10.0,
        "cpu_seconds": 10.0,
        "correlation": -0.5,
        "n_samples": 100,
        "machine": {"gpu": None},
        "evaluations": [
            {"step": 1, "loss": 2.0, "value": 0.3},
            {"step": 2, "loss": 1.0, "value": 0.4},
            {"step": 3, "loss": 1.5, "value": 0.5},
        ],
        "steps": [{"step": i, "loss": 1.0 / i, "won_share": i / 10} for i in range(1, 11)],
        "margins": [0] * 39 + [10],
        **values,
    }


def scored(method: str, *scores: float, **values: Any) -> list[dict[str, Any]]:
    """A record for each seed with its accuracy."""
    return [record(method, seed, test={"accuracy": score}, **values) for seed, score in enumerate(scores)]


def row(table: Table, name: str) -> list[Cell]:
    """The cells of a row without its name."""
    (cells,) = [cells for cells in table.rows if cells[0] == name]
    return [cell for cell in cells[1:] if isinstance(cell, Cell)]


def calibrated(method: str, ece: float, after: float | None, seed: int = 0) -> dict[str, Any]:
    figures = {"brier": 0.3, "nll": 0.9, "aurc": 0.1, "bins": []}
    states = {
        "before": {"ece": ece, **figures},
        "after": None if after is None else {"ece": after, **figures},
    }
    return record(
        method, seed, calibration={"temperature": 1.5 if after else None, "split": "test", **states}
    )
