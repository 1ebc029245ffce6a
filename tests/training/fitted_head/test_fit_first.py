"""Runs that begin with a fitted head."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from sparring import SoftmaxLoss
from sparring.training.fitted_head.fit_head import HeadError
from sparring.training.loop import Loop
from sparring.training.resume import ResumeError
from tests.training.toy import N, digits_like, gap, net, run


def test_the_first_pass_is_counted_and_said() -> None:
    _, record = run(loss=SoftmaxLoss(), fit_head=True, epochs=1, speed="off")
    assert record.totals["n_forward"] == 2 * N
    assert record.totals["n_backward"] == N
    assert record.notes[0].startswith(f"head fitted to {N} rows: held-out loss ")


def test_the_pass_takes_the_batches_that_are_fastest() -> None:
    """On a CPU those of training; larger ones took an image network 2.6 times as long."""
    sizes: list[int] = []
    model = net()
    model.register_forward_pre_hook(lambda _, inputs: sizes.append(len(inputs[0])))
    Loop(model, "softmax", digits_like(), fit_head=True, speed="off", epochs=1, batch_size=10).run()
    assert max(sizes) == 10
    assert sum(sizes) == 2 * N


def test_training_goes_on_from_the_fitted_head() -> None:
    """A learning rate of 0 shows where training begins: the last layer alone is another."""
    settings: dict[str, Any] = {"loss": SoftmaxLoss(), "speed": "off", "epochs": 1, "lr": 0.0}
    before = net().state_dict()
    weights, record = run(**settings, fit_head=True)
    changed = {name for name in weights if not torch.equal(before[name], weights[name])}
    assert changed == {"5.weight", "5.bias"}
    _, plain = run(**settings)
    assert record.epochs[0]["loss"] < 0.6 * plain.epochs[0]["loss"]


def test_a_budget_pays_for_the_pass() -> None:
    settings: dict[str, Any] = {"budget": 3.0, "forward_share": 0.5, "speed": "off", "loss": SoftmaxLoss()}
    _, record = run(fit_head=True, **settings)
    _, plain = run(**settings)
    assert plain.totals["n_backward"] == 3 * N
    assert record.totals["n_backward"] == 2.5 * N
    assert record.epochs[-1]["lr"] == 0.0  # the learning rate still ends where it should


def test_the_preset_takes_a_head_only_where_it_is_far_better() -> None:
    """And not where only large weights tell the features of a network apart."""
    x, _ = digits_like(400)[:]
    y = x[:, :3].argmax(1)
    clean = torch.utils.data.TensorDataset(x + 2 * nn.functional.one_hot(y, 6), y)
    record = Loop(net(), "softmax", clean, speed="fast", epochs=1).run()
    assert any(note.startswith("head fitted") for note in record.notes)
    flat = net()
    flat[0].weight.data *= 0.02
    flat[0].bias.data += 1.0
    record = Loop(flat, "softmax", clean, speed="fast", epochs=1).run()
    assert any(note.startswith("head kept: its inputs hardly differ") for note in record.notes)
    generator = torch.Generator().manual_seed(0)
    noise = torch.utils.data.TensorDataset(
        torch.randn(N, 6, generator=generator), torch.randint(3, (N,), generator=generator)
    )
    record = Loop(net(), "softmax", noise, speed="fast", epochs=1, batch_size=4).run()
    assert any(note.startswith("head kept") for note in record.notes)
    assert record.totals["n_forward"] < 1.25 * N  # a look at a part of the samples was enough


def test_the_preset_keeps_a_head_for_several_labels() -> None:
    """``fit_head=True`` fits it."""
    x, y = digits_like()[:]
    data = torch.utils.data.TensorDataset(x, nn.functional.one_hot(y))
    record = Loop(net(), "multilabel-softmax", data, speed="fast", epochs=1).run()
    assert any(note.startswith("head kept: with several labels per row") for note in record.notes)
    assert record.totals["n_forward"] == N
    record = Loop(net(), "multilabel-softmax", data, fit_head=True, epochs=1).run()
    assert any(note.startswith("head fitted") for note in record.notes)


def test_a_network_with_batch_norm_keeps_its_head() -> None:
    """In eval mode, its features would not be those of training."""
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))
    record = Loop(model, "softmax", digits_like(), speed="fast", epochs=1).run()
    assert not any("head" in note.split(":")[0] for note in record.notes)
    assert record.totals["n_forward"] == N


def test_a_model_without_a_last_layer() -> None:
    model = nn.Sequential(nn.Linear(6, 3), nn.LogSoftmax(1))
    record = Loop(model, "softmax", digits_like(), speed="fast", epochs=1).run()
    assert any(note.startswith("head not fitted: the logits are not") for note in record.notes)
    with pytest.raises(HeadError, match="pass head="):
        Loop(model, "softmax", digits_like(), fit_head=True, epochs=1).run()


def test_a_resumed_run_is_not_fitted_again(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"fit_head": True, "speed": "off", "epochs": 4, "batch_size": 8, "lr": 0.02}
    whole, expected = run(loss=SoftmaxLoss(), **settings)

    def loop(**more: Any) -> Loop:
        return Loop(net(), SoftmaxLoss(), digits_like(), **settings, folder=tmp_path, save_every=5, **more)

    first = loop()
    first.log_step = lambda entry: first.stop() if entry["step"] == 20 else None
    with pytest.raises(KeyboardInterrupt):
        first.run()
    second = loop()
    record = second.run()
    assert gap(second.model.state_dict(), whole) == 0
    assert record.totals["n_forward"] == expected.totals["n_forward"]
    assert record.notes == expected.notes
    with pytest.raises(ResumeError, match="fit_head"):
        Loop(net(), SoftmaxLoss(), digits_like(), **{**settings, "fit_head": False}, folder=tmp_path).run()
