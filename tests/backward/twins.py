"""A model and a compacted copy of it: equal random states, equal losses, and their gradients side by side."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from sparring.backward.compact import compact
from sparring.backward.stats import SkipStats


class FunctionNet(nn.Module):
    """Any children, and any function as forward: ``function(net, *args)``."""

    def __init__(self, function: Callable[..., Any], **children: nn.Module) -> None:
        super().__init__()
        self.function = function
        for name, child in children.items():
            self.add_module(name, child)

    def forward(self, *args: Any) -> Any:
        return self.function(self, *args)


def mlp() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(6, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 4)
    )


def half_won(logits: torch.Tensor) -> torch.Tensor:
    """A loss with a gradient of zero for every other row."""
    return (logits.logsumexp(1) * (torch.arange(len(logits)) % 2)).sum()


def twins(run: Callable[[nn.Module], Any]) -> tuple[Any, ...]:
    """``run(model)`` on a plain and on a compacted model, from the same random state."""
    results = []
    for compacted in (False, True):
        model = mlp()
        if compacted:
            compact(model)
        torch.manual_seed(1)
        results.append(run(model))
    return tuple(results)


def assert_same(run: Callable[[nn.Module], Any]) -> None:
    plain, compacted = twins(run)
    for a, b in zip(plain, compacted, strict=True):
        torch.testing.assert_close(b, a, rtol=1e-5, atol=1e-6)


def compared(
    model: nn.Module, x: torch.Tensor, loss: Callable[[torch.Tensor], torch.Tensor] = half_won
) -> SkipStats:
    """Check that a compacted copy of the model has the same gradients. Returns what its backward did."""
    twin = copy.deepcopy(model)
    with compact(twin) as compaction:
        for net in (model, twin):
            torch.manual_seed(1)
            loss(net(x)).backward()
    for a, b in zip(grads_of(model), grads_of(twin), strict=True):
        torch.testing.assert_close(b, a)
    return compaction.stats


def grads_of(model: nn.Module) -> list[torch.Tensor]:
    return [p.grad for p in model.parameters()]
