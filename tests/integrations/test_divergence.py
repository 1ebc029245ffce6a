"""NaN under other trainers: what their own switches say holds, and no window hides it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch.callbacks import EarlyStopping
from torch import Tensor, nn
from transformers import BertForSequenceClassification, Trainer

from sparring import SoftmaxLoss
from sparring.integrations.hf import SparringTrainer, loss_func
from sparring.integrations.lightning import SparringCallback
from tests.integrations.test_lightning import Ours, Theirs, fit
from tests.integrations.tiny import Sentences, arguments, config

FORMS: list[dict[str, Any]] = [
    {},
    {"speed": "off"},
    {"skip": "micro"},
    {"accumulation": 3, "lam": 9.0},
    {"speed": "all", "delta": 0.05},
]


class Breaks(BertForSequenceClassification):
    """Its logits are NaN in one forward of training."""

    def __init__(self, call: int) -> None:
        torch.manual_seed(0)
        super().__init__(config())
        self.call, self.n_calls = call, 0

    def forward(self, *args: Any, **inputs: Any) -> Any:
        output = super().forward(*args, **inputs)
        self.n_calls += self.training
        if self.training and self.n_calls == self.call:
            output.logits = output.logits * torch.nan
        return output


def losses(trainer: Trainer) -> list[float]:
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


def args(folder: Path, **settings: Any) -> Any:
    usual = {
        "num_train_epochs": 1,
        "learning_rate": 0.0,
        "max_grad_norm": 0.0,
        "remove_unused_columns": False,
    }
    return arguments(folder, **{"logging_steps": 1, **usual, **settings})


@pytest.mark.parametrize("own", FORMS)
def test_the_logged_loss_is_nan_where_the_filter_is_off(tmp_path: Path, own: dict[str, Any]) -> None:
    """As a plain Trainer's: in the entry of the step, or of the window, in which it appeared."""
    trainer = SparringTrainer(
        Breaks(5), args(tmp_path, logging_nan_inf_filter=False), train_dataset=Sentences(), **own
    )
    trainer.train()
    broken = [i for i, loss in enumerate(losses(trainer)) if math.isnan(loss)]
    assert broken
    if "accumulation" not in own:
        plain_args = args(tmp_path, logging_nan_inf_filter=False)
        plain = Trainer(
            Breaks(5), plain_args, train_dataset=Sentences(), compute_loss_func=loss_func("as-softmax")
        )
        plain.train()
        assert [i for i, loss in enumerate(losses(plain)) if math.isnan(loss)][:1] == broken[:1] == [4]


@pytest.mark.parametrize("own", FORMS)
def test_with_the_filter_it_is_left_out_of_the_log(tmp_path: Path, own: dict[str, Any]) -> None:
    """The Trainer's default, as documented: only the log is filtered, training goes on."""
    trainer = SparringTrainer(Breaks(5), args(tmp_path), train_dataset=Sentences(), **own)
    trainer.train()
    assert losses(trainer)
    assert all(math.isfinite(loss) for loss in losses(trainer)[:5])
    assert trainer.state.global_step == 13


def test_a_norm_that_is_nan_is_logged(tmp_path: Path) -> None:
    settings = args(tmp_path, max_grad_norm=1.0)
    trainer = SparringTrainer(Breaks(5), settings, train_dataset=Sentences())
    trainer.train()
    norms = [entry["grad_norm"] for entry in trainer.state.log_history if "grad_norm" in entry]
    assert [math.isnan(norm) for norm in norms[:5]] == [False] * 4 + [True]


# ------------------------------------------------------------ Lightning


class Breaking(Ours):
    """Its logits are NaN from the fourth forward on; with ``backward`` only their gradient is."""

    def __init__(self, backward: bool = False, **own: Any) -> None:
        super().__init__(schedule=False, dropout=0.0, **own)
        self.backward_only, self.n_calls = backward, 0

    def forward(self, x: Tensor) -> Tensor:
        logits = super().forward(x)
        self.n_calls += 1
        if self.n_calls < 4:
            return logits
        return logits + (logits * 0).pow(2).sqrt() if self.backward_only else logits * torch.nan


LIGHTNING: list[dict[str, Any]] = [{}, {"skip": "off"}, {"skip": "micro"}, {"accumulation": 4, "lam": 9.0}]


@pytest.mark.parametrize("own", LIGHTNING)
@pytest.mark.parametrize("backward", [False, True])
def test_detect_anomaly_stops(tmp_path: Path, own: dict[str, Any], backward: bool) -> None:
    module = Breaking(backward, **own)
    with pytest.raises(RuntimeError, match="returned nan values"):
        fit(module, tmp_path, 2, detect_anomaly=True)
    assert module.n_calls == 4, "at the first backward that has it"


@pytest.mark.parametrize("own", LIGHTNING)
def test_early_stopping_sees_it(tmp_path: Path, own: dict[str, Any]) -> None:
    module = Breaking(**own)
    stopping = EarlyStopping("train_loss", patience=100, check_on_train_epoch_end=True)
    trainer = fit(module, tmp_path, 4, callbacks=[stopping])
    assert trainer.current_epoch == 1
    assert math.isnan(module.seen[-1]["train_loss"])


def test_beside_an_automatic_module(tmp_path: Path) -> None:
    """The callback leaves the module's loss as it is."""

    class Broken(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x * torch.nan

    module = Theirs(SoftmaxLoss())
    module.net = nn.Sequential(module.net, Broken())
    with pytest.raises(RuntimeError, match="returned nan values"):
        fit(module, tmp_path, 1, callbacks=[SparringCallback()], detect_anomaly=True)
