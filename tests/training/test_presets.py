from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from sparring import AdaptiveDelta, ASSoftmaxLoss, LinearDelta, MultilabelASSoftmaxLoss, SoftmaxLoss
from sparring.training import AdaptiveAccumulation, Scorecard
from sparring.training.loop import Loop
from sparring.training.presets import SPEEDS, RunParts, resolve_speed
from tests.training.toy import N, digits_like, gap, net, run


def resolve(loss: Any = "as-softmax", **settings: Any) -> RunParts:
    return resolve_speed(net(), N, loss=loss, **settings)


@pytest.mark.parametrize("name", SPEEDS)
def test_a_preset_is_its_parts(name: str) -> None:
    parts, preset = resolve(speed=name), SPEEDS[name]
    assert parts.skip == preset.skip
    assert (parts.scorecard is not None) == preset.rest
    assert isinstance(parts.loss.delta, AdaptiveDelta) == preset.adapt
    assert parts.accumulation is None


def test_settings_override_the_preset() -> None:
    scheduled = ASSoftmaxLoss(LinearDelta(0.5, 0.1, total_steps=5))
    parts = resolve(scheduled, speed="all", skip="micro", rest=False, check=False, accumulation=3, lam=0.7)
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
        ({"speed": "all"}, True, 2, 1),
        ({"speed": "all", "max_rest": 1, "check": False}, False, 1, 1),
        ({"speed": "all", "rest": False}, True, 0, 1),
        ({"rest": True}, False, 2, 0),
        ({"check": True}, True, 0, 0),
    ],
)
def test_scorecards(settings: dict[str, Any], check: bool, max_rest: int, narrow: int) -> None:
    card = resolve(**settings).scorecard
    assert (card.check, card.max_rest, card.narrow) == (check, max_rest, narrow)


def test_the_loop_resolves_them() -> None:
    loop = Loop(net(), "as-softmax", digits_like(), speed="all", scorecard=False)
    assert (loop.skip, loop.scorecard) == ("rows", None)
    assert Loop(net(), "as-softmax", digits_like(), speed="all", scorecard=True).scorecard.narrow == 0


def test_skip_has_the_weights_of_off_and_all_saves_forwards_too() -> None:
    off, full = run(speed="off", epochs=8)
    skip, skipped = run(speed="skip", epochs=8)
    _, rested = run(speed="all", epochs=8)
    assert gap(off, skip) < 1e-4
    assert full.totals["n_backward"] == full.totals["n_forward"] == skipped.totals["n_forward"] == 8 * N
    assert rested.totals["n_forward"] < 0.9 * 8 * N
    assert rested.totals["n_backward"] < 0.5 * 8 * N
    assert rested.epochs[-1]["lr"] == 0.0


def test_an_adaptive_delta_decreases_and_comes_back() -> None:
    """Never above the δ of the loss."""
    loss = ASSoftmaxLoss(0.3)
    adapted = resolve(loss, speed="all").loss
    assert loss.delta == 0.3 == adapted.delta.value
    assert resolve(loss, speed="skip").loss is loss
    low = min(adapted.delta.step(0.0) for _ in range(200))
    high = max(adapted.delta.step(1.0) for _ in range(200))
    assert (low, high) == (0.05, 0.3)
    multilabel = MultilabelASSoftmaxLoss(0.3)
    assert resolve(multilabel, speed="all").loss is multilabel
    small = resolve(ASSoftmaxLoss(0.02), speed="all").loss
    assert [small.delta.step(0.0), small.delta.step(1.0)] == [0.02, 0.02]


def test_a_loss_without_delta_and_a_network_with_batch_norm_train_too() -> None:
    torch.manual_seed(0)
    with_norm = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))
    _, record = run(with_norm, speed="all", epochs=2)
    assert record.totals["n_updates"] > 0
    _, record = run(loss=SoftmaxLoss(), speed="all", epochs=2)
    assert record.totals["n_backward"] == 2 * N


def test_errors() -> None:
    with pytest.raises(ValueError, match="speed must be one of off, skip, all; got 'fast'"):
        resolve(speed="fast")
    with pytest.raises(ValueError, match="no sample rests"):
        resolve(max_rest=2)
    with pytest.raises(TypeError, match="got CrossEntropyLoss"):
        resolve(nn.CrossEntropyLoss())
