"""Budgets and settling: what a run spends, when it ends, and that it resumes to the bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from sparring import ASSoftmaxLoss, LinearLoss, SettleDelta, WarmupDelta
from sparring.training import REST, TRAIN, Scorecard
from sparring.training.loop import Loop
from sparring.training.progress import Budget, measure_forward_share, settle_step, settles_at
from sparring.training.resume import ResumeWarning
from tests.training.toy import N, digits_like, gap, net

BATCH = 16


def loop(loss: Any = "as-softmax", **settings: Any) -> Loop:
    torch.manual_seed(0)
    if "budget" in settings:
        settings = {"forward_share": 0.4, **settings}
    return Loop(net(), loss, digits_like(), **{"batch_size": BATCH, "lr": 0.05} | settings)


def test_softmax_with_a_budget_of_epochs_is_softmax_with_epochs() -> None:
    assert N % BATCH == 0
    by_epochs, by_budget = loop("softmax", epochs=3), loop("softmax", budget=3.0)
    by_epochs.run()
    by_budget.run()
    assert by_epochs.total_steps == by_budget.total_steps
    assert gap(by_epochs.model.state_dict(), by_budget.model.state_dict()) == 0
    assert by_budget.record.totals["n_updates"] == by_epochs.record.totals["n_updates"]


@pytest.mark.parametrize("budget", [0.5, 1.0, 2.5])
def test_a_run_spends_its_budget_whatever_its_epochs(budget: float) -> None:
    """Also where the rest of an epoch does not fit; the last window may exceed it."""
    made = loop(budget=budget, forward_share=0.4, speed="fast")
    record = made.run()
    cost = 0.4 * record.totals["n_forward"] + 0.6 * record.totals["n_backward"]
    assert abs(cost / N - budget) <= BATCH / N
    assert made.n_done == made.total_steps == round(budget * made.sampler.n_planned)
    assert record.epochs[-1]["lr"] == 0.0


def test_what_is_won_pays_for_more_epochs() -> None:
    softmax = loop("softmax", budget=8.0).run()
    fast = loop(budget=8.0, speed="fast").run()
    assert len(softmax.epochs) == 8 < len(fast.epochs)
    assert any(epoch["rest"] for epoch in fast.epochs)


def test_every_sample_is_awake_and_in_plain_softmax_when_a_run_settles() -> None:
    made = loop(epochs=10, speed="fast", settle=0.2)
    record = made.run()
    assert [epoch["rest"] for epoch in record.epochs][-2:] == [0, 0]
    assert any(epoch["rest"] for epoch in record.epochs[:-2])
    assert [epoch["n_backward"] for epoch in record.epochs][-2:] == [N, N]
    assert [epoch["delta"] for epoch in record.epochs][-3:] == [1.0, 1.0, 1.0]  # 1 from the next step on
    assert made.objective.delta.before.value == 0.6
    assert record.notes[0].startswith("speed fast: as-softmax, δ 0.6")
    assert any("rest" in note for note in record.notes[1:])


def test_settling_under_a_budget_wakes_every_sample_at_once() -> None:
    """The epoch in which it begins is cut short, so that nobody sleeps through it."""
    record = loop(budget=8.0, speed="fast", settle=0.25).run()
    settled = [epoch for epoch in record.epochs if epoch["delta"] == 1.0 and not epoch["rest"]]
    assert sum(epoch["n_backward"] for epoch in settled) >= 2 * N - BATCH
    assert all(epoch["n_backward"] == epoch["n_forward"] for epoch in settled[-2:])


def test_a_user_schedule_that_settles_wakes_samples_too() -> None:
    steps = 10 * N // BATCH
    delta = SettleDelta(0.2, total_steps=steps, share=0.3)
    record = loop(ASSoftmaxLoss(delta), epochs=10, scorecard=Scorecard(N, narrow=2)).run()
    assert [epoch["rest"] for epoch in record.epochs][-3:] == [0, 0, 0]
    assert any(epoch["rest"] for epoch in record.epochs[:-3])


@pytest.mark.parametrize(
    "settings", [{"budget": 4.0}, {"budget": 4.0, "speed": "fast"}, {"epochs": 8, "speed": "fast"}]
)
def test_a_stopped_run_ends_bit_equal(settings: dict[str, Any], tmp_path: Path) -> None:
    whole = loop(**settings)
    record = whole.run()
    stopped = loop(**settings, folder=tmp_path, save_every=3)
    n_steps = iter(range(1000))
    stopped.log_step = lambda _: stopped.stop() if next(n_steps) == 11 else None
    with pytest.raises(KeyboardInterrupt):
        stopped.run()
    resumed = loop(**settings, folder=tmp_path, save_every=3)
    continued = resumed.run()
    assert gap(whole.model.state_dict(), resumed.model.state_dict()) == 0
    assert continued.totals["n_forward"] == record.totals["n_forward"]
    assert continued.notes == record.notes
    if "budget" in settings:
        assert resumed.run_progress.budget.spent == whole.run_progress.budget.spent


def test_the_share_of_a_forward_pass_is_measured_without_a_trace() -> None:
    model = nn.Sequential(nn.Linear(64, 64), nn.BatchNorm1d(64), nn.Dropout(0.5), nn.Linear(64, 3))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state = torch.get_rng_state()
    cpu = torch.device("cpu")
    share = measure_forward_share(model, lambda: model(torch.randn(500, 64)), cpu)
    assert 0.05 <= share <= 0.95
    assert share * 20 == round(share * 20)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), state)
    assert all(parameter.grad is None for parameter in model.parameters())
    slow = measure_forward_share(model, lambda: [model(torch.randn(500, 64)) for _ in range(30)][-1], cpu)
    assert slow > 0.8
    model.requires_grad_(False)
    assert measure_forward_share(model, lambda: model(torch.randn(5, 64)), cpu) == 1.0


def test_a_scorecard_that_never_wakes_its_samples_is_an_error() -> None:
    class Asleep(Scorecard):
        def states(self) -> torch.Tensor:
            return torch.full((self.n_samples,), REST)

    with pytest.raises(RuntimeError, match="every sample rested for 100 epochs"):
        loop(budget=1.0, scorecard=Asleep(N)).run()


def test_settling_takes_whole_epochs_where_there_are_enough() -> None:
    assert [settle_step(100 * n, 100, 0.15) for n in (1, 3, 4, 20)] == [85, 255, 300, 1700]
    assert settle_step(100, 100, 0) == 100
    assert settle_step(100, 100, 1) == 0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"budget": 0.0}, "budget must be above 0, got 0"),
        ({"budget": 1.0, "forward_share": 1.5}, r"forward_share must lie in \[0, 1\], got 1.5"),
        ({"forward_share": 0.4}, "forward_share=0.4 is for a budget, but there is none"),
        ({"settle": -0.1}, r"settle must lie in \[0, 1\], got -0.1"),
    ],
)
def test_errors(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        loop(**settings)


# ------------------------------------------------------------ found by an attack


def easy() -> TensorDataset:
    target = torch.arange(N) % 3
    return TensorDataset(6 * nn.functional.one_hot(target, 6).float(), target)


def test_checks_are_charged() -> None:
    """Although an epoch in which every sample is checked and won has no window."""
    checks = Scorecard(N, check=True, max_rest=0)
    usual = {"batch_size": BATCH, "lr": 0.05, "forward_share": 0.4}
    made = Loop(net(), "as-softmax", easy(), budget=8.0, scorecard=checks, **usual)
    totals = made.run().totals
    cost = 0.4 * totals["n_forward"] + 0.6 * totals["n_backward"]
    assert cost / N == pytest.approx(made.run_progress.budget.epochs_spent)
    assert cost / N < 8.5


@pytest.mark.parametrize("more", [4.0, 6.0])
def test_resumed_with_a_larger_budget_it_spends_it(more: float, tmp_path: Path) -> None:
    loop(budget=2.0, folder=tmp_path).run()
    longer = loop(budget=more, folder=tmp_path, resume="anyway")
    with pytest.warns(ResumeWarning, match=f"budget 2.0 .now {more}"):
        longer.run()
    assert longer.run_progress.budget.epochs_spent == pytest.approx(more, abs=BATCH / N)
    assert longer.record.epochs[-1]["lr"] == 0.0


def test_resumed_with_a_budget_after_epochs(tmp_path: Path) -> None:
    """What the epochs took counts, and the learning rate ends with the budget."""
    stopped = loop(epochs=6, folder=tmp_path)
    stopped.log_step = lambda entry: stopped.stop() if entry["step"] == 21 else None
    with pytest.raises(KeyboardInterrupt):
        stopped.run()
    resumed = loop(budget=8.0, folder=tmp_path, resume="anyway")
    with pytest.warns(ResumeWarning):
        resumed.run()
    assert resumed.n_done == resumed.total_steps
    assert resumed.record.epochs[-1]["lr"] == 0.0
    assert resumed.lr_schedule.last_epoch == resumed.total_steps


def test_resumed_with_more_epochs_samples_rest_until_the_new_end(tmp_path: Path) -> None:
    loop(epochs=5, speed="fast", folder=tmp_path).run()
    longer = loop(epochs=20, speed="fast", folder=tmp_path, resume="anyway")
    with pytest.warns(ResumeWarning):
        record = longer.run()
    assert longer.sampler.scorecard.awake_from == 15
    assert any(epoch["rest"] for epoch in record.epochs[5:15])
    assert not any(epoch["rest"] for epoch in record.epochs[15:])


def test_a_warm_up_around_a_schedule_that_settles() -> None:
    schedule = WarmupDelta(SettleDelta(0.6, total_steps=60, share=0.5), total_steps=60, share=0.2)
    assert settles_at(ASSoftmaxLoss(schedule), 60, 6) == 42
    values = [schedule.step() for _ in range(60)]
    assert [values[i] for i in (10, 12, 40, 42)] == [1.0, 0.6, 0.6, 1.0]
    warmed = SettleDelta(0.6, total_steps=60, share=0.5).after_warmup(0.2)
    values = [warmed.step() for _ in range(60)]
    assert [values[i] for i in (10, 12, 28, 30, 59)] == [1.0, 0.6, 0.6, 1.0, 1.0]


def test_an_epoch_in_which_nobody_rests_is_not_cut() -> None:
    settings = {"budget": 2.0, "settle": 0.2, "skip": "off", "scorecard": Scorecard(N, max_rest=0)}
    record = loop(ASSoftmaxLoss(0.3), **settings).run()
    assert [epoch["n_forward"] for epoch in record.epochs] == [N, N]


def test_settling_that_begins_in_the_last_window_of_an_epoch() -> None:
    card = Scorecard(N, narrow=2)
    record = loop(budget=3.5, accumulation=4, settle=0.3, scorecard=card).run()
    assert not [epoch for epoch in record.epochs if epoch["rest"] and epoch["n_forward"] < BATCH]


def test_notes_are_true_where_a_run_settles_at_once() -> None:
    record = loop(epochs=2, speed="fast").run()
    assert not any(epoch["rest"] for epoch in record.epochs)
    assert [note for note in record.notes if "won and rest" in note] == []
    assert record.notes[-1].startswith("no sample rested")


def test_a_model_that_makes_buffers_and_a_head_on_a_frozen_body() -> None:
    class Caching(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if not hasattr(self, "cache"):
                self.register_buffer("cache", x.mean(0), persistent=False)
            return super().forward(x)

    record = Loop(Caching(6, 3), "softmax", digits_like(), budget=1.0).run()
    assert record.totals["n_forward"] == N
    body = nn.Sequential(nn.Linear(6, 8).requires_grad_(False), nn.Linear(8, 300))
    head = LinearLoss.on(body[1], ASSoftmaxLoss(0.3))
    made = Loop(body, head, digits_like(), budget=0.2, skip="off", forward=lambda m, b: (m[0](b[0]), b[1]))
    made.run()
    assert made.run_progress.budget.forward_share < 1


def test_a_finished_loop_is_not_run_again() -> None:
    made = loop(epochs=8, speed="fast", history=True)
    record = made.run()
    notes = list(record.notes)
    assert made.run() is record
    assert (made.history.n_epochs, record.notes) == (8, notes)


def test_workers_and_a_cut_epoch() -> None:
    """Batches that workers have loaded ahead of a cut are not trained on."""
    alone = loop(budget=4.5, speed="fast", settle=0.3)
    with_workers = loop(budget=4.5, speed="fast", settle=0.3, workers=2)
    assert alone.run().totals["n_forward"] == with_workers.run().totals["n_forward"]
    assert gap(alone.model.state_dict(), with_workers.model.state_dict()) == 0


def test_measuring_leaves_no_trace_on_a_scorecard_that_weighs() -> None:
    class Counting(Scorecard):
        n_weighed = 0

        def weigh(self, index: torch.Tensor, rows: Any) -> Any:
            self.n_weighed += len(index)
            return rows

    card = Counting(N, max_rest=0)
    loop("softmax", budget=1.0, forward_share=None, scorecard=card).run()
    assert card.n_weighed == N


def test_settling_without_delta_says_so() -> None:
    record = loop("softmax", epochs=1, settle=0.2).run()
    assert record.notes == ["settle=0.2 changes nothing: softmax has no δ"]


def test_a_long_sample_costs_more() -> None:
    """Two samples in three rest, the short ones: what trains is as long as two thirds of the data."""
    budget = Budget(2.0, n_samples=3, forward_share=0.4, lengths=torch.tensor([10, 10, 40]))
    assert budget.sample_cost(torch.tensor([2])) == 2.0
    assert budget.sample_cost(torch.tensor([0, 1, 2])) == 1.0
    data = digits_like()
    lengths = [1 + index % 5 for index in range(N)]
    short = torch.tensor(lengths) < 5

    class LongSamples(Scorecard):
        def states(self) -> Tensor:
            return torch.where(short, REST, TRAIN)

    settings = {"budget": 1.0, "forward_share": 0.4, "batch_size": 8, "lengths": lengths, "progress": False}
    card = LongSamples(N, max_rest=1)
    record = Loop(net(), "softmax", data, speed="off", scorecard=card, **settings).run()
    assert record.totals["n_forward"] == pytest.approx(N * 3 / 5, abs=8)  # their mean length is 5, of all 3
