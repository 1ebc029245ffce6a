"""Grids of settings, and the best on dev."""

from __future__ import annotations

import pytest

from sparring.lab.errors import UserError
from sparring.lab.runs.config import Config
from sparring.lab.runs.tune import GRIDS, SIZES, best_row, describe, grid, parse_values
from sparring.losses import list_losses, make_loss


def test_the_grids_are_settings_their_losses_take() -> None:
    assert set(GRIDS) <= set(list_losses())
    for loss in GRIDS:
        for point in grid(Config("x", loss=loss), loss, 1000, {}):
            make_loss(loss, **{name: getattr(point, name) for name in GRIDS[loss]})


def test_every_loss_with_a_number_to_choose_has_a_grid() -> None:
    assert set(list_losses()) - set(GRIDS) == {"softmax", "sparsemax", "entmax15", "multilabel-softmax"}


def tried(loss: str, values: dict[str, list[object]], n_classes: int = 5) -> list[str]:
    config = Config("x", loss=loss)
    return [describe(point, config) for point in grid(config, loss, n_classes, values)]


def test_a_grid() -> None:
    assert tried("as-softmax", {"delta": [0.1, "adaptive"]}) == ["delta=0.1", "delta=adaptive"]
    assert tried("sparse-softmax", {}, 11) == ["k=1", "k=2", "k=4", "k=5", "k=10"]
    assert tried("sparse-softmax", {}, 2) == ["k=1"]
    assert tried("sparse-softmax", {"k": [50]}) == ["k=50"]
    assert tried("am-softmax", {"scale": [2.0], "margin": [0.1, 0.2]}) == [
        "scale=2.0 margin=0.1",
        "scale=2.0 margin=0.2",
    ]
    assert len(tried("as-softmax", {"warmup": [0.0, 0.5]})) == 20
    with pytest.raises(UserError, match='"sparsemax" has no setting to tune'):
        tried("sparsemax", {})


def test_values() -> None:
    assert parse_values(["delta=0.123456789,adaptive", "batch-size=8"]) == {
        "delta": [0.123456789, "adaptive"],
        "batch_size": [8],
    }
    for wrong, message in (
        ("delta", "such as"),
        ("delta=", "such as"),
        ("delta=a", "delta must be"),
        ("delt=1", "no setting delt"),
    ):
        with pytest.raises(UserError, match=message):
            parse_values([wrong])


def test_the_best_is_the_first_of_the_highest_means() -> None:
    rows = [{"name": n, "dev": {"mean": mean}} for n, mean in (("a", 0.5), ("b", 0.7), ("c", 0.7))]
    assert best_row(rows)["name"] == "b"


def test_a_vocabulary_is_large_enough_for_every_k() -> None:
    """Generation has no labels to count."""
    assert [point.k for point in grid(Config("squad_qg"), "sparse-softmax", 0, {})] == list(SIZES)
