"""The loop by itself: one process."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from torch import Tensor, nn
from torch.utils.data import Dataset, TensorDataset

from sparring import AdaptiveDelta, ASSoftmaxLoss, MultilabelASSoftmaxLoss, SoftmaxLoss, WarmupDelta, margins
from sparring.training import AdaptiveAccumulation, Scorecard
from sparring.training.loop import Loop, train
from sparring.training.schedules import SCHEDULES
from tests.backward.models import make

N = 96


def digits_like(n: int = N) -> TensorDataset:
    """Three classes, most samples easy, some hopeless."""
    generator = torch.Generator().manual_seed(0)
    y = torch.randint(0, 3, (n,), generator=generator)
    x = torch.randn(n, 6, generator=generator) + 2.5 * nn.functional.one_hot(y, 6)
    y[::11] = torch.randint(0, 3, y[::11].shape, generator=generator)
    return TensorDataset(x, y)


def net(dropout: float = 0.1) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(6, 24), nn.GELU(), nn.Dropout(dropout), nn.Linear(24, 24), nn.Tanh(), nn.Linear(24, 3)
    )


def run(model: nn.Module | None = None, loss: Any = None, **settings: Any) -> tuple[dict[str, Tensor], Any]:
    model = net() if model is None else model
    record = train(
        model,
        loss or ASSoftmaxLoss(0.3),
        digits_like(),
        **{"batch_size": 8, "epochs": 4, "lr": 0.02, **settings},
    )
    return model.state_dict(), record


def gap(a: dict[str, Tensor], b: dict[str, Tensor]) -> float:
    return max(float((a[name] - b[name]).abs().max()) for name in a)


def test_is_the_plain_loop_where_nothing_is_on() -> None:
    """Against twenty lines of torch, in the same order of batches."""
    got, record = run(loss=SoftmaxLoss(), skip="off")
    model, data = net(), digits_like()
    loop = Loop(model, SoftmaxLoss(), data, batch_size=8, epochs=4)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    schedule = loop.make_schedule(optimizer, loop.total_steps)
    torch.manual_seed(0)
    for _ in range(4):
        for batch in loop.sampler:
            x, y = data[batch]
            nn.functional.cross_entropy(model(x), y).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
    assert gap(got, model.state_dict()) < 1e-6
    assert schedule.get_last_lr() == [0.0] == [record.epochs[-1]["lr"]]
    assert record.totals["n_forward"] == record.totals["n_backward"] == 4 * N


@pytest.mark.parametrize("skip", ["micro", "rows", "auto"])
@pytest.mark.parametrize("accumulation", [1, 3, "adaptive"])
def test_skipping_changes_no_weight(skip: str, accumulation: Any) -> None:
    def windows() -> Any:
        return AdaptiveAccumulation(0.5, 4) if accumulation == "adaptive" else accumulation

    dropout = 0.0 if skip == "auto" else 0.1  # it may choose two passes, which draw other numbers
    plain, full = run(net(dropout), skip="off", accumulation=windows(), epochs=6)
    skipped, record = run(net(dropout), skip=skip, accumulation=windows(), epochs=6)
    assert gap(plain, skipped) < 1e-4
    assert record.totals["n_updates"] == full.totals["n_updates"]
    if skip == "rows":
        assert record.totals["n_backward"] < 0.5 * full.totals["n_backward"]
    assert [entry["n_won"] for entry in record.epochs] == [entry["n_won"] for entry in full.epochs]


def test_two_pass_without_dropout_is_exact_too() -> None:
    plain, full = run(net(0.0), skip="off", epochs=6)
    skipped, record = run(net(0.0), skip="two-pass", epochs=6)
    assert gap(plain, skipped) < 1e-4
    assert N * 6 < record.totals["n_forward"] < 2 * N * 6
    assert record.totals["n_backward"] < 0.5 * full.totals["n_backward"]


def test_two_pass_refuses_batch_norm() -> None:
    with pytest.raises(ValueError, match='in BatchNorm; use skip="rows"'):
        run(nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)), skip="two-pass")


def test_a_model_is_given_back_as_it_was() -> None:
    model = net()
    run(model)
    assert not model._forward_hooks
    assert "forward" not in model.__dict__


def test_adaptive_accumulation_steps_less_often_and_ends_on_schedule() -> None:
    _, plain = run(epochs=8)
    _, record = run(epochs=8, accumulation=AdaptiveAccumulation(0.5, 4))
    steps = [entry["accumulation"] for entry in record.epochs]
    assert steps == sorted(steps)
    assert steps[-1] > 1
    assert record.totals["n_updates"] < plain.totals["n_updates"] == 8 * N / 8
    assert record.epochs[-1]["lr"] == 0.0


def test_delta_schedules_end_where_they_should() -> None:
    loss = ASSoftmaxLoss(WarmupDelta(0.3, total_steps=4 * N // 8, share=0.5))
    run(loss=loss, accumulation=AdaptiveAccumulation(), scorecard=Scorecard(N, earn=1))
    assert loss.delta.value == 0.3
    assert loss.delta.n_steps == 4 * N // 8
    adaptive = ASSoftmaxLoss(AdaptiveDelta(0.3))
    run(loss=adaptive, accumulation=2)
    assert adaptive.delta.n_steps == 4 * N // 8


def test_rest_saves_forwards_and_the_schedule_still_ends() -> None:
    card = Scorecard(N, max_rest=2, earn=1, spare=0.1)
    _, record = run(scorecard=card, epochs=10)
    assert record.totals["n_forward"] < 0.8 * 10 * N
    assert sum(entry["rest"] for entry in record.epochs) == 10 * N - record.totals["n_forward"]
    assert record.epochs[-1]["lr"] == 0.0
    assert int((9 - card.seen).max()) < card.bound


class Frozen(nn.Module):
    """Its logits are the input: margins are what the data says."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight


class Spy(Dataset[Any]):
    def __init__(self, data: Dataset[Any]) -> None:
        self.data, self.loaded = data, []

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, i: int) -> Any:
        self.loaded.append(i)
        return self.data[i]


def test_checks_give_gradient_to_whom_plain_training_does() -> None:
    """With checks on and rest off, on a model that does not change: the same samples receive gradient in every epoch."""
    logits = torch.randn(40, 3, generator=torch.Generator().manual_seed(1)) * 3
    data = TensorDataset(logits, torch.randint(0, 3, (40,), generator=torch.Generator().manual_seed(2)))
    rows = ASSoftmaxLoss(0.3).rows(*data.tensors)
    active = {i for i in range(40) if rows.active[i]}
    fought: list[tuple[int, set[int]]] = []
    loop = Loop(
        Frozen(),
        ASSoftmaxLoss(0.3),
        data,
        batch_size=4,
        epochs=3,
        lr=0.0,
        scorecard=Scorecard(40, check=True, max_rest=0),
    )
    original, batches = loop.bouts.fight, iter(range(10**6))

    def spy(parts: Any) -> None:
        original(parts)
        lost = [part[1][loop.bouts.look(part).lost()] for part in parts]
        fought.append((loop.sampler.epoch, set(torch.cat(lost).tolist())))
        next(batches)

    loop.bouts.fight = spy
    loop.card.eased[:] = (
        1  # everybody is said to be won with ease, wrongly for some: they are found out by checks
    )
    record = loop.run()
    for epoch in range(3):
        assert set().union(*(lost for e, lost in fought if e == epoch)) == active
    assert record.epochs[0]["check"] == 40
    easy = rows.won & (margins(*data.tensors) >= 0.4)
    assert 0 < easy.sum() < 40 - len(active)
    assert record.epochs[1]["check"] == easy.sum()  # narrow winners fight, and need no backward
    assert record.totals["n_backward"] == 3 * len(active)
    assert not loop.bouts.carried


def test_the_lost_fight_in_the_very_next_batch() -> None:
    data = TensorDataset(
        torch.tensor([[0.0, 9.0]] * 4 + [[9.0, 0.0]] * 12), torch.zeros(16, dtype=torch.long)
    )  # the first four lose
    loop = Loop(
        Frozen(),
        ASSoftmaxLoss(0.3),
        data,
        batch_size=2,
        epochs=1,
        lr=0.0,
        scorecard=Scorecard(16, check=True, max_rest=0),
    )
    loop.card.eased[:12] = 1
    events: list[tuple[str, set[int]]] = []
    check, fight = loop.bouts.check, loop.bouts.fight

    def spy_check(part: Any) -> None:
        check(part)
        events.append(("check", set(part[1].tolist())))

    def spy_fight(parts: Any) -> None:
        fight(parts)
        events.append(("fight", {i for _, index in parts for i in index.tolist()}))

    loop.bouts.check, loop.bouts.fight = spy_check, spy_fight
    loop.run()
    assert {kind for kind, _ in events} == {"check", "fight"}
    for i in range(4):
        found = next(j for j, (kind, who) in enumerate(events) if kind == "check" and i in who)
        following = next((who for kind, who in events[found:] if kind == "fight"))
        assert i in following


def test_names_and_defaults_will_do() -> None:
    by_name, record = run(loss="as-softmax", scorecard=True, epochs=6)
    by_hand, _ = run(loss=ASSoftmaxLoss(), scorecard=Scorecard(N), epochs=6)
    assert gap(by_name, by_hand) == 0
    assert record.totals["n_forward"] < 6 * N


def test_sparse_embeddings_train() -> None:
    ids = torch.randint(0, 9, (40, 3))
    data = TensorDataset(ids, (ids[:, 0] > 4).long())
    for skip in ("off", "micro", "rows", "two-pass"):
        torch.manual_seed(0)
        model = nn.Sequential(
            nn.Embedding(9, 4, sparse=True), nn.Flatten(), nn.Linear(12, 2).requires_grad_(False)
        )
        optimizer = torch.optim.SparseAdam([model[0].weight], lr=0.3)
        record = train(
            model,
            "as-softmax",
            data,
            batch_size=4,
            epochs=8,
            optimizer=optimizer,
            skip=skip,
            max_grad_norm=None,
        )
        assert record.epochs[-1]["won_share"] > 0.9


def test_all_may_rest_for_an_epoch() -> None:
    data = TensorDataset(torch.tensor([[9.0, 0.0]] * 8), torch.zeros(8, dtype=torch.long))
    spy = Spy(data)
    loop = Loop(
        Frozen(), ASSoftmaxLoss(0.3), spy, batch_size=4, epochs=4, scorecard=Scorecard(8, max_rest=1, earn=1)
    )
    record = loop.run()
    assert [entry["rest"] for entry in record.epochs] == [0, 8, 0, 8]
    assert len(spy.loaded) == 16
    assert record.epochs[-1]["lr"] == 0.0
    assert loop.model.weight.grad is None  # zeroed after steps; and they were steps with zeros, not None
    assert record.totals["n_updates"] == 4


def test_a_won_window_still_decays_weights() -> None:
    """Optimizers see zeros, not None: AdamW decays and coasts as with a full backward."""
    data = TensorDataset(torch.tensor([[9.0, 0.0]] * 8), torch.zeros(8, dtype=torch.long))
    weights = []
    for skip in ("off", "micro", "rows", "two-pass"):
        model = Frozen()
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.5)
        train(model, ASSoftmaxLoss(0.3), data, batch_size=4, epochs=1, optimizer=optimizer, skip=skip)
        weights.append(model.weight.item())
    assert weights[0] < 1
    assert len(set(weights)) == 1


def test_tokens_and_multilabel_and_hugging_face() -> None:
    case = make("tokens")
    labels = torch.randint(0, 7, (20, 9))
    labels[:, 7:] = -100
    samples = [
        {**{name: value[i] for name, value in case.batch.items()}, "labels": labels[i]} for i in range(20)
    ]
    weights = []
    for skip in ("off", "rows"):
        model = copy.deepcopy(case.model)
        card = Scorecard(20)
        record = train(
            model, ASSoftmaxLoss(0.0), samples, batch_size=5, epochs=3, lr=1e-3, skip=skip, scorecard=card
        )
        weights.append(model.state_dict())
        assert record.totals["n_rows"] == 3 * 20 * 7
        assert not card.margin.isnan().any()
    assert gap(*weights) < 1e-5

    x = torch.randn(24, 6)
    data = TensorDataset(x, (x[:, :3] > 0).float())
    record = train(
        net(), MultilabelASSoftmaxLoss(0.1), data, batch_size=6, epochs=8, lr=0.02, scorecard=Scorecard(24)
    )
    assert record.epochs[-1]["won_share"] > record.epochs[0]["won_share"]


@pytest.mark.parametrize("skip", ["off", "rows", "two-pass"])
def test_tokens_flattened_by_forward(skip: str) -> None:
    """n·T rows for n samples; two passes cut samples, not tokens."""
    x = torch.randn(12, 4, 6, generator=torch.Generator().manual_seed(0))
    data = TensorDataset(x, x[..., :3].argmax(-1))

    def forward(model: nn.Module, batch: Any) -> tuple[Tensor, Tensor]:
        return model(batch[0]).reshape(-1, 3), batch[1].reshape(-1)

    card = Scorecard(12)
    plain, _ = _trained(net(0.0), data, forward, "off")
    got, record = _trained(net(0.0), data, forward, skip, scorecard=card)
    assert record.totals["n_rows"] == 4 * 12 * 12
    assert 12 * 12 <= record.totals["n_forward"] <= 2 * 12 * 12
    assert gap(plain, got) < 1e-4
    assert not card.margin.isnan().any()
    with pytest.raises(ValueError, match="4 samples gave 3 rows"):
        _trained(net(0.0), data, lambda model, batch: (model(batch[0])[:3, 0], batch[1][:3, 0]), "two-pass")


def _trained(
    model: nn.Module, data: Any, forward: Any, skip: str, **settings: Any
) -> tuple[dict[str, Tensor], Any]:
    settings = {"scorecard": Scorecard(len(data), max_rest=0)} | settings
    settings["scorecard"].max_rest = 0
    record = train(
        model,
        ASSoftmaxLoss(0.1),
        data,
        batch_size=4,
        epochs=12,
        lr=0.02,
        forward=forward,
        skip=skip,
        **settings,
    )
    return model.state_dict(), record


def test_nested_samples_and_a_collate_of_ones_own() -> None:
    class Nested(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = net(0.0)

        def forward(self, inputs: Any) -> Tensor:
            return self.net(inputs["x"]["values"])

    x, y = digits_like().tensors
    data = [({"x": {"values": x[i]}, "name": f"sample {i}"}, int(y[i])) for i in range(N)]
    weights = []
    for skip in ("off", "two-pass"):
        model = Nested()
        train(
            model,
            "as-softmax",
            data,
            batch_size=8,
            epochs=5,
            lr=0.02,
            skip=skip,
            scorecard=Scorecard(N, check=True, max_rest=0),
        )
        weights.append(model.state_dict())
    assert gap(*weights) < 1e-4

    def collate(samples: list[Any]) -> tuple[Tensor, Tensor]:
        xs, ys = zip(*samples, strict=True)  # samples as the data set has them
        return torch.stack(xs), torch.stack(ys)

    own, _ = run(collate=collate)
    default, _ = run()
    assert gap(own, default) == 0


def test_batch_norm_is_never_left_with_one_sample() -> None:
    model = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3))
    run(model, scorecard=Scorecard(N, earn=1), epochs=25)
    with pytest.raises(ValueError, match="use check=False"):
        run(model, scorecard=Scorecard(N, check=True))


def test_a_scorecard_serves_several_runs() -> None:
    card = Scorecard(N, earn=1)
    first, _ = run(scorecard=card, epochs=6)
    again, record = run(scorecard=card, epochs=6)
    assert gap(first, again) == 0
    assert record.epochs[0]["rest"] == 0


def test_an_accumulation_serves_several_runs() -> None:
    accumulation = AdaptiveAccumulation(0.5, 4)
    first, record = run(accumulation=accumulation, epochs=8)
    assert accumulation.steps > 1
    again, restarted = run(accumulation=accumulation, epochs=8)
    assert gap(first, again) == 0
    assert restarted.totals["n_updates"] == record.totals["n_updates"]


def test_metrics_of_every_form() -> None:
    values = iter([float("nan"), 0.5, 0.4, 0.3])
    with pytest.warns(UserWarning, match="gave metric nan"):
        _, record = run(evaluate=lambda _: next(values), patience=2)
    assert record.best["metric"] == 0.5
    assert len(record.evaluations) == 4
    for wrong in (None, {}):
        with pytest.raises(ValueError, match="evaluate must return a number"):
            run(evaluate=lambda _, wrong=wrong: wrong)


def test_evaluation_early_stop_and_best_weights() -> None:
    values, seen = iter([0.5, 0.9, 0.6, 0.7, 0.95]), []

    def evaluate(model: nn.Module) -> dict[str, float]:
        assert not model.training
        seen.append({name: value.clone() for name, value in model.state_dict().items()})
        return {"loss": 1.0, "accuracy": next(values)}

    logged: list[dict[str, Any]] = []
    weights, record = run(
        evaluate=evaluate, eval_every=5, metric="accuracy", patience=2, load_best=True, log=logged.append
    )
    assert [entry["step"] for entry in record.evaluations] == [5, 10, 15, 20]
    assert record.best["accuracy"] == 0.9
    assert gap(weights, seen[1]) == 0
    assert record.done
    assert [entry["step"] for entry in logged if "step" in entry] == [5, 10, 15, 20]
    assert [entry["n_forward"] for entry in record.epochs] == [96, 64]  # stopped in mid-epoch, and said so
    assert record.totals["n_forward"] == 160
    with pytest.raises(ValueError, match='metric is "f1"'):
        run(evaluate=lambda _: {"accuracy": 1.0}, metric="f1")


def test_lower_may_be_better() -> None:
    values = iter([0.5, 0.3, 0.4])
    _, record = run(evaluate=lambda _: {"loss": next(values)}, greater_is_better=False, epochs=3)
    assert record.best["loss"] == 0.3


@pytest.mark.parametrize(
    ("name", "half", "end"), [("linear", 0.5, 0.0), ("cosine", 0.5, 0.0), ("constant", 1.0, 1.0)]
)
def test_schedules(name: str, half: float, end: float) -> None:
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(()))], lr=1.0)
    schedule, rates = SCHEDULES[name](optimizer, 110, 10 / 110), []
    for _ in range(110):
        rates.append(schedule.get_last_lr()[0])
        optimizer.step()
        schedule.step()
    assert rates[:10] == pytest.approx([i / 10 for i in range(1, 11)])
    assert rates[60] == pytest.approx(half)
    assert schedule.get_last_lr()[0] == pytest.approx(end)


def test_workers_change_nothing() -> None:
    settings = {"scorecard": Scorecard(N, earn=1), "epochs": 3}
    here, _ = run(**settings)
    there, _ = run(**{**settings, "scorecard": Scorecard(N, earn=1)}, workers=2)
    assert gap(here, there) == 0


def test_mixed_precision() -> None:
    AcceleratorState._reset_state(True)
    model = net()
    try:
        _, record = run(model, accelerator=Accelerator(mixed_precision="bf16"), epochs=6)
    finally:
        AcceleratorState._reset_state(True)
    assert record.epochs[-1]["won_share"] > 0.5
    assert all(p.dtype == torch.float32 for p in model.parameters())


def test_errors() -> None:
    with pytest.raises(ValueError, match="skip must be one of off, micro"):
        run(skip="row")
    with pytest.raises(ValueError, match="the scorecard is for 3 samples, the data set has 96"):
        run(scorecard=Scorecard(3))
    with pytest.raises(ValueError, match="must have a length"):
        Loop(net(), SoftmaxLoss(), iter([]))
    with pytest.raises(ValueError, match="accumulation= for that"):
        Loop(net(), SoftmaxLoss(), digits_like(), accelerator=Accelerator(gradient_accumulation_steps=2))
    with pytest.raises(ValueError, match="known: linear, cosine, constant"):
        run(schedule="step")
    with pytest.raises(ValueError, match="one of ours or a name"):
        Loop(net(), nn.CrossEntropyLoss(), digits_like())
    with pytest.raises(ValueError, match="pass forward="):
        train(net(), SoftmaxLoss(), [{"x": torch.ones(6)}])


def test_many_found_lost_fight_in_batches_that_fit() -> None:
    """Everybody is said to be won, and nobody is: a check finds four batches of lost ones at once."""
    data = TensorDataset(torch.tensor([[0.0, 9.0]] * 40), torch.zeros(40, dtype=torch.long))
    loop = Loop(
        Frozen(),
        ASSoftmaxLoss(0.3),
        data,
        batch_size=4,
        epochs=1,
        lr=0.0,
        scorecard=Scorecard(40, check=True, max_rest=0),
    )
    loop.card.eased[:] = 1
    sizes: list[int] = []
    fight = loop.bouts.fight

    def spy(parts: Any) -> None:
        sizes.extend(len(index) for _, index in parts)
        fight(parts)

    loop.bouts.fight = spy
    record = loop.run()
    assert sum(sizes) == 40 == record.totals["n_backward"]
    assert max(sizes) == 8
    assert record.epochs[0]["check"] == 40
