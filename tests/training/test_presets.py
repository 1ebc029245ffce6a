from __future__ import annotations

import pytest
import torch
from torch import nn

from sparring import AdaptiveDelta, ASSoftmaxLoss, LinearDelta, MultilabelASSoftmaxLoss, SoftmaxLoss
from sparring.training import Scorecard
from sparring.training.loop import Loop
from sparring.training.presets import SPEEDS, find_speed
from tests.training.test_loop import N, digits_like, gap, net, run


def loop(**settings: object) -> Loop:
    return Loop(net(), settings.pop("loss", ASSoftmaxLoss(0.3)), digits_like(), **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", SPEEDS)
def test_a_preset_is_its_parts(name: str) -> None:
    made, preset = loop(speed=name), SPEEDS[name]
    assert made.skip == preset.skip
    assert bool(made.scorecard) == preset.rest
    assert isinstance(made.objective.delta, AdaptiveDelta) == preset.adapt


def test_what_is_given_goes_on_top() -> None:
    made = loop(
        speed="all", skip="micro", scorecard=False, loss=ASSoftmaxLoss(LinearDelta(0.5, 0.1, total_steps=5))
    )
    assert (made.skip, made.scorecard, made.card.max_rest) == ("micro", False, 0)
    assert isinstance(made.objective.delta, LinearDelta)
    card = Scorecard(N, max_rest=1)
    assert loop(speed="off", scorecard=card).card is card


def test_skip_has_the_weights_of_off_and_all_saves_forwards_too() -> None:
    off, full = run(speed="off", epochs=10)
    skip, skipped = run(speed="skip", epochs=10)
    _, rested = run(speed="all", epochs=10)
    assert gap(off, skip) < 1e-4
    assert full.totals["n_backward"] == full.totals["n_forward"] == skipped.totals["n_forward"] == 10 * N
    assert rested.totals["n_forward"] < 0.9 * 10 * N
    assert rested.totals["n_backward"] < 0.5 * 10 * N
    assert rested.epochs[-1]["lr"] == 0.0


def test_delta_gives_way_and_comes_back() -> None:
    """Never above the loss's own, never below a margin at all."""
    own = ASSoftmaxLoss(0.3)
    loss = find_speed("all").adapted(own)
    assert own.delta == 0.3 == loss.delta.value
    assert find_speed("skip").adapted(own) is own
    low = min(loss.delta.step(0.0) for _ in range(200))
    high = max(loss.delta.step(1.0) for _ in range(200))
    assert (low, high) == (0.05, 0.3)
    labels = MultilabelASSoftmaxLoss(0.3)
    assert find_speed("all").adapted(labels) is labels
    small = find_speed("all").adapted(ASSoftmaxLoss(0.02))
    assert [small.delta.step(0.0), small.delta.step(1.0)] == [0.02, 0.02]


def test_a_loss_without_delta_and_a_network_with_batch_norm_train_too() -> None:
    torch.manual_seed(0)
    with_norm = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))
    _, record = run(with_norm, speed="all")
    assert record.totals["n_updates"] > 0
    _, record = run(loss=SoftmaxLoss(), speed="all")
    assert record.totals["n_backward"] == 4 * N


def test_an_unknown_word() -> None:
    with pytest.raises(ValueError, match="speed must be one of off, skip, all; got 'fast'"):
        loop(speed="fast")
