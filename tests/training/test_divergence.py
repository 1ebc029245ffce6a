"""NaN and infinite numbers are reported at the step where they appear, and never reach a checkpoint."""

from __future__ import annotations

import pickle
from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from torch import Tensor, nn
from torch.utils.data import TensorDataset

import sparring
from sparring import ASSoftmaxLoss, DivergenceError, list_losses, make_loss
from sparring.training import Scorecard
from sparring.training.divergence import MAX_SKIPPED
from sparring.training.loop import Loop, train
from tests.training.toy import digits_like, gap, net, run

BATCH, EPOCHS, N_STEPS = 8, 4, 12


def broken(*samples: int, value: float = torch.nan) -> TensorDataset:
    data = digits_like()
    data.tensors[0][list(samples), 2] = value
    return data


def loop(model: nn.Module | None = None, data: Any = None, **settings: Any) -> Loop:
    settings = {"batch_size": BATCH, "epochs": EPOCHS, "lr": 0.02, "progress": False, **settings}
    return Loop(
        net() if model is None else model,
        ASSoftmaxLoss(0.3),
        digits_like() if data is None else data,
        **settings,
    )


class Poison(nn.Module):
    """Multiplies gradients (backward) by NaN or infinity in chosen calls; the forward stays finite."""

    def __init__(self, calls: range, value: float = torch.nan) -> None:
        super().__init__()
        self.calls, self.value, self.n_calls = calls, value, 0

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return x
        self.n_calls += 1
        return _Scale.apply(x, self.value) if self.n_calls - 1 in self.calls else x  # type: ignore[no-any-return]


class _Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, value: float) -> Tensor:
        ctx.value = value
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient * ctx.value, None


def poisoned(calls: range, value: float = torch.nan) -> nn.Module:
    return nn.Sequential(net(0.0), Poison(calls, value))


# ------------------------------------------------------------ where it appears


def test_a_learning_rate_that_is_far_too_high_ends_in_an_error() -> None:
    with pytest.raises(DivergenceError, match=r"training diverged at step 2 of 48 \(epoch 0\)") as caught:
        run(lr=1e30)
    text = str(caught.value)
    for part in (
        "last good loss",
        "learning rate 4e+29",
        "lower learning rate",
        "max_grad_norm",
        "input data",
        "on_divergence",
    ):
        assert part in text
    assert "\n" not in text
    assert (caught.value.step, caught.value.epoch) == (2, 0)
    assert caught.value.lr == pytest.approx(4e29)
    assert caught.value.last_loss is not None


def test_the_error_is_where_a_user_looks_for_it() -> None:
    assert sparring.DivergenceError is sparring.training.DivergenceError is DivergenceError
    assert issubclass(DivergenceError, RuntimeError)
    again = pickle.loads(pickle.dumps(DivergenceError("a", step=3, samples=(1,))))
    assert (str(again), again.step, again.samples) == ("a", 3, (1,))


@pytest.mark.parametrize(
    "settings",
    [{}, {"skip": "off"}, {"skip": "micro"}, {"skip": "two-pass"}, {"accumulation": 3}, {"speed": "fast"}],
)
@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_a_broken_sample_is_named(settings: dict[str, Any], value: float) -> None:
    model = net(0.0)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    training = loop(model, broken(17, value=value), **settings)
    order = next(i for i, batch in enumerate(training.sampler) if 17 in batch)
    with pytest.raises(
        DivergenceError, match=r"NaN or inf in the input of sample 17 of the data set; correct the data"
    ) as caught:
        loop(model, broken(17, value=value), **settings).run()
    assert caught.value.samples == (17,)
    assert caught.value.step == order + 1
    assert all(bool(tensor.isfinite().all()) for tensor in model.state_dict().values()), (
        "the step was not taken"
    )
    assert settings or gap(before, model.state_dict()) > 0, "those before it were"


def test_the_field_of_a_dict_is_named_and_a_mask_of_minus_infinity_is_not() -> None:
    x, y = broken(5, 40).tensors
    data = [{"x": x[i], "mask": torch.full((2,), -torch.inf), "labels": y[i]} for i in range(len(x))]

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = net()

        def forward(self, x: Tensor, mask: Tensor) -> Tensor:
            return self.net(x)  # type: ignore[no-any-return]

    with pytest.raises(DivergenceError, match='in the input "x" of sample') as caught:
        loop(Model(), data).run()
    assert set(caught.value.samples) <= {5, 40}


def test_samples_whose_loss_alone_is_broken_are_named() -> None:
    class Log(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x[:, :3].log()

    model = nn.Sequential(Log(), nn.Linear(3, 3))
    data = TensorDataset(torch.rand(40, 6) + 0.1, torch.randint(3, (40,)))
    data.tensors[0][7] = -1.0
    with pytest.raises(DivergenceError, match="it comes from sample 7 of the data set"):
        train(model, ASSoftmaxLoss(0.3), data, batch_size=8)


@pytest.mark.parametrize("max_grad_norm", [1.0, None])
@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_gradients(max_grad_norm: float | None, value: float) -> None:
    with pytest.raises(DivergenceError, match="diverged at step 6 of 48") as caught:
        loop(poisoned(range(5, 6), value), max_grad_norm=max_grad_norm).run()
    what = (
        r"the norm of the gradients is"
        if max_grad_norm
        else r"weights NaN or infinite \(the first is 0.0.weight\)"
    )
    assert caught.match(what)


@pytest.mark.parametrize("last", ["epoch", "run", "evaluation"])
def test_a_bad_last_update_is_seen_although_no_batch_follows(last: str) -> None:
    """Of an epoch, of the run, and before an evaluation."""
    cases: dict[str, dict[str, Any]] = {"epoch": {"epochs": 2}, "run": {"epochs": 1}}
    settings = cases.get(last, {"eval_every": 4, "evaluate": pytest.fail})
    step = 4 if last == "evaluation" else N_STEPS
    with pytest.raises(DivergenceError, match=f"diverged at step {step} of"):
        loop(poisoned(range(step - 1, step)), **settings).run()


def test_checked_samples() -> None:
    """Those that are looked at without gradients fight when their loss is NaN, and are named then."""
    data = digits_like()
    card = Scorecard(len(data), check=True, max_rest=0)
    training = loop(data=data, scorecard=card, log=lambda _: data.tensors[0][30].fill_(torch.nan), epochs=3)
    with pytest.raises(DivergenceError, match="sample 30 of the data set"):
        training.run()


@pytest.mark.parametrize("name", [name for name in list_losses() if not name.startswith("multilabel")])
def test_every_loss(name: str) -> None:
    with pytest.raises(DivergenceError, match="sample 3 of the data set"):
        train(net(), make_loss(name), broken(3), batch_size=8)


def test_an_evaluation() -> None:
    with pytest.raises(
        DivergenceError, match=r"diverged at step 12 of 48.*: the loss of the evaluation is nan"
    ):
        run(evaluate=lambda _: {"accuracy": 0.5, "loss": float("nan")})
    with pytest.warns(
        UserWarning, match="evaluation after step 12 gave accuracy nan, which cannot be the best"
    ):
        run(evaluate=lambda _: {"accuracy": float("nan"), "loss": 1.0}, epochs=1)


# ------------------------------------------------------------ going on


def test_warn_goes_on_and_says_so_once() -> None:
    with pytest.warns(UserWarning, match="sample 17") as caught:
        weights, record = run_on(broken(17), on_divergence="warn")
    assert len(caught) == 1
    assert record.done
    assert any(value.isnan().any() for value in weights.values())


def test_ignore_does_not_look() -> None:
    _, record = run_on(broken(17), on_divergence="ignore")
    assert record.done


def run_on(data: Any, **settings: Any) -> tuple[dict[str, Tensor], Any]:
    model = net()
    return model.state_dict(), train(
        model, ASSoftmaxLoss(0.3), data, batch_size=BATCH, epochs=2, lr=0.02, **settings
    )


def test_other_words_are_refused() -> None:
    with pytest.raises(ValueError, match="on_divergence must be one of raise, warn, ignore; got 'stop'"):
        loop(on_divergence="stop")


def test_the_weights_are_those_of_a_loop_that_does_not_look() -> None:
    assert gap(run()[0], run(on_divergence="ignore")[0]) == 0


# ------------------------------------------------------------ checkpoints


@pytest.mark.parametrize("mode", ["raise", "warn", "ignore"])
def test_the_last_good_checkpoint_stays_and_a_run_goes_on_from_it(
    tmp_path: Path, mode: str, recwarn: pytest.WarningsRecorder
) -> None:
    whole = net(0.0)
    loop(whole, epochs=1).run()
    model = poisoned(range(6, 7))
    settings: dict[str, Any] = {"folder": tmp_path, "save_every": 1, "epochs": 1}
    training = loop(model, on_divergence=mode, **settings)
    with pytest.raises(DivergenceError, match="step 7 of 12") if mode == "raise" else nullcontext():
        training.run()
    said = [str(warning.message) for warning in recwarn]
    assert len(said) == {"raise": 0, "warn": 2, "ignore": 1}[mode]
    assert mode == "raise" or "no checkpoint is written, the last good one stays" in said[-1]
    state = torch.load(tmp_path / "checkpoint.pt")
    assert state["n_done"] == 6
    assert all(bool(value.isfinite().all()) for value in state["model"].values())
    again = poisoned(range(0))
    loop(again, **settings).run()
    assert gap(dict(again[0].state_dict()), whole.state_dict()) == 0


# ------------------------------------------------------------ gradient scalers


def scaled() -> Accelerator:
    """Mixed precision with a gradient scaler, which torch has for the CPU, too."""
    engine = Accelerator()
    engine.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**16)
    engine.native_amp = True
    return engine


@pytest.mark.parametrize("max_grad_norm", [1.0, None])
def test_skipped_steps_are_not_divergence(max_grad_norm: float | None) -> None:
    engine = scaled()
    training = loop(poisoned(range(3, 6), torch.inf), accelerator=engine, max_grad_norm=max_grad_norm)
    record = training.run()
    assert record.done
    assert training.monitor.n_skipped == 3
    assert engine.scaler.get_scale() == 2.0**13


def test_steps_skipped_for_ever_are() -> None:
    with pytest.raises(
        DivergenceError, match=f"step {5 + MAX_SKIPPED} of .* {MAX_SKIPPED} updates in a row were skipped"
    ):
        loop(poisoned(range(5, 1000)), accelerator=scaled(), epochs=6).run()


# ------------------------------------------------------------ the price


@pytest.mark.parametrize("accumulation", [1, 4])
def test_one_more_number_is_read_from_the_device_per_window(
    monkeypatch: pytest.MonkeyPatch, accumulation: int
) -> None:
    """That of an update, right after the next batch's numbers; none for each micro-batch."""
    reads: Counter[str] = Counter()
    for name in ("item", "tolist", "__bool__", "__float__", "__int__"):
        original = getattr(Tensor, name)

        def counted(self: Tensor, original: Any = original) -> Any:
            reads[mode] += 1
            return original(self)

        monkeypatch.setattr(Tensor, name, counted)
    windows = {}
    for mode in ("ignore", "raise"):
        record = loop(on_divergence=mode, accumulation=accumulation).run()
        windows[mode] = record.totals["n_updates"]
    assert windows["ignore"] == windows["raise"] == EPOCHS * N_STEPS / accumulation
    assert reads["raise"] - reads["ignore"] == windows["raise"]
