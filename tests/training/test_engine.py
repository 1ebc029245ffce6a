"""The engine: what happens to checked samples, and the state of a window."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from sparring import AdaptiveDelta, ASSoftmaxLoss, margins
from sparring.training import AdaptiveAccumulation, ConstantAccumulation, Scorecard
from sparring.training.batches import Batch, forward
from sparring.training.engine import Engine
from sparring.training.loop import Loop
from sparring.training.presets import RunParts
from tests.training.test_loop import Identity
from tests.training.toy import digits_like, net


def checked_loop(data: TensorDataset, n_eased: int, **settings: Any) -> Loop:
    """The scorecard wrongly says that the first samples were won with ease, so that they are checked."""
    card = Scorecard(len(data), check=True, max_rest=0)
    card.eased[:n_eased] = 1
    return Loop(Identity(), ASSoftmaxLoss(0.3), data, scorecard=card, **{"lr": 0.0, "epochs": 1, **settings})


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, list[int]]]:
    """What the engines of a test did: "check" or "train" and the indices of each batch."""
    recorded: list[tuple[str, list[int]]] = []
    check, train_on = Engine.check, Engine.train_on

    def spy_check(self: Engine, batch: Batch) -> None:
        recorded.append(("check", batch.indices.tolist()))
        check(self, batch)

    def spy_train_on(self: Engine, batches: Any) -> None:
        recorded.extend(("train", batch.indices.tolist()) for batch in batches)
        train_on(self, batches)

    monkeypatch.setattr(Engine, "check", spy_check)
    monkeypatch.setattr(Engine, "train_on", spy_train_on)
    return recorded


def test_checks_train_on_the_samples_that_plain_training_does(events: list[tuple[str, list[int]]]) -> None:
    """With checks and without rest, on a model that does not change: the same backward passes."""
    logits = torch.randn(40, 3, generator=torch.Generator().manual_seed(1)) * 3
    data = TensorDataset(logits, torch.randint(0, 3, (40,), generator=torch.Generator().manual_seed(2)))
    rows = ASSoftmaxLoss(0.3).rows(*data.tensors)
    active = set(rows.active.nonzero().squeeze(1).tolist())
    loop = checked_loop(data, 40, batch_size=4, epochs=3)
    record = loop.run()
    trained = [index for kind, indices in events if kind == "train" for index in indices]
    assert all(trained.count(index) == 3 for index in active)
    assert record.epochs[0]["check"] == 40
    easy = rows.won & (margins(*data.tensors) >= 0.4)
    assert 0 < easy.sum() < 40 - len(active)
    assert record.epochs[1]["check"] == easy.sum(), "narrow winners train, and need no backward pass"
    assert record.totals["n_backward"] == 3 * len(active)
    assert not loop.engine.lost


def test_samples_that_fail_a_check_are_in_the_next_batch(events: list[tuple[str, list[int]]]) -> None:
    logits = torch.tensor([[0.0, 9.0]] * 4 + [[9.0, 0.0]] * 12)  # the first four are lost
    checked_loop(TensorDataset(logits, torch.zeros(16, dtype=torch.long)), 12, batch_size=2).run()
    assert {kind for kind, _ in events} == {"check", "train"}
    for index in range(4):
        checked = next(i for i, (kind, indices) in enumerate(events) if kind == "check" and index in indices)
        following = [indices for kind, indices in events[checked:] if kind == "train"]
        assert index in [*following[0], *following[1]], "with the next batch, in one of its two parts"


def test_many_lost_samples_train_in_batches_that_fit(events: list[tuple[str, list[int]]]) -> None:
    """A check finds four batches of lost samples at once."""
    data = TensorDataset(torch.tensor([[0.0, 9.0]] * 40), torch.zeros(40, dtype=torch.long))
    record = checked_loop(data, 40, batch_size=4).run()
    sizes = [len(indices) for kind, indices in events if kind == "train"]
    assert sum(sizes) == 40 == record.totals["n_backward"]
    assert max(sizes) == 8
    assert record.epochs[0]["check"] == 40


def engine_of(model: nn.Module, **settings: Any) -> Engine:
    parts = RunParts(ASSoftmaxLoss(AdaptiveDelta(0.3)), "rows", None, ConstantAccumulation(2))
    return Engine(model, parts._replace(**settings), forward, device=torch.device("cpu"))


def test_a_window_is_the_mean_over_its_rows() -> None:
    x, y = digits_like().tensors
    model, twin = net(0.0), net(0.0)
    engine = engine_of(model)
    batches = [Batch((x[:8], y[:8]), torch.arange(8)), Batch((x[8:20], y[8:20]), torch.arange(8, 20))]
    engine.train_window(batches)
    window = engine.close_window()
    rows = ASSoftmaxLoss(0.3).rows(twin(x[:20]), y[:20])
    rows.mean().backward()
    for parameter, expected in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(parameter.grad, expected.grad)
    assert window.loss == pytest.approx(rows.mean().item())
    assert window.won_share == pytest.approx(rows.won_share().item())
    assert (window.accumulation, window.n_forward) == (2, 20)
    assert engine.totals()["n_forward"] == 20
    engine.close()
    assert not model._forward_hooks


def test_state_survives() -> None:
    x, y = digits_like().tensors
    engine = engine_of(net(), accumulation=AdaptiveAccumulation(), scorecard=Scorecard(96))
    engine.train(Batch((x, y), torch.arange(96)))
    engine.close_window()
    engine.follow(3)
    engine.lost = [3, 5]
    other = engine_of(net(), accumulation=AdaptiveAccumulation(), scorecard=Scorecard(96))
    other.load_state_dict(engine.state_dict())
    assert other.lost == [3, 5]
    assert (other.won_share, other.delta, other.totals()) == (engine.won_share, engine.delta, engine.totals())
    assert repr(other.scorecard) == repr(engine.scorecard)


def test_a_batch_without_tensors() -> None:
    with pytest.raises(ValueError, match="must hold tensors"):
        Batch.of({"text": ["a", "b"]})
