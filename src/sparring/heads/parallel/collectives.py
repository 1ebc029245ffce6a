"""The collectives that a class-parallel head needs, on torch.distributed, and how many bytes they move."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


def is_initialized() -> bool:
    """Whether there are processes to talk to at all."""
    return dist.is_available() and dist.is_initialized()


def several() -> bool:
    """Whether there is more than one process."""
    return is_initialized() and dist.get_world_size() > 1


class Wire:
    """One group of ranks; a process by itself where torch.distributed is not at work.

    `n_bytes` counts what leaves this rank, by the algorithms the backends use: an all-reduce passes everything around the ring twice,
    a gather and a reduce-scatter once.
    """

    def __init__(self, group: Any = None) -> None:
        self.group = group
        self.size, self.rank = (
            (dist.get_world_size(group), dist.get_rank(group)) if is_initialized() else (1, 0)
        )
        if self.rank < 0:
            raise ValueError("this rank is not in the group: make the head on the ranks of the group only")
        self.n_bytes = self.n_calls = 0

    def __deepcopy__(self, memo: Any) -> Wire:
        return copy.copy(self)  # the group is the same one

    def sum(self, x: Tensor) -> Tensor:
        """Σ over ranks, in place."""
        return self._reduce(x, "sum")

    def max(self, x: Tensor) -> Tensor:
        return self._reduce(x, "max")

    def _reduce(self, x: Tensor, how: str) -> Tensor:
        if self.size > 1 and x.numel():
            self._count(2 * (self.size - 1) * x.nbytes // self.size)
            dist.all_reduce(x, op=dist.ReduceOp.SUM if how == "sum" else dist.ReduceOp.MAX, group=self.group)
        return x

    def gather(self, x: Tensor) -> Tensor:
        """(p, …): x of every rank, all of one shape."""
        found = x.new_empty(self.size, *x.shape)
        if self.size == 1:
            return found.copy_(x[None])
        self._count((self.size - 1) * x.nbytes)
        dist.all_gather(list(found.unbind()), x.contiguous(), group=self.group)
        return found

    def sizes(self, n: int, device: torch.device) -> list[int]:
        """A number of each rank's."""
        return [n] if self.size == 1 else self.gather(torch.tensor([n], device=device)).flatten().tolist()

    def gather_rows(self, x: Tensor, sizes: Sequence[int]) -> Tensor:
        """The rows of all ranks, of each as many as it has, in the order of ranks."""
        if self.size == 1:
            return x
        padded = x.new_zeros(max(sizes), *x.shape[1:])
        padded[: len(x)] = x
        return torch.cat([part[:n] for part, n in zip(self.gather(padded), sizes, strict=True)])

    def scatter_sum(self, x: Tensor, sizes: Sequence[int]) -> Tensor:
        """Σ over ranks of the rows of all; each rank gets its own."""
        if self.size == 1 or not x.numel():
            return x
        try:
            return self._reduce_scatter(x, sizes)
        except RuntimeError as error:
            if "not support" not in str(error):
                raise
        start = sum(sizes[: self.rank])  # gloo of an older torch: twice the bytes
        return self.sum(x)[start : start + sizes[self.rank]]

    def _reduce_scatter(self, x: Tensor, sizes: Sequence[int]) -> Tensor:
        longest = max(sizes)
        padded = x.new_zeros(self.size, longest, *x.shape[1:])
        for place, part in zip(padded, x.split(list(sizes)), strict=True):
            place[: len(part)] = part
        own = torch.empty_like(padded[0])
        dist.reduce_scatter(own, list(padded.unbind()), group=self.group)
        self._count((self.size - 1) * own.nbytes)
        return own[: sizes[self.rank]]

    def _count(self, n_bytes: int) -> None:
        self.n_bytes += n_bytes
        self.n_calls += 1


def alone() -> Wire:
    """A rank by itself, whatever else there is."""
    made = Wire.__new__(Wire)
    made.group, made.size, made.rank, made.n_bytes, made.n_calls = None, 1, 0, 0, 0
    return made
