"""Grids of settings, and the best on dev."""

from __future__ import annotations

import pytest

from sparring.lab.config import Config
from sparring.lab.errors import UserError
from sparring.lab.tune import GRIDS, best, grid, parse_values
from sparring.losses import list_losses, make_loss


def test_the_grids_are_settings_their_losses_take() -> None:
    assert set(GRIDS) <= set(list_losses())
    for loss in GRIDS:
        for contestant in grid(Config("x", loss=loss), 1000, {}):
            config = Config("x").with_contestant(contestant)
            make_loss(loss, **{name: getattr(config, name) for name in GRIDS[loss]})


def test_every_loss_with_a_number_to_choose_has_a_grid() -> None:
    assert set(list_losses()) - set(GRIDS) == {"softmax", "sparsemax", "entmax15", "multilabel-softmax"}


def test_a_grid() -> None:
    assert grid(Config("x", loss="as-softmax"), 5, {"delta": [0.1, 0.2]}) == ["as-softmax:delta=0.1", "as-softmax:delta=0.2"]
    assert grid(Config("x", loss="sparse-softmax"), 11, {}) == ["sparse-softmax:k=1", "sparse-softmax:k=5", "sparse-softmax:k=10"]
    assert grid(Config("x", loss="am-softmax"), 5, {"scale": [2.0], "margin": [0.1, 0.2]}) == [
        "am-softmax:scale=2:margin=0.1",
        "am-softmax:scale=2:margin=0.2",
    ]
    with pytest.raises(UserError, match='"sparsemax" has no setting to tune'):
        grid(Config("x", loss="sparsemax"), 5, {})


def test_values() -> None:
    assert parse_values(["delta=0.1,0.2", "warmup=0"]) == {"delta": [0.1, 0.2], "warmup": [0.0]}
    for wrong in ("delta", "delta=a", "0.1,0.2"):
        with pytest.raises(UserError, match=r"such as delta=0\.1,0\.2"):
            parse_values([wrong])


def test_the_best_is_the_first_of_the_highest_means() -> None:
    rows = [{"name": n, "dev": {"mean": mean}} for n, mean in (("a", 0.5), ("b", 0.7), ("c", 0.7))]
    assert best(rows)["name"] == "b"
