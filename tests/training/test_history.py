"""The history of margins: every look and score against slow twins, resumed runs and processes."""

from __future__ import annotations

import math
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from sparring import ASSoftmaxLoss, ConstantDelta, LinearLoss, MultilabelASSoftmaxLoss, SoftmaxLoss
from sparring.backward.skipper import ForwardResult
from sparring.training import MarginHistory
from sparring.training.history import ACTIVE, CONCEDED, SCORES, UNSEEN, WON
from sparring.training.loop import Loop
from tests.training import test_loop_head
from tests.training.test_resume import same
from tests.training.toy import N, digits_like, gap, net, run

EPOCHS, SAMPLES, CLASSES = 3, 24, 4
DELTA, KAPPA = 0.1, 0.15
NAMES = ("margin", "log_p", "rival", "place", "state")


# ------------------------------------------------------------ looks


def slow_row(logits: list[float], positive: list[int], negative: list[int]) -> tuple[Any, ...] | None:
    """Margin, log p, rival, label and state of one row; None without a margin."""
    if not positive or not negative:
        return None
    weakest = min(positive, key=lambda i: logits[i])
    rival = max(negative, key=lambda i: logits[i])
    log_total = math.log(sum(math.exp(logits[i]) for i in (*positive, *negative)))
    lead = math.exp(logits[weakest] - log_total) - math.exp(logits[rival] - log_total)
    state = CONCEDED if -lead > KAPPA else WON if lead > DELTA else ACTIVE
    return logits[weakest] - logits[rival], logits[weakest] - log_total, rival, weakest, state


def slow_look(kind: str, logits: Any, target: Any) -> tuple[Any, ...]:
    """Margin, log p, rival, place and state of a sample."""
    if kind == "multi-label":
        row = slow_row(logits, *([i for i, y in enumerate(target) if y == label] for label in (1, 0)))
        return (math.nan, math.nan, -1, -1, UNSEEN) if row is None else row
    rows = []
    for place, (o, y) in enumerate(zip(logits, target, strict=True)):
        others = [i for i in range(CLASSES) if i != y]
        if y != -100 and (row := slow_row(o, [y], others)) is not None:
            rows.append((*row[:3], place, row[4]))
    if not rows:
        return math.nan, math.nan, -1, -1, UNSEEN
    states = {row[4] for row in rows}
    state = next(state for state in (CONCEDED, ACTIVE, WON) if state in states)
    return (*min(rows)[:4], state)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(5, 8)
        self.head = nn.Linear(8, CLASSES)

    def forward(self, x: Tensor, features: bool) -> Tensor:
        hidden = self.body(x).tanh()
        return hidden if features else self.head(hidden)


class Task:
    """A data set of a kind, with the index of each sample, and a forward that keeps all logits."""

    def __init__(self, kind: str) -> None:
        torch.manual_seed(0)
        self.kind = kind
        tokens = kind in ("token", "head")
        x = torch.randn(SAMPLES, 3, 5) if tokens else torch.randn(SAMPLES, 5)
        target = torch.randint(CLASSES, x.shape[:-1])
        if tokens:
            target[torch.rand(target.shape) < 0.3] = -100
            target[7] = -100
        if kind == "multi-label":
            target = (torch.rand(SAMPLES, CLASSES) < 0.4).long()
            target[3], target[4], target[5, 1] = 0, 1, -100
        self.data = TensorDataset(x, torch.arange(SAMPLES), target)
        self.model = Net()
        concede = ConstantDelta(KAPPA)  # a schedule of the user's, so that there is no warm-up
        loss = (MultilabelASSoftmaxLoss if kind == "multi-label" else ASSoftmaxLoss)(DELTA, concede=concede)
        self.loss: Any = LinearLoss.on(self.model.head, loss, chunk_rows=7) if kind == "head" else loss
        self.looks: dict[int, list[tuple[Any, ...]]] = {}

    def forward(self, model: nn.Module, batch: Any) -> tuple[Tensor, Tensor]:
        x, index, target = batch
        output = model(x, features=self.kind == "head")
        logits = self.loss.logits(output.detach()) if self.kind == "head" else output
        rows = target if target.dim() == 2 else target[:, None]
        for i, o, y in zip(index.tolist(), logits.reshape(len(x), -1, CLASSES).tolist(), rows, strict=True):
            sample = o[0] if self.kind == "multi-label" else o
            self.looks.setdefault(i, []).append(slow_look(self.kind, sample, y.tolist()))
        return output.movedim(-1, 1) if self.kind == "token" else output, target

    def run(self, **settings: Any) -> MarginHistory:
        settings = {"batch_size": 7, "epochs": EPOCHS, "lr": 0.1, "history": True, **settings}
        loop = Loop(self.model, self.loss, self.data, forward=self.forward, **settings)
        loop.run()
        return loop.margins  # type: ignore[return-value]


@pytest.mark.parametrize("kind", ["class", "token", "multi-label", "head"])
def test_one_look_per_sample_and_epoch(kind: str) -> None:
    """All five tables of a real run equal plain Python on the logits of its forward passes."""
    task = Task(kind)
    history = task.run()
    assert sorted(task.looks) == list(range(SAMPLES))
    assert history.n_epochs == EPOCHS
    for index, looks in task.looks.items():
        assert len(looks) == EPOCHS
        for epoch, look in enumerate(looks):
            recorded = [getattr(history, name)[epoch, index].item() for name in NAMES]
            assert recorded[:2] == pytest.approx(look[:2], rel=2e-3, abs=2e-3, nan_ok=True)
            assert recorded[2:] == list(look[2:])
    states = {ACTIVE, WON, CONCEDED} if kind == "class" else {UNSEEN, ACTIVE, WON, CONCEDED}
    assert set(history.state.flatten().tolist()) == states


def test_samples_that_rest_have_no_look() -> None:
    """With resting samples the record's forward passes and the history agree on who was looked at."""
    settings: dict[str, Any] = {"batch_size": 8, "epochs": 6, "lr": 0.02, "scorecard": True}
    loop = Loop(net(), "as-softmax", digits_like(), history=True, **settings)
    record = loop.run()
    history = loop.engine.history
    n_looks = (history.state != UNSEEN).sum(1).tolist()
    assert n_looks == [entry["train"] for entry in record.epochs]
    assert min(n_looks) < N
    assert (history.proposed() >= 0).all(), "a sample that rests most of the time has a rival, too"


def noted(logits: Any, target: Any, n_samples: int = 1) -> MarginHistory:
    history, logits, target = MarginHistory(n_samples), torch.tensor(logits), torch.tensor(target)
    rows = SoftmaxLoss().rows(logits, target)
    history.note(0, torch.arange(n_samples), ForwardResult(logits, target, rows, n_samples))
    return history


def test_infinite_margins_are_looks() -> None:
    """A target at -inf is the worst of all; an ignored token does not hide a sample without opponents."""
    history = noted([[-torch.inf, 0.0], [0.0, 1.0], [0.0, 1e6]], [0, 0, 0], 3)
    for score in ("margin", "aum", "loss"):
        assert history.scores(score).isfinite().all()
        assert history.rank(score).tolist()[-1] == 1
    history = noted([[0.0, -torch.inf], [0.0, -torch.inf]], [-100, 0])
    assert history.state.item() == ACTIVE
    assert history.scores("margin").item() == -1


def test_score_stays_in_its_range() -> None:
    """Margin and log p are rounded to half precision apart; the rival's probability must not exceed 1."""
    logits = [[0.0, x, x] for x in torch.linspace(20, 4000, 400).tolist()]
    assert noted(logits, [0] * 400, 400).scores("margin").max() <= 1


# ------------------------------------------------------------ scores


def patchy_history() -> MarginHistory:
    """Six epochs with random looks at half of the samples; none at the first."""
    history = MarginHistory(20)
    loss = SoftmaxLoss(concede=0.3)
    for epoch in range(6):
        indices = (torch.rand(20) < 0.5).nonzero().squeeze(1)
        indices = indices[indices > 0]
        logits, target = 2 * torch.randn(len(indices), 5), torch.zeros(len(indices), dtype=torch.long)
        history.note(epoch, indices, ForwardResult(logits, target, loss.rows(logits, target), len(indices)))
    return history


patchy = pytest.fixture(patchy_history)


def slow_score(score: str, margins: list[float], log_ps: list[float], states: list[int]) -> float:
    if score == "aum":
        return -sum(margins) / len(margins)
    if score == "loss":
        return -sum(log_ps) / len(log_ps)
    if score == "conceded":
        return states.count(CONCEDED) / len(states)
    if score == "margin":
        leads = [math.exp(log_p) - math.exp(log_p - m) for m, log_p in zip(margins, log_ps, strict=True)]
        return -sum(leads) / len(leads)
    right = [margin > 0 for margin in margins]
    if not any(right):
        return len(right)
    return sum(before and not after for before, after in pairwise(right))


@pytest.mark.parametrize("score", SCORES)
def test_scores(patchy: MarginHistory, score: str) -> None:
    scores = patchy.scores(score)
    for i in range(20):
        seen = (patchy.state[:, i] != UNSEEN).nonzero().squeeze(1)
        if not len(seen):
            assert scores[i].isnan()
            continue
        values = [getattr(patchy, name)[seen, i].tolist() for name in ("margin", "log_p", "state")]
        assert scores[i].item() == pytest.approx(slow_score(score, *values), abs=2e-3)
    order = sorted(
        range(20), key=lambda i: -math.inf if scores[i].isnan() else scores[i].item(), reverse=True
    )
    assert patchy.rank(score).tolist() == order
    with pytest.raises(ValueError, match=r"score must be one of loss, margin.*got 'luck'"):
        patchy.scores("luck")


def test_proposed_class_and_last_doubt(patchy: MarginHistory) -> None:
    """Epochs without a look count nowhere; of equally frequent rivals the smallest class is proposed."""
    proposed, (place, rival) = patchy.proposed(), patchy.last_doubt()
    for i in range(20):
        rivals = [r for r in patchy.rival[:, i].tolist() if r >= 0]
        counts = Counter(rivals)
        expected = min(counts, key=lambda r: (-counts[r], r)) if rivals else -1
        assert proposed[i].item() == expected
        assert (place[i].item(), rival[i].item()) == ((0, rivals[-1]) if rivals else (-1, -1))
    empty = MarginHistory(2)
    assert empty.proposed().tolist() == empty.last_doubt()[0].tolist() == [-1, -1]


# ------------------------------------------------------------ runs


@pytest.mark.parametrize("settings", [{}, {"speed": "fast"}, {"skip": "two-pass"}])
def test_it_does_not_change_training(settings: dict[str, Any]) -> None:
    without, _ = run(**settings)
    assert gap(without, run(**settings, history=True)[0]) == 0


def test_it_does_not_change_training_of_a_head() -> None:
    _, without = test_loop_head.trained(True, epochs=3)
    assert gap(without, test_loop_head.trained(True, epochs=3, history=True)[1]) == 0


def test_resumed_in_the_middle_of_an_epoch(tmp_path: Path) -> None:
    """The weights are equal to the bit, and so is every look before and after the stop."""

    def loop(folder: Path) -> Loop:
        loss = SoftmaxLoss(concede=0.5)
        return Loop(net(), loss, digits_like(), batch_size=8, epochs=3, lr=0.02, history=True, folder=folder)

    whole, cut, again = loop(tmp_path / "whole"), loop(tmp_path / "cut"), loop(tmp_path / "cut")
    whole.run()
    cut.log_step = lambda entry: cut.stop() if entry["step"] == 17 else None
    with pytest.raises(KeyboardInterrupt):
        cut.run()
    again.run()
    assert gap(whole.model.state_dict(), again.model.state_dict()) == 0
    assert (whole.engine.history.state == CONCEDED).any()
    assert same(whole.engine.history.state_dict(), again.engine.history.state_dict())


def test_another_run_begins_with_an_empty_history() -> None:
    history = MarginHistory(N)
    run(epochs=3, history=history)
    run(epochs=1, history=history)
    assert history.n_epochs == 1
    with pytest.raises(ValueError, match="the history is for 95 samples, the data set has 96"):
        run(history=MarginHistory(95))


def test_processes_exchange_their_looks(patchy: MarginHistory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each process ends with the looks of both; at a sample that both saw, the lowest rank counts."""
    first, second = MarginHistory(20), MarginHistory(20)
    first.load_state_dict(patchy.state_dict())
    second.load_state_dict({name: table.flip(0) for name, table in patchy.state_dict().items()})
    epoch = 2
    parts = [{name: getattr(h, name)[epoch].clone() for name in NAMES} for h in (first, second)]
    gather = {"all_gather_object": lambda gathered, _: gathered.__setitem__(slice(None), parts)}
    for name, function in {"is_initialized": lambda: True, "get_world_size": lambda: 2, **gather}.items():
        monkeypatch.setattr(dist, name, function)
    before = second.state_dict()
    for history in (first, second):
        history.sync(epoch)
    seen = parts[0]["state"] != UNSEEN
    assert (seen & (parts[1]["state"] != UNSEEN)).any(), "some were seen by both"
    assert (seen != (parts[1]["state"] != UNSEEN)).any(), "some by one"
    for name in NAMES:
        expected = torch.where(seen, parts[0][name], parts[1][name])
        assert same(getattr(first, name)[epoch], expected)
        assert same(getattr(second, name)[epoch], expected)
        assert same(getattr(second, name)[3:], before[name][3:]), "other epochs stay"


def test_a_run_that_stops_early_exchanges_its_last_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Patience ends this run in the third of its four epochs, after ten batches of twelve."""
    synced: list[int] = []
    monkeypatch.setattr(MarginHistory, "sync", lambda _, epoch: synced.append(epoch))
    run(history=True, evaluate=lambda _: 0.0, eval_every=17, patience=1)
    assert synced == [0, 1, 2], "the evaluations at 17 and 34 of 48 batches are equally good"
