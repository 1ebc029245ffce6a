"""The training loop on one process."""

from __future__ import annotations

import copy
from functools import cache
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from sparring import AdaptiveDelta, ASSoftmaxLoss, MultilabelASSoftmaxLoss, SoftmaxLoss, WarmupDelta
from sparring.training import AdaptiveAccumulation, Scorecard
from sparring.training.loop import Loop, train
from tests.backward.models import make
from tests.training.toy import N, digits_like, gap, net, run


def accumulation_of(name: str) -> Any:
    return AdaptiveAccumulation(0.5, 4) if name == "adaptive" else int(name)


@cache
def full(accumulation: str = "1", dropout: float = 0.1) -> tuple[dict[str, Tensor], Any]:
    """A run without skipping."""
    return run(net(dropout), skip="off", accumulation=accumulation_of(accumulation), epochs=6)


def test_is_the_plain_loop_where_nothing_is_on() -> None:
    """Against twenty lines of torch, in the same order of batches."""
    weights, record = run(loss=SoftmaxLoss(), skip="off")
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
    assert gap(weights, model.state_dict()) < 1e-6
    assert schedule.get_last_lr() == [0.0] == [record.epochs[-1]["lr"]]
    assert record.totals["n_forward"] == record.totals["n_backward"] == 4 * N


@pytest.mark.parametrize("skip", ["micro", "rows", "auto"])
@pytest.mark.parametrize("accumulation", ["1", "3", "adaptive"])
def test_skipping_changes_no_weight(skip: str, accumulation: str) -> None:
    dropout = 0.0 if skip == "auto" else 0.1  # auto may choose two passes, which draw other numbers
    weights, expected = full(accumulation, dropout)
    model = net(dropout)
    skipped, record = run(model, skip=skip, accumulation=accumulation_of(accumulation), epochs=6)
    assert gap(weights, skipped) < 1e-4
    assert record.totals["n_updates"] == expected.totals["n_updates"]
    if skip == "rows":
        assert record.totals["n_backward"] < 0.5 * expected.totals["n_backward"]
    assert [entry["n_won"] for entry in record.epochs] == [entry["n_won"] for entry in expected.epochs]
    assert not model._forward_hooks, "the model is as it was"
    assert "forward" not in vars(model)


def test_two_pass_without_dropout_is_exact() -> None:
    weights, expected = full(dropout=0.0)
    skipped, record = run(net(0.0), skip="two-pass", epochs=6)
    assert gap(weights, skipped) < 1e-4
    assert N * 6 < record.totals["n_forward"] < 2 * N * 6
    assert record.totals["n_backward"] < 0.5 * expected.totals["n_backward"]


def test_adaptive_accumulation_steps_less_often_and_ends_on_schedule() -> None:
    accumulation = AdaptiveAccumulation(0.5, 4)
    first, record = run(epochs=8, accumulation=accumulation)
    steps = [entry["accumulation"] for entry in record.epochs]
    assert steps == sorted(steps)
    assert steps[-1] == accumulation.steps > 1
    assert record.totals["n_updates"] < 8 * N / 8
    assert record.epochs[-1]["lr"] == 0.0
    again, restarted = run(accumulation=accumulation, epochs=8)
    assert gap(first, again) == 0, "an accumulation serves several runs"
    assert restarted.totals["n_updates"] == record.totals["n_updates"]


def test_delta_schedules_end_where_they_should() -> None:
    loss = ASSoftmaxLoss(WarmupDelta(0.3, total_steps=4 * N // 8, share=0.5))
    run(loss=loss, accumulation=AdaptiveAccumulation(), scorecard=Scorecard(N, earn=1))
    assert loss.delta.value == 0.3
    assert loss.delta.n_steps == 4 * N // 8
    adaptive = ASSoftmaxLoss(AdaptiveDelta(0.3))
    run(loss=adaptive, accumulation=2)
    assert adaptive.delta.n_steps == 4 * N // 8


# ------------------------------------------------------------ samples that rest


def test_rest_saves_forwards_and_the_schedule_still_ends() -> None:
    card = Scorecard(N, max_rest=2, earn=1, spare=0.1)
    first, record = run(scorecard=card, epochs=8)
    assert record.totals["n_forward"] < 0.8 * 8 * N
    assert sum(entry["rest"] for entry in record.epochs) == 8 * N - record.totals["n_forward"]
    assert record.epochs[-1]["lr"] == 0.0
    assert int((7 - card.seen).max()) < card.bound
    again, record = run(scorecard=card, epochs=8)
    assert gap(first, again) == 0, "a scorecard serves several runs"
    assert record.epochs[0]["rest"] == 0


def test_names_and_defaults() -> None:
    by_name, record = run(loss="as-softmax", scorecard=True, epochs=6)
    by_object, _ = run(loss=ASSoftmaxLoss(delta=0.8), scorecard=Scorecard(N), epochs=6)
    assert gap(by_name, by_object) == 0
    assert record.totals["n_forward"] < 6 * N


def test_workers_change_nothing() -> None:
    without, _ = run(scorecard=Scorecard(N, earn=1), epochs=2)
    with_workers, _ = run(scorecard=Scorecard(N, earn=1), epochs=2, workers=1)
    assert gap(without, with_workers) == 0


class Identity(nn.Module):
    """Its logits are its input."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight


WON = TensorDataset(torch.tensor([[9.0, 0.0]] * 8), torch.zeros(8, dtype=torch.long))


def test_all_samples_may_rest_for_an_epoch() -> None:
    loaded: list[int] = []

    class Spy(list):  # type: ignore[type-arg]
        def __getitem__(self, index: Any) -> Any:
            loaded.append(index)
            return super().__getitem__(index)

    card = Scorecard(8, max_rest=1, earn=1)
    loop = Loop(Identity(), ASSoftmaxLoss(0.3), Spy(WON), batch_size=4, epochs=4, scorecard=card)
    record = loop.run()
    assert [entry["rest"] for entry in record.epochs] == [0, 8, 0, 8]
    assert len(loaded) == 16
    assert record.epochs[-1]["lr"] == 0.0
    assert loop.model.weight.grad is None
    assert record.totals["n_updates"] == 4


def test_a_won_window_still_decays_weights() -> None:
    """Optimizers see zeros, not None: AdamW decays as with a full backward pass."""
    weights = []
    for skip in ("off", "micro", "rows", "two-pass"):
        model = Identity()
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.5)
        train(model, ASSoftmaxLoss(0.3), WON, batch_size=4, epochs=1, optimizer=optimizer, skip=skip)
        weights.append(model.weight.item())
    assert weights[0] < 1
    assert len(set(weights)) == 1


def test_batch_norm_is_never_left_with_one_sample() -> None:
    model = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3))
    run(model, scorecard=Scorecard(N, earn=1), epochs=20)
    with pytest.raises(ValueError, match="use check=False"):
        run(model, scorecard=Scorecard(N, check=True))
    with pytest.raises(ValueError, match=r'BatchNorm .*; use skip="rows"'):
        run(model, skip="two-pass")


# ------------------------------------------------------------ models and data of other shapes


def test_tokens_and_multilabel() -> None:
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
        loss = ASSoftmaxLoss(0.0)
        record = train(model, loss, samples, batch_size=5, epochs=2, lr=1e-3, skip=skip, scorecard=card)
        weights.append(model.state_dict())
        assert record.totals["n_rows"] == 2 * 20 * 7
        assert not card.margin.isnan().any()
    assert gap(*weights) < 1e-5

    x = torch.randn(24, 6)
    data = TensorDataset(x, (x[:, :3] > 0).float())
    settings = {"batch_size": 6, "epochs": 8, "lr": 0.02, "scorecard": Scorecard(24)}
    record = train(net(), MultilabelASSoftmaxLoss(0.1), data, **settings)
    assert record.epochs[-1]["won_share"] > record.epochs[0]["won_share"]


@pytest.mark.parametrize("skip", ["rows", "two-pass"])
def test_tokens_flattened_by_forward(skip: str) -> None:
    """n·T rows for n samples; two passes select samples, not tokens."""
    x = torch.randn(12, 4, 6, generator=torch.Generator().manual_seed(0))
    data = TensorDataset(x, x[..., :3].argmax(-1))

    def flat(model: nn.Module, batch: Any) -> tuple[Tensor, Tensor]:
        return model(batch[0]).reshape(-1, 3), batch[1].reshape(-1)

    def trained(skip: str, forward: Any = flat) -> tuple[dict[str, Tensor], Any, Scorecard]:
        model, card = net(0.0), Scorecard(12, max_rest=0)
        settings = {"batch_size": 4, "epochs": 8, "lr": 0.02, "forward": forward, "scorecard": card}
        return model.state_dict(), train(model, ASSoftmaxLoss(0.1), data, skip=skip, **settings), card

    plain, _, _ = trained("off")
    weights, record, card = trained(skip)
    assert record.totals["n_rows"] == 4 * 8 * 12
    assert 8 * 12 <= record.totals["n_forward"] <= 2 * 8 * 12
    assert gap(plain, weights) < 1e-4
    assert not card.margin.isnan().any()
    with pytest.raises(ValueError, match="4 samples gave 3 rows"):
        trained("two-pass", lambda model, batch: (model(batch[0])[:3, 0], batch[1][:3, 0]))


def test_nested_samples_and_a_custom_collate() -> None:
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
        model, card = Nested(), Scorecard(N, check=True, max_rest=0)
        train(model, "as-softmax", data, batch_size=8, epochs=4, lr=0.02, skip=skip, scorecard=card)
        weights.append(model.state_dict())
    assert gap(*weights) < 1e-4

    def collate(samples: list[Any]) -> tuple[Tensor, Tensor]:
        xs, ys = zip(*samples, strict=True)  # samples as the data set has them
        return torch.stack(xs), torch.stack(ys)

    assert gap(run(collate=collate, epochs=2)[0], run(epochs=2)[0]) == 0


def test_sparse_embeddings_train() -> None:
    ids = torch.randint(0, 9, (40, 3), generator=torch.Generator().manual_seed(0))
    data = TensorDataset(ids, (ids[:, 0] > 4).long())
    for skip in ("off", "micro", "rows", "two-pass"):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Embedding(9, 4, sparse=True), nn.Flatten(), nn.Linear(12, 2))
        model[2].requires_grad_(False)
        optimizer = torch.optim.SparseAdam([model[0].weight], lr=0.3)
        settings = {"batch_size": 4, "epochs": 8, "skip": skip, "max_grad_norm": None}
        record = train(model, ASSoftmaxLoss(delta=0.3), data, optimizer=optimizer, **settings)
        assert record.epochs[-1]["won_share"] > 0.9


def test_mixed_precision() -> None:
    AcceleratorState._reset_state(True)
    model = net()
    try:
        _, record = run(model, accelerator=Accelerator(mixed_precision="bf16"), epochs=6)
    finally:
        AcceleratorState._reset_state(True)
    assert record.epochs[-1]["won_share"] > 0.5
    assert all(p.dtype == torch.float32 for p in model.parameters())


# ------------------------------------------------------------ evaluation


def test_metrics_of_every_form() -> None:
    values = iter([float("nan"), 0.5, 0.4, 0.3])
    with pytest.warns(UserWarning, match="gave metric nan"):
        _, record = run(evaluate=lambda _: next(values), patience=2)
    assert record.best["metric"] == 0.5
    assert len(record.evaluations) == 4
    for metrics in (None, {}):
        with pytest.raises(TypeError, match="evaluate must return a number"):
            run(evaluate=lambda _, metrics=metrics: metrics)
    losses = iter([0.5, 0.3, 0.4])
    _, record = run(evaluate=lambda _: {"loss": next(losses)}, greater_is_better=False, epochs=3)
    assert record.best["loss"] == 0.3


def test_early_stop_and_best_weights() -> None:
    values, states = iter([0.5, 0.9, 0.6, 0.7, 0.95]), []

    def evaluate(model: nn.Module) -> dict[str, float]:
        assert not model.training
        states.append({name: value.clone() for name, value in model.state_dict().items()})
        return {"loss": 1.0, "accuracy": next(values)}

    logged: list[dict[str, Any]] = []
    settings = {"eval_every": 5, "metric": "accuracy", "patience": 2, "load_best": True}
    weights, record = run(evaluate=evaluate, log=logged.append, **settings)
    assert [entry["step"] for entry in record.evaluations] == [5, 10, 15, 20]
    assert record.best["accuracy"] == 0.9
    assert gap(weights, states[1]) == 0
    assert record.done
    assert [entry["step"] for entry in logged if "step" in entry] == [5, 10, 15, 20]
    assert [entry["n_forward"] for entry in record.epochs] == [96, 64]  # stopped inside of an epoch
    assert record.totals["n_forward"] == 160
    with pytest.raises(ValueError, match='metric is "f1"'):
        run(evaluate=lambda _: {"accuracy": 1.0}, metric="f1")


# ------------------------------------------------------------ mistakes


@pytest.mark.parametrize(
    ("error", "message", "settings"),
    [
        (ValueError, "skip must be one of off, micro", {"skip": "row"}),
        (ValueError, "for 3 samples, the data set has 96", {"scorecard": Scorecard(3)}),
        (TypeError, "must have a length", {"data": iter([])}),
        (ValueError, "known: linear, cosine, constant", {"schedule": "step"}),
        (TypeError, "a loss of sparring or a name", {"loss": nn.CrossEntropyLoss()}),
        (ValueError, "pass forward=", {"data": [{"x": torch.ones(6)}]}),
        (ValueError, "epochs must be a whole number", {"epochs": 0}),
    ],
)
def test_errors(error: type[Exception], message: str, settings: dict[str, Any]) -> None:
    settings = {"loss": SoftmaxLoss(), "data": digits_like(), **settings}
    with pytest.raises(error, match=message):
        train(net(), **settings)


def test_the_accelerator_must_not_accumulate() -> None:
    with pytest.raises(ValueError, match="accumulation= for that"):
        Loop(net(), SoftmaxLoss(), digits_like(), accelerator=Accelerator(gradient_accumulation_steps=2))
