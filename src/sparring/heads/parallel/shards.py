"""Which classes a rank holds, and what their weights begin as."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

BLOCK = 4096  # classes drawn from one seed


class Slice(NamedTuple):
    """The classes from `start` up to `stop`."""

    start: int
    stop: int

    @classmethod
    def of(cls, num_classes: int, rank: int, n_ranks: int) -> Slice:
        """As torch.chunk and DTensor's Shard(0) cut: equal parts, the last ones smaller or empty.

        >>> [tuple(Slice.of(10, rank, 4)) for rank in range(4)]
        [(0, 3), (3, 6), (6, 9), (9, 10)]
        """
        step = -(-num_classes // n_ranks)
        start = min(num_classes, rank * step)
        return cls(start, min(num_classes, start + step))

    @property
    def size(self) -> int:
        return self.stop - self.start

    def local(self, target: Tensor) -> Tensor:
        """Targets as rows of the slice; -1 where the class is elsewhere."""
        return torch.where((target >= self.start) & (target < self.stop), target - self.start, -1)


@torch.no_grad()
def initialise(weight: Tensor, bias: Tensor | None, slice: Slice, seed: int) -> None:
    """As nn.Linear begins, uniform within ±1/√H, but block by block from seeds of their own: a class has the same weights whatever the
    number of ranks."""
    bound = 1 / math.sqrt(weight.shape[1])
    for block in range(slice.start // BLOCK, -(-slice.stop // BLOCK)):
        first = block * BLOCK
        generator = torch.Generator(weight.device).manual_seed(seed + block)
        drawn = torch.empty(BLOCK, weight.shape[1] + 1, dtype=torch.float32, device=weight.device).uniform_(
            -bound, bound, generator=generator
        )
        low, high = max(slice.start, first), min(slice.stop, first + BLOCK)
        part, place = (
            drawn[low - first : high - first],
            torch.arange(low - slice.start, high - slice.start, device=weight.device),
        )
        weight.index_copy_(0, place, part[:, 1:].to(weight.dtype))
        if bias is not None:
            bias.index_copy_(0, place, part[:, 0].to(bias.dtype))
