from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from sparring import MultilabelSoftmaxLoss, SoftmaxLoss, margins
from sparring.backward.skipper import ForwardResult
from sparring.losses.rows import RowLosses
from sparring.training import REST, Scorecard
from sparring.training.loop import Loop
from sparring.training.resting.weighted import WeightedScorecard
from tests.training.toy import N, digits_like, gap, net, run

NOT_WON = torch.zeros(1, dtype=torch.bool)


def look(card: Scorecard, margin: float) -> int:
    """The epochs that the only sample of a scorecard rests after a look."""
    card.update(torch.tensor([0]), NOT_WON, torch.tensor([margin]))
    return int(card.due[0]) - card.epoch - 1


@given(st.floats(-1, 1), st.floats(-0.9, 0.9), st.integers(0, 6), st.integers(0, 50))
def test_the_rest_follows_the_margin(margin: float, margin_from: float, max_rest: int, seed: int) -> None:
    card = WeightedScorecard(1, max_rest=max_rest, margin_from=margin_from, seed=seed)
    epochs = min(max((1 - margin_from) / max(1 - margin, 1e-9), 1), max_rest + 1)
    rest = look(card, margin)
    assert math.floor(epochs - 1e-4) - 1 <= rest <= math.ceil(epochs + 1e-4) - 1
    assert 0 <= rest <= max_rest


def test_rounding_is_right_on_average() -> None:
    """margin 0.84 is one look in 2.5 epochs."""
    rests = [look(WeightedScorecard(1, margin_from=0.6, seed=seed), 0.84) for seed in range(400)]
    assert set(rests) == {1, 2}
    assert abs(sum(rests) / 400 - 1.5) < 0.1


def test_a_sample_counts_once_for_each_epoch() -> None:
    """Whatever the margins are: what a sample counts in all looks is the number of epochs until the last."""
    card = WeightedScorecard(40, max_rest=4, margin_from=0.0)
    generator = torch.Generator().manual_seed(0)
    total = torch.zeros(40)
    n_looks = 0
    for epoch in range(30):
        card.begin(epoch)
        index = (card.states() != REST).nonzero().squeeze(1)
        n_looks += len(index)
        flags = torch.ones(len(index), dtype=torch.bool)
        weight = card.weigh(index, RowLosses(torch.ones(len(index)), flags, flags)).weight
        total[index] += 1.0 if weight is None else weight
        margin = torch.rand(len(index), generator=generator) * 1.5 - 0.5
        card.update(index, ~flags, margin)
    assert n_looks < 0.9 * 30 * 40
    assert total.tolist() == (card.seen + 1).tolist()


def test_the_gradient_of_an_epoch_is_kept() -> None:
    """With a network that stands still, the looks of 60 epochs add up to 60 full gradients."""
    data = digits_like()
    x, y = data.tensors
    model = net(dropout=0.0)
    run(model, SoftmaxLoss(), epochs=3)  # so that margins differ
    full = torch.autograd.grad(SoftmaxLoss()(model(x), y), list(model.parameters()))
    card = WeightedScorecard(N, max_rest=4, margin_from=0.2)
    card.awake_from = 59
    summed = [torch.zeros_like(gradient) for gradient in full]
    mass, n_looks, epochs = 0.0, 0, 60
    for epoch in range(epochs):
        card.begin(epoch)
        index = (card.states() != REST).nonzero().squeeze(1)
        logits = model(x[index])
        rows = card.weigh(index, SoftmaxLoss().rows(logits, y[index]))
        for total, part in zip(
            summed, torch.autograd.grad(rows.sum(), list(model.parameters())), strict=True
        ):
            total += part
        mass += len(index) if rows.weight is None else float(rows.weight.sum())
        n_looks += len(index)
        probability = logits.detach().softmax(1)
        target = probability.gather(1, y[index, None]).squeeze(1)
        margin = target - probability.scatter(1, y[index, None], 0).amax(1)
        card.update(index, torch.zeros(len(index), dtype=torch.bool), margin)
    assert n_looks < 0.7 * epochs * N
    assert mass == epochs * N
    for total, gradient in zip(summed, full, strict=True):
        torch.testing.assert_close(total / mass, gradient, atol=1e-6, rtol=1e-4)


def test_the_gradient_of_several_labels_is_bounded_by_the_loss() -> None:
    """By √2 (1 − exp(−loss)); a margin between labels bounds nothing, since both may be above 0."""
    generator = torch.Generator().manual_seed(0)
    logits = (5 * torch.randn(500, 6, generator=generator)).requires_grad_()
    labels = torch.randint(2, (500, 6), generator=generator)
    loss_fn = MultilabelSoftmaxLoss()
    rows = loss_fn.rows(logits, labels)
    (gradient,) = torch.autograd.grad(rows.value.sum(), logits)
    bound = math.sqrt(2) * (1 - (-rows.value.detach()).exp())
    assert bool((gradient.norm(dim=1) <= bound + 1e-6).all())
    between = margins(logits, labels)
    exceeds = gradient.norm(dim=1) > math.sqrt(2) * (1 - between) + 1e-6
    assert bool(exceeds.any())


def test_the_gradient_of_class_probabilities_is_bounded_by_the_loss() -> None:
    generator = torch.Generator().manual_seed(0)
    scale = torch.logspace(-1, 2, 500)[:, None]
    logits = (scale * torch.randn(500, 4, generator=generator)).requires_grad_()
    noise = torch.randn(500, 4, generator=generator)
    target = (logits.detach() + noise).softmax(1)
    rows = SoftmaxLoss().rows(logits, target)
    (gradient,) = torch.autograd.grad(rows.value.sum(), logits)
    m = (-rows.value.detach()).exp()
    assert int((m > 0.6).sum()) > 100
    assert bool((gradient.norm(dim=1) <= math.sqrt(2) * (1 - m) + 1e-6).all())


def test_samples_with_class_probabilities_as_targets_rest() -> None:
    x, y = digits_like()[:]
    soft = 0.99 * nn.functional.one_hot(y).float() + 0.01 / 3
    data = torch.utils.data.TensorDataset(x, soft)
    card = WeightedScorecard(N, max_rest=2)
    record = Loop(
        net(), SoftmaxLoss(), data, speed="off", scorecard=card, epochs=12, batch_size=8, lr=0.02
    ).run()
    assert record.totals["n_forward"] < 0.95 * 12 * N


def test_a_row_that_misses_the_threshold_does_not_rest() -> None:
    card = WeightedScorecard(3, max_rest=4)
    logits = torch.tensor([[8.0, -8.0, -9.0], [8.0, 3.0, -9.0], [8.0, 8.0, -8.0]])
    labels = torch.tensor([[1, 0, 0], [1, 0, 0], [1, 1, 0]])
    assert margins(logits, labels)[1] > 0.98  # its second label is above 0, and wrong
    rows = MultilabelSoftmaxLoss().rows(logits, labels)
    card.note(torch.arange(3), ForwardResult(logits, labels, rows, 3))
    assert (card.due > 1).tolist() == [True, False, True]


def test_rows_of_tokens_and_class_weights() -> None:
    card = WeightedScorecard(2)
    card.update(torch.tensor([0]), NOT_WON, torch.tensor([0.0]))
    card.epoch = 3
    valid = torch.tensor([True, False, True, True])
    rows = RowLosses(torch.ones(4), valid, valid)
    assert card.weigh(torch.tensor([0, 1]), rows).weight.tolist() == [3, 0, 1, 1]
    rows = rows._replace(weight=torch.tensor([0.5, 0.0, 2.0, 2.0]))
    assert card.weigh(torch.tensor([0, 1]), rows).weight.tolist() == [1.5, 0, 2, 2]


def test_without_rest_it_is_plain_training_to_the_bit() -> None:
    plain, _ = run(loss=SoftmaxLoss(), speed="off")
    weighted, record = run(loss=SoftmaxLoss(), speed="off", scorecard=WeightedScorecard(N, max_rest=0))
    assert gap(plain, weighted) == 0
    assert record.totals["n_forward"] == 4 * N


def test_fast_training_with_softmax_saves_passes_and_learns() -> None:
    off, full = run(loss=SoftmaxLoss(), speed="off", epochs=10)
    card = WeightedScorecard(N, max_rest=2)
    fast, record = run(loss=SoftmaxLoss(), speed="fast", fit_head=False, scorecard=card, epochs=10)
    assert full.totals["n_forward"] == 10 * N
    assert record.totals["n_forward"] == record.totals["n_backward"] < 0.75 * 10 * N
    assert any("have a large margin and rest" in note for note in record.notes)
    x, y = digits_like().tensors
    right = []
    for state in (off, fast):
        model = net()
        model.load_state_dict(state)
        right.append(float((model.eval()(x).argmax(1) == y).float().mean()))
    assert right[1] > right[0] - 0.03
    assert record.epochs[-1]["lr"] == 0.0


@pytest.mark.parametrize("settings", [{"epochs": 8}, {"budget": 4.0, "forward_share": 0.4}])
@pytest.mark.parametrize("stop", [20, 31])
def test_a_stopped_run_ends_the_same_to_the_bit(tmp_path: Path, settings: dict[str, Any], stop: int) -> None:
    def log_step(entry: dict[str, Any]) -> None:
        if entry["step"] >= stop and not (tmp_path / "stopped").exists():
            (tmp_path / "stopped").touch()
            raise RuntimeError("power cut")

    def train(**more: Any) -> Any:
        card = WeightedScorecard(N, max_rest=2, seed=5)
        return run(scorecard=card, save_every=1, seed=5, **settings, **more)

    settings = {"loss": SoftmaxLoss(), "speed": "fast", **settings}
    whole, record = train()
    with pytest.raises(RuntimeError, match="power cut"):
        train(folder=tmp_path, log_step=log_step)
    again, resumed = train(folder=tmp_path, log_step=log_step)
    assert gap(whole, again) == 0
    assert any(epoch["rest"] for epoch in record.epochs)
    assert resumed.totals["n_forward"] == record.totals["n_forward"]


def test_two_seeds_round_differently_and_one_does_not() -> None:
    cards = [WeightedScorecard(500, seed=seed) for seed in (0, 0, 1)]
    for card in cards:
        card.update(torch.arange(500), torch.zeros(500, dtype=torch.bool), torch.full((500,), 0.84))
    assert torch.equal(cards[0].due, cards[1].due)
    assert not torch.equal(cards[0].due, cards[2].due)
    assert "margin_from=0.6" in repr(cards[0])


def test_nan_margins_never_rest_and_errors() -> None:
    card = WeightedScorecard(1)
    assert look(card, math.nan) == 0
    with pytest.raises(ValueError, match="margin_from"):
        WeightedScorecard(3, margin_from=2.0)
    batch_norm = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))
    _, record = run(batch_norm, SoftmaxLoss(), speed="fast", epochs=2)
    assert "BatchNorm" in record.notes[0]


@pytest.mark.parametrize(
    ("epochs", "max_rest", "longest"), [(3, None, 1), (4, None, 1), (8, None, 2), (40, None, 4), (4, 3, 3)]
)
def test_a_rest_is_at_most_a_quarter_of_the_training(epochs: int, max_rest: int | None, longest: int) -> None:
    """Unless the user says how long; what a sample counts for stays right."""
    card = WeightedScorecard(N, max_rest=max_rest)
    card.begin_with_fitted_head()
    settings = {"batch_size": 16, "lr": 0.05, "epochs": epochs, "scorecard": card}
    Loop(net(dropout=0.0), "softmax", digits_like(), progress=False, **settings).run()
    assert card.longest_rest == longest
    assert int(card.rested.max()) <= longest


def test_no_sample_rests_in_a_short_training_unless_its_head_is_fitted() -> None:
    """A network from scratch needs its updates; the record says so."""
    settings: dict[str, Any] = {"batch_size": 16, "lr": 0.05, "epochs": 12, "speed": "fast"}
    loop = Loop(net(), "softmax", digits_like(), progress=False, fit_head=False, **settings)
    record = loop.run()
    assert not any(epoch["rest"] for epoch in record.epochs)
    assert "fewer than 1,000 batches" in record.notes[-1]
    loop = Loop(net(), "softmax", digits_like(), progress=False, fit_head=True, **settings)
    record = loop.run()
    assert loop.scorecard.head_is_fitted
    assert any(epoch["rest"] for epoch in record.epochs)
    card = WeightedScorecard(N)
    card.plan_rests(n_epochs=20, n_batches=1000)
    assert card.longest_rest == 4


def test_a_stopped_run_with_a_fitted_head_still_knows_how_long_rests_may_be(tmp_path: Path) -> None:
    def stop(entry: dict[str, Any]) -> None:
        if entry["step"] >= 40 and not (tmp_path / "stopped").exists():
            (tmp_path / "stopped").touch()
            raise RuntimeError("power cut")

    settings: dict[str, Any] = {"batch_size": 16, "lr": 0.05, "epochs": 12, "speed": "fast", "fit_head": True}
    settings |= {"progress": False, "folder": tmp_path, "save_every": 1, "log_step": stop}
    with pytest.raises(RuntimeError, match="power cut"):
        Loop(net(), "softmax", digits_like(), **settings).run()
    loop = Loop(net(), "softmax", digits_like(), **settings)
    record = loop.run()
    assert loop.scorecard.rest_limit == 3
    assert not any("no sample rested" in note for note in record.notes)


def test_under_a_budget_the_number_of_epochs_is_not_known() -> None:
    card = WeightedScorecard(N)
    settings = {"batch_size": 16, "budget": 2.0, "forward_share": 0.4, "scorecard": card}
    Loop(net(), "softmax", digits_like(), progress=False, **settings).run()
    assert card.longest_rest == card.max_rest


def test_every_sample_of_a_loss_without_a_delta_trains_when_a_run_settles() -> None:
    settings = {"batch_size": 16, "lr": 0.05, "epochs": 12, "speed": "fast", "settle": 0.25, "fit_head": True}
    record = Loop(net(), "softmax", digits_like(), progress=False, **settings).run()
    rests = [epoch["rest"] for epoch in record.epochs]
    assert any(rests[:9])
    assert not any(rests[9:])
    assert any("in the last 25% no sample rests" in note for note in record.notes)


def test_a_used_scorecard_keeps_its_limit_in_the_next_run() -> None:
    card = WeightedScorecard(N)
    card.plan_rests(8)
    card.update(torch.tensor([0]), NOT_WON, torch.tensor([0.99]))
    card.forget()
    assert card.longest_rest == 2
    assert int(card.seen[0]) == -1
