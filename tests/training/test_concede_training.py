"""Conceding in training: the warm-up, exact skipping, resting samples, counts and resumed runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from sparring import (
    AdaptiveDelta,
    ASSoftmaxLoss,
    ConstantDelta,
    LinearLoss,
    SoftmaxLoss,
    WarmupConcede,
    WarmupDelta,
)
from sparring.training import AdaptiveAccumulation, Scorecard
from sparring.training.batches import Batch, forward
from sparring.training.engine import Engine
from sparring.training.history import CONCEDED, UNSEEN, WON
from sparring.training.loop import Loop
from sparring.training.presets import RunParts
from sparring.training.record import Record
from sparring.training.resume import ResumeError, ResumeWarning
from tests.training import test_identity, test_loop_head
from tests.training.toy import N, digits_like, gap, net, run


def trained(loss: Any, **settings: Any) -> tuple[Loop, list[dict[str, Any]]]:
    """A loop that has run, with its history, and the entries of its 72 steps."""
    steps: list[dict[str, Any]] = []
    settings = {"batch_size": 8, "epochs": 6, "lr": 0.02, "history": True, **settings}
    loop = Loop(net(), loss, digits_like(), log_step=steps.append, **settings)
    loop.run()
    return loop, steps


# ------------------------------------------------------------ the warm-up


def test_nothing_is_conceded_in_the_first_fifth() -> None:
    """Of 72 steps these are 15, in which the same κ without a warm-up does concede."""
    _, steps = trained(SoftmaxLoss(concede=0.3))
    shares = [entry["conceded_share"] for entry in steps]
    assert len(shares) == 72
    assert not any(shares[:15])
    assert any(shares[15:30])
    own = SoftmaxLoss(concede=ConstantDelta(0.3))
    other, steps = trained(own)
    assert other.objective is own, "a schedule of the user's stays"
    assert any(entry["conceded_share"] for entry in steps[:15])


def test_the_users_loss_is_left_alone() -> None:
    """The run has a copy with its own κ. The user's schedule of δ is the one that moves, as without κ."""
    delta = WarmupDelta(0.3, total_steps=72)
    loss = ASSoftmaxLoss(delta, weight=torch.ones(3), concede=0.5)
    loop, _ = trained(loss)
    assert loss.concede == 0.5
    assert "concede" not in loss._modules
    assert isinstance(loop.objective.concede, WarmupConcede)
    assert loop.objective.concede.n_steps == delta.n_steps == 72
    assert trained(loss)[0].objective.concede.n_steps == 72, "another run begins with a new warm-up"


@pytest.mark.parametrize("concede", [None, 1.0])
def test_a_loss_that_concedes_nothing_is_used_as_it_is(concede: float | None) -> None:
    loss = SoftmaxLoss(concede=concede)
    assert Loop(net(), loss, digits_like()).objective is loss


def test_a_head_keeps_its_type_and_its_layer() -> None:
    class Head(LinearLoss):
        pass

    model = test_loop_head.Net()
    head = Head(16, 6, loss=SoftmaxLoss(concede=0.5), chunk_rows=5)
    head.linear = model.head
    objective = Loop(model, head, test_loop_head.DATA).objective
    assert isinstance(objective, Head)
    assert isinstance(objective.concede, WarmupConcede)
    assert objective.linear is model.head
    assert objective.chunk_rows == 5
    assert head.concede == 0.5


def test_one_concedes_nothing() -> None:
    """To the bit, with everything that training does."""
    settings = {"speed": "fast", "accumulation": AdaptiveAccumulation()}
    without, record = run(loss=ASSoftmaxLoss(0.3), **settings)
    weights, other = run(loss=ASSoftmaxLoss(0.3, concede=1.0), **settings)
    assert gap(without, weights) == 0
    assert [entry["conceded_share"] for entry in other.epochs] == [0.0] * 4
    assert record.totals["n_won"] == other.totals["n_won"]


# ------------------------------------------------------------ backward passes and rest


@pytest.mark.parametrize("skip", ["rows", "micro", "two-pass"])
def test_skipping_is_exact(skip: str) -> None:
    """Batches of two, so that some hold conceded and won samples alone."""
    loss, settings = ASSoftmaxLoss(0.3, concede=0.3), {"batch_size": 2, "lr": 0.005}
    full, record = run(net(0.0), loss, skip="off", **settings)
    skipped, other = run(net(0.0), loss, skip=skip, **settings)
    assert gap(full, skipped) < 1e-4
    assert record.totals["n_conceded"] == other.totals["n_conceded"] > 10
    assert other.totals["n_backward"] < record.totals["n_backward"]


@pytest.mark.parametrize("check", [False, True])
def test_conceded_samples_never_rest(check: bool) -> None:
    """They are looked at in the next epoch, so one that was conceded too early comes back."""
    loss = ASSoftmaxLoss(0.3, concede=ConstantDelta(0.05))  # concedes much from the first step on
    card = Scorecard(N, check=check, max_rest=2, narrow=1)
    loop, _ = trained(loss, scorecard=card, epochs=10)
    state = loop.engine.history.state
    conceded = state == CONCEDED
    assert conceded[:-1].sum() > 20
    assert (state[1:][conceded[:-1]] != UNSEEN).all()
    assert (state[1:][state[:-1] == WON] == UNSEEN).any(), "won samples do rest"
    came_back = conceded[:3].any(0) & (state[3:] == WON).any(0)
    assert came_back.any()


def test_a_token_that_is_conceded_keeps_its_sample_awake() -> None:
    """One token is won and one conceded: the sample needs no backward pass, and does not rest."""
    logits = torch.tensor([[[9.0, 0.0], [0.0, 9.0]]]).movedim(-1, 1)
    card = Scorecard(1, narrow=1)
    loss = ASSoftmaxLoss(0.3, concede=0.5)
    parts = RunParts(loss, "rows", card, None)
    model = nn.BatchNorm1d(2).eval()
    engine = Engine(model, parts, forward, device=torch.device("cpu"))
    engine.train(Batch((logits, torch.tensor([[0, 0]])), torch.arange(1)))
    assert engine.totals() == {"n_forward": 1, "n_backward": 0, "n_rows": 2, "n_won": 1, "n_conceded": 1}
    assert card.due.item() == 1


# ------------------------------------------------------------ counts


def test_speed_and_adaptive_delta_count_won_rows_alone() -> None:
    """Of eight rows four are won, three conceded and one is active."""
    model = nn.Linear(2, 2, bias=False)
    model.weight.data = torch.eye(2)
    x = torch.tensor([[9.0, 0.0]] * 4 + [[0.0, 9.0]] * 3 + [[0.0, 0.0]])
    loss = ASSoftmaxLoss(AdaptiveDelta(0.3, won=0.2, rate=0.1), concede=0.5)
    accumulation = AdaptiveAccumulation(0.5)
    engine = Engine(model, RunParts(loss, "rows", None, accumulation), forward, device=torch.device("cpu"))
    engine.train(Batch((x, torch.zeros(8, dtype=torch.long)), torch.arange(8)))
    assert (accumulation.n_all, accumulation.n_masked) == (8, 4)
    window = engine.close_window()
    assert (window.won_share, window.conceded_share) == (0.5, 0.375)
    assert window.loss == pytest.approx(torch.tensor(2.0).log().item() / 8)
    assert accumulation.steps == 1, "round(0.5 · 8 / 4); with the conceded rows it would be 2"
    engine.follow(1)
    assert engine.delta == pytest.approx(0.3 + 0.1 * (0.5 - 0.2))


def test_the_record_agrees_with_the_history() -> None:
    loop, steps = trained(SoftmaxLoss(concede=0.5))
    n_conceded = (loop.engine.history.state == CONCEDED).sum(1).tolist()
    assert [entry["conceded_share"] for entry in loop.record.epochs] == [n / N for n in n_conceded]
    assert loop.record.epochs[-1]["conceded_share"] > 0
    assert loop.record.totals["n_conceded"] == sum(n_conceded)
    assert sum(8 * entry["conceded_share"] for entry in steps) == pytest.approx(sum(n_conceded))


def test_a_loss_without_kappa_logs_none() -> None:
    _, steps = trained(SoftmaxLoss(), epochs=1)
    assert "conceded_share" not in steps[0]


def test_a_record_of_an_older_checkpoint() -> None:
    state = Record().state_dict()
    for table in ("totals", "current", "window"):
        del state[table]["n_conceded"]
    record = Record()
    record.load_state_dict(state)
    record.add(n_conceded=2)
    assert record.totals["n_conceded"] == 2


def head_or_logits(fused: bool, **settings: Any) -> tuple[Loop, dict[str, Tensor]]:
    torch.manual_seed(0)
    model, loss = test_loop_head.Net(), ASSoftmaxLoss(0.3, concede=0.1)
    objective = LinearLoss.on(model.head, loss) if fused else loss
    compute = test_loop_head.of_features if fused else test_loop_head.of_logits
    settings = {"batch_size": 8, "epochs": 8, "lr": 0.03, "history": True, **settings}
    loop = Loop(model, objective, test_loop_head.DATA, forward=compute, **settings)
    loop.run()
    return loop, model.state_dict()


@pytest.mark.parametrize("settings", [{}, {"speed": "fast"}])
def test_a_head_trains_the_same_network(settings: dict[str, Any]) -> None:
    (fused, weights), (plain, expected) = head_or_logits(True, **settings), head_or_logits(False, **settings)
    assert fused.record.totals["n_conceded"] == plain.record.totals["n_conceded"] > 0
    assert torch.equal(fused.engine.history.state, plain.engine.history.state)
    for name, weight in expected.items():
        torch.testing.assert_close(weights[name], weight, atol=1e-5, rtol=1e-4)


# ------------------------------------------------------------ resumed runs


@pytest.mark.parametrize("n_steps", [2, 7])
def test_resumed_in_and_after_the_warm_up(tmp_path: Path, n_steps: int) -> None:
    """Of 24 steps five are the warm-up. The weights are equal to the bit."""
    loops = [test_identity.loop(tmp_path / name, loss=SoftmaxLoss(concede=0.2)) for name in "abb"]
    whole, cut, again = loops
    record = whole.run()
    assert record.totals["n_conceded"] > 0
    cut.log_step = lambda entry: cut.stop() if entry["step"] >= n_steps else None
    with pytest.raises(KeyboardInterrupt):
        cut.run()
    assert cut.objective.concede.value == (1.0 if n_steps == 2 else 0.2)
    again.run()
    assert gap(whole.model.state_dict(), again.model.state_dict()) == 0
    assert again.record.totals["n_conceded"] == record.totals["n_conceded"]


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        (0.5, 0.2, r"loss.concede.after.delta 0.5 \(now 0.2\)"),
        (None, 0.2, r"loss.concede None \(now \{'type': 'WarmupConcede'"),
        (0.5, None, r"loss.concede \{'type': 'WarmupConcede'.*\(now None\)"),
    ],
)
def test_another_kappa_is_named(tmp_path: Path, before: Any, after: Any, message: str) -> None:
    """It is refused; with ``resume="anyway"`` the new κ is as far as the run is."""
    test_identity.stopped(tmp_path, loss=SoftmaxLoss(concede=before))
    with pytest.raises(ResumeError, match=message):
        test_identity.loop(tmp_path, loss=SoftmaxLoss(concede=after)).run()
    loop = test_identity.loop(tmp_path, loss=SoftmaxLoss(concede=after), resume="anyway")
    with pytest.warns(ResumeWarning, match=message):
        loop.run()
    if after is None:
        assert loop.objective.concede is None
    else:
        assert (loop.objective.concede.n_steps, loop.objective.concede.value) == (24, 0.2)
