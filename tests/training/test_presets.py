from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from sparring import ASSoftmaxLoss, LinearDelta, SoftmaxLoss
from sparring.training import AdaptiveAccumulation, Scorecard
from sparring.training.loop import Loop
from sparring.training.presets import SPEEDS, RunParts, resolve_speed
from sparring.training.resting.weighted import WeightedScorecard
from tests.training.toy import N, digits_like, gap, net, run


def resolve(loss: Any = "as-softmax", **settings: Any) -> RunParts:
    return resolve_speed(net(), N, loss=loss, **settings)


@pytest.mark.parametrize("name", SPEEDS)
def test_a_preset_is_its_parts(name: str) -> None:
    parts, preset = resolve(speed=name), SPEEDS[name]
    assert parts.skip == preset.skip
    assert (parts.scorecard is not None) == preset.rest
    assert (parts.loss.delta, parts.settle) == (preset.delta, preset.settle)
    assert parts.accumulation is None
    assert bool(parts.note) == preset.rest


def test_settings_override_the_preset() -> None:
    scheduled = ASSoftmaxLoss(LinearDelta(0.5, 0.1, total_steps=5))
    parts = resolve(scheduled, speed="fast", skip="micro", rest=False, check=False, accumulation=3, lam=0.7)
    assert (parts.skip, parts.scorecard) == ("micro", None)
    assert parts.loss is scheduled
    assert (parts.accumulation.max_steps, parts.accumulation.lam) == (3, 0.7)
    card, accumulation = Scorecard(N, max_rest=1), AdaptiveAccumulation()
    parts = resolve(speed="off", rest=card, accumulation=accumulation)
    assert parts.scorecard is card
    assert parts.accumulation is accumulation


@pytest.mark.parametrize(
    ("settings", "check", "max_rest", "narrow"),
    [
        ({"speed": "fast"}, False, 2, 2),
        ({"speed": "all"}, False, 2, 2),
        ({"speed": "fast", "max_rest": 1, "check": True}, True, 1, 1),
        ({"rest": True}, False, 2, 0),
        ({"check": True}, True, 0, 0),
    ],
)
def test_scorecards(settings: dict[str, Any], check: bool, max_rest: int, narrow: int) -> None:
    card = resolve(**settings).scorecard
    assert (card.check, card.max_rest, card.narrow) == (check, max_rest, narrow)


def test_the_loop_resolves_them() -> None:
    loop = Loop(net(), "as-softmax", digits_like(), speed="fast", scorecard=False)
    assert (loop.skip, loop.scorecard) == ("rows", None)
    assert Loop(net(), "as-softmax", digits_like(), speed="fast", scorecard=True).scorecard.narrow == 0


def test_skip_has_the_weights_of_off_and_fast_saves_forwards_too() -> None:
    off, full = run(speed="off", epochs=8)
    skip, skipped = run(speed="skip", epochs=8)
    _, rested = run(speed="fast", epochs=8)
    assert gap(off, skip) < 1e-4
    assert full.totals["n_backward"] == full.totals["n_forward"] == skipped.totals["n_forward"] == 8 * N
    assert rested.totals["n_forward"] < 0.9 * 8 * N
    assert rested.totals["n_backward"] < 0.6 * 8 * N
    assert rested.epochs[-1]["lr"] == 0.0


def test_a_loss_by_name_has_the_delta_of_the_preset_and_a_loss_keeps_its_own() -> None:
    loss = ASSoftmaxLoss(0.3)
    assert resolve(loss, speed="fast").loss is loss
    assert resolve("multilabel-as-softmax", speed="fast").loss.delta == 0.6


def test_it_says_what_it_does() -> None:
    assert resolve(speed="fast").note == (
        "speed fast: as-softmax, δ 0.6, no backward pass for won samples; once 5% are won, won samples rest"
        " up to 2 epochs; the last 25% are plain softmax for every sample"
    )
    assert resolve("softmax", speed="fast").note == (
        "speed fast: softmax; once 5% would rest, samples with a large margin rest up to 4 epochs, at most"
        " a quarter of the planned ones (none in short trainings), and count for these when they come back"
    )
    norm = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))
    parts = resolve_speed(norm, N, loss="as-softmax", speed="fast")
    assert parts.scorecard is None
    assert "BatchNorm" in parts.note


def test_a_loss_without_delta_and_a_network_with_batch_norm_train_too() -> None:
    torch.manual_seed(0)
    with_norm = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))
    _, record = run(with_norm, speed="fast", epochs=2)
    assert record.totals["n_updates"] > 0
    _, record = run(loss=SoftmaxLoss(), speed="fast", fit_head=False, epochs=2)
    assert record.totals["n_backward"] == 2 * N


@pytest.mark.parametrize("name", ["softmax", "label-smoothing", "sparsemax", "am-softmax", "gce"])
def test_samples_of_other_losses_rest_with_weights(name: str) -> None:
    card = resolve(name, speed="fast", seed=3).scorecard
    assert isinstance(card, WeightedScorecard)
    assert (card.max_rest, card.seed) == (4, 3)
    assert resolve(name, speed="fast", max_rest=1).scorecard.max_rest == 1
    assert type(resolve(name, speed="fast", check=True).scorecard) is Scorecard
    assert resolve(name, speed="fast", rest=False).scorecard is None


def test_errors() -> None:
    with pytest.raises(ValueError, match="speed must be one of off, skip, fast; got 'faster'"):
        resolve(speed="faster")
    with pytest.raises(ValueError, match="no sample rests"):
        resolve(max_rest=2)
    with pytest.raises(TypeError, match="got CrossEntropyLoss"):
        resolve(nn.CrossEntropyLoss())
