"""Frozen layers: not trained, computed once for each sample, and the network stays the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from sparring.lab.errors import UserError
from sparring.lab.models.text import frozen
from sparring.lab.models.text.frozen import HIDDEN, frozen_layers
from tests.lab.data import build, data, encoder_for, load
from tests.lab.models.test_build import TEXT, bert

__all__ = ["bert"]  # a fixture


@pytest.fixture(autouse=True)
def nothing_shared() -> None:
    frozen._SHARED.clear()


@pytest.mark.parametrize("kind", TEXT)
def test_logits_and_gradients_are_those_of_the_whole_network(kind: str, bert: str) -> None:
    made = data(kind)
    built = build(bert, made, freeze_layers=2)
    net = built.net.eval()
    encoder = encoder_for(kind, made.labels, built.processor, 32)
    whole, short = encoder.encode(made.train), encoder.encode(made.train)
    seconds = frozen_layers(net).add_outputs(net, encoder, short)
    assert seconds is not None
    assert all(HIDDEN in feature for feature in short)
    gradients = []
    for features in (whole, short):
        batch = encoder.collate(features)
        logits, target = encoder.forward(net, batch)
        rows = (
            nn.functional.cross_entropy(logits, target, reduction="sum")
            if target.ndim < logits.ndim
            else (logits * target).sum()
        )
        net.zero_grad()
        rows.backward()
        gradients.append({name: p.grad for name, p in net.named_parameters() if p.grad is not None})
    trained = {name for name, parameter in net.named_parameters() if parameter.requires_grad}
    assert not [name for name in trained if "embeddings" in name or "layer.0." in name or "layer.1." in name]
    assert [name for name in gradients[0] if "layer.2." in name]
    assert gradients[0].keys() == gradients[1].keys()
    for name, gradient in gradients[0].items():
        torch.testing.assert_close(gradients[1][name], gradient, atol=1e-5, rtol=1e-4)


def test_the_frozen_layers_run_once(bert: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = data("multi-class")
    built = build(bert, made, freeze_layers=2)
    net, encoder = built.net, encoder_for("multi-class", made.labels, built.processor, 32)
    features = encoder.encode(made.train)
    first = frozen_layers(net).frozen[1]
    calls = []
    dense = first.output.dense
    dense.register_forward_hook(lambda *_: calls.append(1))
    net.train()
    before = encoder.forward(net.eval(), encoder.collate(features))[0]
    n_calls = len(calls)
    assert frozen_layers(net).add_outputs(net, encoder, features) is not None
    n_computed = len(calls)
    assert n_computed > n_calls
    after = encoder.forward(net, encoder.collate(features))[0]
    assert len(calls) == n_computed
    torch.testing.assert_close(after, before, atol=1e-5, rtol=1e-4)
    # called as always, it computes them
    batch = {name: x for name, x in encoder.collate(encoder.encode(made.train)).items() if name != "labels"}
    torch.testing.assert_close(net(**batch).logits, before, atol=1e-5, rtol=1e-4)
    assert len(calls) > n_computed
    # outputs that do not fit are computed in every epoch
    monkeypatch.setattr(frozen, "MOST_BYTES", 10)
    features = encoder.encode(made.train)
    assert frozen_layers(net).add_outputs(net, encoder, features) is None
    assert not any(HIDDEN in feature for feature in features)


def test_outputs_are_shared_by_runs_of_one_process(bert: str) -> None:
    """Only where weights and tokens are the same; then to the bit."""
    made = data("multi-class")
    nets = [build(bert, made, freeze_layers=n) for n in (2, 2, 1)]
    encoder = encoder_for("multi-class", made.labels, nets[0].processor, 32)
    samples = [encoder.encode(made.train) for _ in nets]
    seconds = [
        frozen_layers(built.net).add_outputs(built.net, encoder, x)
        for built, x in zip(nets, samples, strict=True)
    ]
    assert len(frozen._SHARED) == 2
    assert seconds[0] == seconds[1]
    assert all(a[HIDDEN] is b[HIDDEN] for a, b in zip(*samples[:2], strict=True))
    assert not torch.equal(samples[0][0][HIDDEN], samples[2][0][HIDDEN])
    fewer = encoder.encode(made.train[1:])
    frozen_layers(nets[0].net).add_outputs(nets[0].net, encoder, fewer)
    torch.testing.assert_close(fewer[0][HIDDEN], samples[0][1][HIDDEN], atol=1e-5, rtol=1e-4)
    with torch.no_grad():
        frozen_layers(nets[0].net).frozen[1].output.dense.weight.mul_(1.1)
    changed = encoder.encode(made.train)
    frozen_layers(nets[0].net).add_outputs(nets[0].net, encoder, changed)
    assert not torch.equal(changed[0][HIDDEN], samples[0][0][HIDDEN])


def test_old_outputs_are_forgotten(bert: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = data("multi-class")
    built = build(bert, made, freeze_layers=2)
    encoder = encoder_for("multi-class", made.labels, built.processor, 32)
    features = encoder.encode(made.train)
    frozen_layers(built.net).add_outputs(built.net, encoder, features)
    size = sum(feature[HIDDEN].numel() * 4 for feature in features)
    monkeypatch.setattr(frozen, "MOST_BYTES", size)
    frozen_layers(built.net).add_outputs(built.net, encoder, encoder.encode(made.train[1:]))
    assert len(frozen._SHARED) == 1


def test_training_mode_changes_nothing_below(bert: str) -> None:
    """No dropout in the frozen layers, or what was computed once would not be what they give."""
    made = data("multi-class")
    built = build(bert, made, freeze_layers=3)
    net, encoder = built.net.train(), encoder_for("multi-class", made.labels, built.processor, 32)
    batch = {k: v for k, v in encoder.collate(encoder.encode(made.train)).items() if k != "labels"}
    hidden = [net.base_model(**batch).last_hidden_state for _ in range(2)]
    assert torch.equal(*hidden)


def test_saved_and_loaded_it_is_an_ordinary_network(bert: str, tmp_path: Path) -> None:
    made = data("multi-class")
    built = build(bert, made, freeze_layers=1)
    built.net.save_pretrained(tmp_path)
    built.processor.save_pretrained(tmp_path)
    loaded = load(tmp_path, "multi-class").net
    assert frozen_layers(loaded) is None
    assert all(parameter.requires_grad for parameter in loaded.parameters())
    for name, tensor in built.net.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], tensor)


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        ("bert", {"freeze_layers": 4}, "freeze_layers must be between 1 and .*'s 3, got 4"),
        ("tiny", {"freeze_layers": 1}, "freeze_layers: for pre-trained models only"),
    ],
)
def test_what_cannot_be_frozen(bert: str, model: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        build(bert if model == "bert" else model, data("multi-class"), **options)
