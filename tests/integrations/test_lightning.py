"""SparringModule against a plain loop and itself uninterrupted; SparringCallback beside a module."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import lightning
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from sparring import (
    AdaptiveAccumulation,
    ASSoftmaxLoss,
    ConstantDelta,
    LinearDelta,
    SoftmaxLoss,
    WarmupConcede,
    WeightedScorecard,
)
from sparring.integrations.lightning import SparringCallback, SparringModule
from tests.integrations.tiny import weights
from tests.processes import run_ranks

N, BATCH = 44, 8


def data(n: int = N) -> TensorDataset:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(n, 6, generator=generator)
    return TensorDataset(x, (x[:, :3] + 0.3 * torch.randn(n, 3, generator=generator)).argmax(1))


def network(seed: int = 0, dropout: float = 0.1) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Dropout(dropout), nn.Linear(16, 3))


class Ours(SparringModule, lightning.LightningModule):
    def __init__(
        self, seed: int = 0, dropout: float = 0.1, rests: bool = False, schedule: bool = True, **own: Any
    ) -> None:
        super().__init__(**own)
        self.net, self.rests, self.schedule = network(seed, dropout), rests, schedule
        self.seen: list[dict[str, float]] = []

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)

    def train_dataloader(self) -> Any:
        return self.resting(data(), BATCH) if self.rests else DataLoader(data(), BATCH)

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=0.02)
        total = self.trainer.estimated_stepping_batches
        rate = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / total)
        return (
            {"optimizer": optimizer, "lr_scheduler": {"scheduler": rate, "interval": "step"}}
            if self.schedule
            else optimizer
        )

    def on_train_batch_end(self, *_: Any) -> None:
        self.seen.append({name: float(value) for name, value in self.trainer.callback_metrics.items()})


def fit(module: Any, folder: Path, epochs: int = 4, **settings: Any) -> lightning.Trainer:
    usual = {
        "max_epochs": epochs,
        "accelerator": "cpu",
        "logger": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    checkpoint = settings.pop("ckpt_path", None)
    trainer = lightning.Trainer(
        default_root_dir=folder, **{**usual, "enable_checkpointing": False, **settings}
    )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="lightning")
        warnings.filterwarnings("ignore", message=".*train_dataloader.*|.*LeafSpec.*|.*treespec.*")
        trainer.fit(module, ckpt_path=checkpoint)
    return trainer


def by_hand(loss: nn.Module, epochs: int = 4, **settings: Any) -> nn.Module:
    """A plain loop over the same batches."""
    net = network(**settings)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.02)
    rate = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / (epochs * 6))
    for _ in range(epochs):
        for x, y in DataLoader(data(), BATCH):
            loss(net(x), y).backward()
            optimizer.step()
            optimizer.zero_grad()
            rate.step()
    return net


# ------------------------------------------------------------ the module


def test_softmax_is_a_plain_loop(tmp_path: Path) -> None:
    module = Ours(dropout=0.0, loss="softmax", speed="off")
    fit(module, tmp_path)
    assert torch.allclose(
        weights(module.net), weights(by_hand(nn.CrossEntropyLoss(), dropout=0.0)), rtol=0, atol=1e-5
    )


def test_skipping_is_exact(tmp_path: Path) -> None:
    module = Ours(dropout=0.0, delta=0.1)
    fit(module, tmp_path, epochs=8)
    assert torch.allclose(
        weights(module.net), weights(by_hand(ASSoftmaxLoss(0.1), 8, dropout=0.0)), rtol=0, atol=1e-4
    )
    assert module.engine.record.totals["n_backward"] < 8 * N


def test_fast_settles_with_every_sample_awake(tmp_path: Path) -> None:
    module = Ours(rests=True, speed="fast", delta=0.1, settle=0.25)
    fit(module, tmp_path, epochs=8)
    assert (module.engine.delta, module.engine.scorecard.awake_from) == (1.0, 6)
    forward, backward = (module.engine.record.totals[name] for name in ("n_forward", "n_backward"))
    assert 2 * N <= backward < forward < 8 * N
    with pytest.raises(ValueError, match="settle=0"):
        fit(Ours(rests=True, speed="fast"), tmp_path, epochs=-1, max_time={"seconds": 1})


def test_fast_with_softmax_rests_and_weighs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparring.training.resting.weighted.MIN_BATCHES", 0)
    module = Ours(rests=True, loss="softmax", speed="fast")
    fit(module, tmp_path, epochs=8)
    assert module.engine.scorecard.longest_rest == 2  # a quarter of the training
    assert isinstance(module.engine.scorecard, WeightedScorecard)
    totals = module.engine.record.totals
    looked = totals["n_forward"] - totals["n_backward"]  # before training, to fit the head
    assert any(note.startswith("head ") for note in module.engine.record.notes)
    assert 0 < looked <= N
    assert totals["n_backward"] < 8 * N


def test_a_window_is_the_mean_of_its_rows(tmp_path: Path) -> None:
    """Six batches of 8, 8, 8, 8, 8 and 4 rows in one step: a step on all of them."""
    windows = AdaptiveAccumulation(max_steps=6)
    module = Ours(dropout=0.0, loss="softmax", speed="off", schedule=False, accumulation=windows)
    windows.reset = lambda: windows.load_state_dict({**windows.state_dict(), "steps": 6})  # type: ignore[method-assign]
    fit(module, tmp_path, epochs=1)
    net = network(dropout=0.0)
    x, y = data().tensors
    nn.functional.cross_entropy(net(x), y).backward()
    torch.optim.AdamW(net.parameters(), lr=0.02).step()
    assert torch.allclose(weights(module.net), weights(net), rtol=0, atol=1e-5)


@pytest.mark.parametrize("rests", [False, True])
def test_everything_on(tmp_path: Path, rests: bool) -> None:
    speed: dict[str, Any] = {"speed": "all", "settle": 0.1} if rests else {"speed": "skip"}
    module = Ours(rests=rests, delta=0.1, accumulation=3, lam=1.0, max_grad_norm=1.0, **speed)
    trainer = fit(module, tmp_path, epochs=10)
    assert trainer.lr_scheduler_configs[0].scheduler.get_last_lr()[0] == pytest.approx(0, abs=1e-9)
    assert trainer.fit_loop.epoch_loop.total_batch_idx + 1 == 10 * 6
    assert trainer.global_step == module.engine.record.totals["n_updates"] < 10 * 6
    last = module.seen[-1]
    assert {"won_share", "accumulation", "delta", "samples_backward", "train_loss"} <= last.keys()
    assert max(entry["accumulation"] for entry in module.seen) == 3
    assert last["samples_backward"] < 10 * N
    assert (module.engine.record.totals["n_forward"] < 10 * N) == rests


@pytest.mark.parametrize("rests", [False, True])
def test_going_on_from_a_checkpoint(tmp_path: Path, rests: bool) -> None:
    own = {"rests": rests, "delta": 0.1, "speed": "all" if rests else "skip", "accumulation": 3, "lam": 1.0}
    save = lightning.pytorch.callbacks.ModelCheckpoint(
        tmp_path / "kept",
        save_top_k=-1,
        every_n_train_steps=3 if rests else None,
        every_n_epochs=None if rests else 2,
        filename="{step}",
    )
    whole = Ours(**own)
    torch.manual_seed(5)
    fit(whole, tmp_path, epochs=8, enable_checkpointing=True, callbacks=[save])
    kept = sorted((tmp_path / "kept").glob("*.ckpt"))
    assert len(kept) > 2
    for path in kept[:-1]:
        again = Ours(seed=7, **own)
        torch.manual_seed(99)
        fit(again, tmp_path, epochs=8, ckpt_path=path)
        assert torch.equal(weights(whole.net), weights(again.net)), path.name


def test_going_on_after_any_batch(tmp_path: Path) -> None:
    """Also behind an epoch's last part, when nobody is left to fight in the batches that remain."""

    class Keep(lightning.pytorch.Callback):
        def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
            trainer.save_checkpoint(tmp_path / f"{trainer.fit_loop.epoch_loop.total_batch_idx:02d}.ckpt")

    own = {"rests": True, "delta": 0.05, "speed": "all", "accumulation": 2, "lam": 1.0}
    whole = Ours(**own)
    fit(whole, tmp_path, epochs=6, callbacks=[Keep()])
    kept = sorted(tmp_path.glob("*.ckpt"))
    assert len(kept) == 36
    for path in kept[7::5]:
        again = Ours(seed=7, **own)
        fit(again, tmp_path, epochs=6, ckpt_path=path)
        assert torch.equal(weights(whole.net), weights(again.net)), path.name


def test_a_second_fit_begins_anew(tmp_path: Path) -> None:
    module = Ours(loss=ASSoftmaxLoss(LinearDelta(1.0, 0.2, total_steps=24)))
    for _ in range(2):
        module.seen.clear()
        fit(module, tmp_path)
        assert module.seen[0]["delta"] > 0.9
        assert module.engine.record.totals["n_forward"] == 4 * N


def test_batches_of_other_forms(tmp_path: Path) -> None:
    class Nested(Ours):
        def train_dataloader(self) -> Any:
            return DataLoader([{"inputs": {"x": x}, "truth": y} for x, y in data()], BATCH)

        def logits_and_targets(self, model: nn.Module, batch: Any) -> tuple[Tensor, Tensor]:
            return model(batch["inputs"]["x"]), batch["truth"]

    module = Nested(delta=0.1)
    fit(module, tmp_path)
    assert module.engine.record.totals["n_forward"] == 4 * N


def test_two_processes_end_the_same(tmp_path: Path) -> None:
    """Although one's batch is at times all won and the other's is not."""
    own = {"rests": True, "rest": True, "delta": 0.0, "accumulation": 3, "lam": 2.0}
    run_ranks(2, "tests.integrations.two_modules", tmp_path, json.dumps(own))
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["equal"]
    assert found["lr"] == pytest.approx(0, abs=1e-9)
    assert found["n_updates"] < 4 * 3


def test_warm_up_of_delta(tmp_path: Path) -> None:
    module = Ours(delta=0.2, delta_warmup=0.5)
    fit(module, tmp_path)
    assert [round(entry["delta"], 6) for entry in module.seen] == [1.0] * 11 + [0.2] * 13


def test_conceding(tmp_path: Path) -> None:
    """Nothing in the first 5 of 24 batches; a run resumed in or after the warm-up ends the same."""

    class Keep(lightning.pytorch.Callback):
        def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
            trainer.save_checkpoint(tmp_path / f"{trainer.global_step}.ckpt")

    own = {"loss": "softmax", "concede": 0.2, "rests": True}
    whole = Ours(**own)
    fit(whole, tmp_path, callbacks=[Keep()])
    shares = [entry["conceded_share"] for entry in whole.seen]
    assert len(shares) == 24
    assert not any(shares[:5])
    assert any(shares[5:])
    for n_steps in (3, 9):
        again = Ours(seed=7, **own)
        fit(again, tmp_path, ckpt_path=tmp_path / f"{n_steps}.ckpt")
        assert torch.equal(weights(whole.net), weights(again.net))
        assert [entry["conceded_share"] for entry in again.seen] == shares[n_steps:]
        assert again.objective.concede.n_steps == 24


def test_a_warm_up_needs_the_length_of_training(tmp_path: Path) -> None:
    """Training without an end has none: a number κ is refused, unless it has no warm-up."""

    class Endless(Ours):
        def on_train_batch_end(self, *_: Any) -> None:
            self.trainer.should_stop = True

    endless = {"schedule": False, "loss": "softmax"}
    with pytest.raises(ValueError, match=r"whose length is unknown; set .* concede_warmup=0"):
        fit(Endless(concede=0.2, **endless), tmp_path, epochs=-1)
    own: list[dict[str, Any]] = [
        {"concede": 0.2, "concede_warmup": 0.0},
        {"loss": SoftmaxLoss(concede=ConstantDelta(0.2))},
    ]
    for settings in own:
        module = Endless(**{**endless, **settings})
        fit(module, tmp_path, epochs=-1)
        assert module.engine.record.totals["n_forward"] > 0


def test_mistakes(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"return self.resting\(dataset, batch_size\)"):
        fit(Ours(speed="all"), tmp_path)
    with pytest.raises(ValueError, match="rest=False excludes resting"):
        fit(Ours(rests=True, rest=False), tmp_path)


def test_resting_needs_no_other_word(tmp_path: Path) -> None:
    """As the docs show it: ``train_dataloader`` returns ``self.resting(…)``, and that is enough."""
    module, said = (
        Ours(rests=True, schedule=False, dropout=0.0, delta=0.1, **own) for own in ({}, {"rest": True})
    )
    fit(module, tmp_path, 8)
    fit(said, tmp_path, 8)
    assert torch.equal(weights(module), weights(said))
    assert module.engine is not None
    assert module.engine.totals()["n_forward"] < 8 * N, "somebody rested"


# ------------------------------------------------------------ the callback


class Theirs(lightning.LightningModule):
    """A module as people write them."""

    def __init__(self, loss: nn.Module, dropout: float = 0.0) -> None:
        super().__init__()
        self.net, self.loss = network(dropout=dropout), loss

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        x, y = batch
        return self.loss(self(x), y)

    def train_dataloader(self) -> Any:
        return DataLoader(data(), BATCH)

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=0.02)
        total = int(self.trainer.estimated_stepping_batches)
        rate = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: max(0.0, 1 - step / total))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": rate, "interval": "step"}}


def test_callback_skips_exactly_and_gives_the_module_back(tmp_path: Path) -> None:
    plain, ours = Theirs(ASSoftmaxLoss(0.1)), Theirs(ASSoftmaxLoss(0.1))
    fit(plain, tmp_path, epochs=8)
    trainer = fit(ours, tmp_path, epochs=8, callbacks=[SparringCallback()])
    assert torch.allclose(weights(plain.net), weights(ours.net), rtol=0, atol=1e-4)
    assert trainer.callback_metrics["samples_backward"] < 8 * N
    assert trainer.callback_metrics["won_share"] > 0
    assert "forward" not in vars(ours.loss)


def test_callback_moves_delta_by_batches(tmp_path: Path) -> None:
    module = Theirs(ASSoftmaxLoss(LinearDelta(1.0, 0.1, total_steps=24)))
    fit(module, tmp_path, callbacks=[SparringCallback(accumulation=3)])
    assert module.loss.delta.value == 0.1


def test_callback_logs_the_conceded_share(tmp_path: Path) -> None:
    """It advances κ, and the share is that of the rows of the step."""
    shares: list[float] = []

    class Keep(lightning.pytorch.Callback):
        def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
            shares.append(float(trainer.callback_metrics["conceded_share"]))

    module = Theirs(SoftmaxLoss(concede=WarmupConcede(0.2, total_steps=24)))
    fit(module, tmp_path, callbacks=[SparringCallback(), Keep()])
    assert module.loss.concede.n_steps == 24
    assert not any(shares[:5])
    assert sum(shares[5:]) > 0
    assert all(
        (share * rows).is_integer() for share, rows in zip(shares, [8, 8, 8, 8, 8, 4] * 4, strict=True)
    )


def test_callback_accumulates_where_windows_end_together(tmp_path: Path) -> None:
    lengths: list[int] = []

    class Watch(lightning.pytorch.Callback):
        def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
            lengths.append(trainer.accumulate_grad_batches)

    callback = SparringCallback(accumulation=AdaptiveAccumulation(lam=1.5, max_steps=3))
    trainer = fit(Theirs(ASSoftmaxLoss(0.05)), tmp_path, epochs=10, callbacks=[callback, Watch()])
    assert lengths == sorted(lengths)
    assert lengths[-1] == 3
    assert trainer.accumulate_grad_batches == 1  # given back
    assert trainer.global_step < 60
    assert (
        trainer.lr_scheduler_configs[0].scheduler.get_last_lr()[0] == 0
    )  # by batches, as if nothing had been gathered
    assert callback.state_dict()["accumulation"]["steps"] == 3


def test_callback_gradients_are_those_of_the_windows(tmp_path: Path) -> None:
    """By hand, with windows of two batches from the second epoch on; a window is a mean of means."""
    module = Theirs(SoftmaxLoss())
    windows = AdaptiveAccumulation(max_steps=2)
    windows.grown = lambda *_: 2  # type: ignore[method-assign]
    fit(module, tmp_path, epochs=3, callbacks=[SparringCallback(accumulation=windows)])
    net = network(dropout=0.0)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.02)
    rate = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: max(0.0, 1 - step / 18))
    sizes = [[1, 1, 2, 2], [2, 2, 2], [2, 2, 2]]  # from the third batch on, where both lengths begin
    for lengths in sizes:
        batches = iter(DataLoader(data(), BATCH))
        for length in lengths:
            for x, y in (next(batches) for _ in range(length)):
                (nn.functional.cross_entropy(net(x), y) / length).backward()
            optimizer.step()
            optimizer.zero_grad()
            for _ in range(length):
                rate.step()
    assert torch.allclose(weights(module.net), weights(net), rtol=0, atol=1e-4)


def test_callback_leaves_the_trainers_accumulation_alone(tmp_path: Path) -> None:
    with_it, without = Theirs(ASSoftmaxLoss(0.05)), Theirs(ASSoftmaxLoss(0.05))
    first = fit(with_it, tmp_path, accumulate_grad_batches=4, callbacks=[SparringCallback()])
    second = fit(without, tmp_path, accumulate_grad_batches=4)
    assert first.global_step == second.global_step == 8
    assert torch.allclose(weights(with_it.net), weights(without.net), rtol=0, atol=1e-4)


def test_callback_serves_several_modules_and_keeps_delta(tmp_path: Path) -> None:
    loss = ASSoftmaxLoss(LinearDelta(1.0, 0.1, total_steps=24))
    callback = SparringCallback()
    fit(Theirs(ASSoftmaxLoss(0.1)), tmp_path, callbacks=[callback])
    module = Theirs(loss)
    save = lightning.pytorch.callbacks.ModelCheckpoint(
        tmp_path / "kept", save_top_k=-1, every_n_epochs=2, filename="{epoch}"
    )
    fit(module, tmp_path, enable_checkpointing=True, callbacks=[callback, save])
    again = Theirs(ASSoftmaxLoss(LinearDelta(1.0, 0.1, total_steps=24)))
    fit(
        again,
        tmp_path,
        callbacks=[SparringCallback()],
        ckpt_path=next((tmp_path / "kept").glob("epoch=1*.ckpt")),
    )
    assert again.loss.delta.value == module.loss.delta.value == 0.1


def test_callback_mistakes(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="has 0 of our losses"):
        fit(Theirs(nn.CrossEntropyLoss()), tmp_path, callbacks=[SparringCallback()])
    with pytest.raises(ValueError, match="can be a SparringModule"):
        fit(Ours(), tmp_path, callbacks=[SparringCallback(SoftmaxLoss())])
