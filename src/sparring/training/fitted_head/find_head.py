"""The last linear layer of a model."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from sparring.losses.rows import class_last


class HeadError(ValueError):
    """The model has no last linear layer that could be fitted."""


def find_head(model: nn.Module, calls: dict[nn.Module, tuple[Tensor, Tensor]], logits: Tensor) -> nn.Linear:
    """The linear layer whose output the logits are."""
    numbers = class_last(logits).nan_to_num()
    for layer, (_, output) in reversed(calls.items()):
        same = output.numel() == numbers.numel() and output.shape[-1] == numbers.shape[-1]
        same = same and torch.equal(output.reshape(numbers.shape).nan_to_num(), numbers)
        if isinstance(layer, nn.Linear) and same:
            sharing = sum(parameter is layer.weight for parameter in _all_parameters(model))
            if sharing > 1:
                raise HeadError("the last layer shares its weights with another one")
            return layer
    raise HeadError("the logits are not the output of an nn.Linear; pass head=, or leave the head as it is")


def _all_parameters(model: nn.Module) -> Iterator[nn.Parameter]:
    """The parameters, once for each module that holds them."""
    for module in model.modules():
        yield from module._parameters.values()  # type: ignore[misc]
