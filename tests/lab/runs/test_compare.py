"""Contestants: which runs are planned, and the rows made of their summaries."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from sparring.lab.errors import UserError
from sparring.lab.runs.compare import contestants, plans_for, rows_of
from sparring.lab.runs.config import Config
from sparring.lab.runs.plan import Plan
from sparring.lab.runs.summaries import comparison
from sparring.lab.table import console
from tests.lab.data import data, task


def plans(out: Path, names: list[str], n_seeds: int = 1, **settings: Any) -> list[Plan]:
    made = data("multi-class")
    own, config = task("multi-class", made), Config("colours", out=str(out), **settings)
    return plans_for(contestants(config, names, own, made), n_seeds, own, made, strict=False)


def test_contestants_take_turns_seed_by_seed(tmp_path: Path) -> None:
    made = plans(tmp_path, ["softmax", "as-softmax:delta=0.2", "as-speed"], 2, delta=0.4, seed=5)
    assert [(p.config.label, p.config.seed) for p in made] == [
        (label, seed)
        for seed in (5, 6)
        for label in ("softmax", "as-softmax delta=0.2", "as-softmax delta=0.4 accumulation=adaptive")
    ]


@pytest.mark.parametrize(
    ("names", "settings", "message"),
    [
        (["softmax", "sparsemax"], {"delta": 0.3}, "none of softmax, sparsemax takes delta"),
        (["softmax", "softmax"], {}, "two of the runs are the same: softmax"),
        (["softmax:delta=0.3"], {}, '"softmax" takes no delta'),
        (["softmax:seed=1"], {}, "a contestant has no setting seed"),
        (["multilabel-softmax"], {}, "does not fit colours"),
        ([], {}, "no losses"),
    ],
)
def test_mistakes_are_named(names: list[str], settings: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=message):
        plans(tmp_path, names, **settings)


def test_no_seed_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="seeds must be at least 1"):
        plans(tmp_path, ["softmax"], 0)


def summary(
    loss: str, seed: int, test: float, seconds: float, r: float | None = -0.5, **config: Any
) -> dict[str, Any]:
    return {
        "contestant": loss,
        "seed": seed,
        "test": {"accuracy": test},
        "dev": {"accuracy": test + 0.1},
        "seconds": seconds,
        "correlation": r,
        "n_planned": 20,
        "n_forward": 20,
        "n_backward": 5,
        "n_updates": 4,
        "won_share": 0.5,
        "folder": f"{loss}/{seed}",
        "config": {**asdict(Config("colours", loss=loss, seed=seed)), **config},
    }


def test_rows_by_hand() -> None:
    runs = [
        summary("softmax", 0, 0.5, 10),
        summary("as-softmax", 0, 0.6, 5),
        summary("softmax", 1, 0.7, 12),
        summary("as-softmax", 1, 0.6, 3, None),
    ]
    first, second = rows_of(runs, "accuracy")
    assert first["test"] == {"mean": 0.6, "std": pytest.approx(0.2**0.5 / 10**0.5), "values": [0.5, 0.7]}
    assert (first["faster"], second["faster"]) == (1.0, 3.0)  # the median of 2 and 4
    assert (second["forwards"], second["backwards"], second["won_share"], second["correlation"]) == (
        1.0,
        0.25,
        0.5,
        -0.5,
    )
    assert second["folders"] == ["as-softmax/0", "as-softmax/1"]


def test_contestants_of_the_same_loss_are_told_apart() -> None:
    rows = rows_of([summary("softmax", 0, 0.5, 10, skip=skip) for skip in ("off", None)], "accuracy")
    assert [row["contestant"] for row in rows] == ["softmax skip=off", "softmax"]


def test_threads_and_places_do_not_part_a_contestant() -> None:
    rows = rows_of(
        [summary("softmax", seed, 0.5, 10, threads=seed, out=str(seed)) for seed in (0, 1)], "accuracy"
    )
    assert [row["seeds"] for row in rows] == [[0, 1]]


def test_the_table_holds_what_the_rows_do() -> None:
    runs = [summary("softmax", 0, 0.5, 10), summary("as-softmax", 0, 0.625, 4)]
    made = console()
    with made.capture() as captured:
        comparison("colours", rows_of(runs, "accuracy")).print(made)
        comparison("colours", rows_of(runs, "accuracy"), ["t-softmax"], wide=True).print(made)
    lines = [line.split() for line in captured.get().splitlines()]
    assert ["softmax", "50.00", "–", "10.0", "1.00x", "50"] in lines
    assert ["as-softmax", "62.50", "+12.50", "4.0", "2.50x", "50"] in lines
    counts = ["100", "25", "4", "50", "-0.50"]
    assert ["as-softmax", "1", "62.50", "72.50", "+12.50", "4.0", "2.50x", *counts] in lines
    assert ["t-softmax", "–", "diverged", *"––––––––––"][:12] in [line[:12] for line in lines]
