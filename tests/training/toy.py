"""A small task that the tests of training share."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from sparring import ASSoftmaxLoss
from sparring.training.loop import train

N = 96


def digits_like(n: int = N) -> TensorDataset:
    """Three classes, most samples easy, some with a random label."""
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
    """The weights after training, and the record."""
    model = net() if model is None else model
    settings = {"batch_size": 8, "epochs": 4, "lr": 0.02, **settings}
    record = train(model, loss or ASSoftmaxLoss(0.3), digits_like(), **settings)
    return model.state_dict(), record


def gap(a: dict[str, Tensor], b: dict[str, Tensor]) -> float:
    """The largest difference of two weights."""
    return max(float((a[name] - b[name]).abs().max()) for name in a)
