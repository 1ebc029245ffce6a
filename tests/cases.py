"""One table of canonical settings and inputs: the cross-cutting tests run over it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import sparring
from sparring.losses import Loss

SETTINGS: dict[str, list[dict[str, Any]]] = {
    "softmax": [{}, {"concede": 0.3}],
    "t-softmax": [{"tau": 0.5}, {"tau": 5.0}],
    "label-smoothing": [{"epsilon": 0.1}, {"epsilon": 0.0}, {"epsilon": 0.9}],
    "sparse-softmax": [{"k": 3}, {"k": 1}, {"k": 100}],
    "sparsemax": [{}],
    "entmax15": [{}],
    "am-softmax": [{"scale": 10.0, "margin": 0.3}, {"scale": 1.0, "margin": 0.0}],
    "gce": [{"q": 0.7}, {"q": 1.0}, {"q": 0.001}],
    "focal": [{"gamma": 2.0}, {"gamma": 0.0}, {"gamma": 0.5}],
    "sce": [{"alpha": 0.1, "beta": 1.0}, {"alpha": 6.0, "beta": 0.1}, {"alpha": 0.0, "beta": 1.0}],
    "as-softmax": [
        {"delta": 0.3},
        {"delta": 0.0},
        {"delta": 0.05},
        {"delta": 1.0},
        {"delta": 0.3, "concede": 0.3},
    ],
    "as-logit": [{"margin": 2.0}, {"margin": 0.0}, {"margin": 7.0}, {"margin": 2.0, "concede": 0.3}],
    "multilabel-softmax": [{}, {"concede": 0.1}],
    "multilabel-t-softmax": [{"tau": 0.5}],
    "multilabel-sparse-softmax": [{"k": 2}, {"k": 100}],
    "multilabel-as-softmax": [
        {"delta": 0.3},
        {"delta": 0.0},
        {"delta": 0.05},
        {"delta": 1.0},
        {"delta": 0.3, "concede": 0.1},
    ],
}
NAMES = list(SETTINGS)
CASES = [(name, settings) for name, group in SETTINGS.items() for settings in group]
IDS = [f"{name}-{'-'.join(map(str, settings.values()))}".rstrip("-") for name, settings in CASES]


def is_multilabel(name: str) -> bool:
    return name.startswith("multilabel")


def largest(name: str, settings: dict[str, Any]) -> float:
    """The supremum of a multi-class loss: what a target costs whose logit is -inf."""
    if name == "gce":
        return 1 / settings["q"]
    return 4 * settings["beta"] if name == "sce" and settings["alpha"] == 0 else torch.inf


def make(name: str, settings: dict[str, Any], **common: Any) -> Loss:
    return sparring.make_loss(name, **settings, **common)


def batch(
    name: str,
    n_rows: int = 12,
    n_classes: int = 7,
    *,
    spread: float = 2.0,
    dtype: torch.dtype = torch.float32,
) -> tuple[Tensor, Tensor]:
    """Logits and targets with rows of every kind: won, plain, in between and ignored.

    Multi-label targets also have rows without a positive label and without a negative one.
    """
    logits = torch.randn(n_rows, n_classes, dtype=dtype) * spread
    if is_multilabel(name):
        target = (torch.rand(n_rows, n_classes) < 0.3).long()
        if n_rows > 5:
            target[0], target[1], target[2] = 0, 1, -100
            target[3, 0] = -100
            target[4] = 0
            target[4, 1] = 1
            logits[4] = torch.linspace(-2, -1, n_classes)
            logits[4, 1] = 3  # won
        return logits, target
    target = torch.randint(n_classes, (n_rows,))
    if n_rows > 5:
        rows = torch.arange(n_rows)
        logits[rows[3::4], target[3::4]] += 9.0  # won
        target[2] = -100
    return logits, target
