"""Rules for the activations of known models that are autograd Functions in Python."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from transformers.models.bloom.modeling_bloom import BloomGelu

from tests.backward.twins import FunctionNet, compared


def net(activation: Any) -> FunctionNet:
    torch.manual_seed(0)
    layers = {"first": nn.Linear(6, 8), "last": nn.Linear(8, 4)}
    return FunctionNet(lambda net, x: net.last(activation(net.first(x))), **layers)


def test_the_gelu_of_bloom_runs_on_survivors() -> None:
    stats = compared(net(BloomGelu()), torch.randn(10, 6))
    assert not stats.in_full
    assert (stats.n_skipping, stats.n_samples_backward) == (1, 5)


class GeLUFunction(torch.autograd.Function):
    """The same name, but it mixes samples."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x + x.sum(0)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad + grad.sum(0)


def test_an_unknown_function_of_the_same_name_runs_in_full() -> None:
    stats = compared(net(GeLUFunction.apply), torch.randn(10, 6))
    assert list(stats.in_full) == ["GeLUFunctionBackward"]
