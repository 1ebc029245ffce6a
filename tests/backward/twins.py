"""A model and its compacted twin: the same random state, the same loss, and the gradients side by side."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from sparring.backward import skipper as skip


def mlp() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(6, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 4)
    )


def half_won(logits: torch.Tensor) -> torch.Tensor:
    """A loss with a gradient of zero for every other row."""
    return (logits.logsumexp(1) * (torch.arange(len(logits)) % 2)).sum()


def twins(run: Callable[[nn.Module], Any]) -> tuple[Any, ...]:
    """``run(model)`` on a plain and on a compacted model, from the same random state."""
    cases = []
    for compacted in (False, True):
        model = mlp()
        if compacted:
            skip.compact(model)
        torch.manual_seed(1)
        cases.append(run(model))
    return tuple(cases)


def assert_same(run: Callable[[nn.Module], Any]) -> None:
    plain, compacted = twins(run)
    for a, b in zip(plain, compacted, strict=True):
        torch.testing.assert_close(b, a, rtol=1e-5, atol=1e-6)


def compared(model: nn.Module, x: torch.Tensor) -> skip.SkipStats:
    """A model against its compacted twin, from the same random state; what the twin's backward did."""
    twin = copy.deepcopy(model)
    with skip.compact(twin) as compaction:
        for each in (model, twin):
            torch.manual_seed(1)
            half_won(each(x)).backward()
    for a, b in zip(grads_of(model), grads_of(twin), strict=True):
        torch.testing.assert_close(b, a)
    return compaction.stats


def grads_of(model: nn.Module) -> list[torch.Tensor]:
    return [p.grad for p in model.parameters()]
