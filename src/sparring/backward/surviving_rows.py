"""Gradients that hold the surviving rows only.

A sample *survives* if its row of the output gradient has a non-zero entry. As long as no operation mixes
samples, the gradients of all others are exactly zero in the whole backward pass. So a gradient of shape (n,
...) can be stored as (k, ...), where k is the number of survivors.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from typing import NamedTuple

import torch
from torch import Tensor


class SurvivingRows:
    """The k of n samples that have a non-zero gradient.

    A dimension *contains the samples* if its size is ``outer * n * inner``, the samples being the middle
    factor: the first dimension of (n, T, H), of (n*T, H) with ``inner`` = T, and of (T*n, H) with ``outer`` =
    T.

    >>> rows = SurvivingRows(torch.tensor([0, 2]), n=3)
    >>> rows.take(torch.arange(6), dim=0)
    tensor([0, 1, 4, 5])
    >>> rows.put(torch.tensor([0, 1, 4, 5]), dim=0)
    tensor([0, 1, 0, 0, 4, 5])
    """

    def __init__(self, indices: Tensor, n: int) -> None:
        self.n = n
        self.k = indices.numel()
        self.outer = 1
        self._indices = {indices.device: indices}
        self._by_outer = {1: self}

    @classmethod
    def from_gradients(cls, grads: Iterable[Tensor]) -> SurvivingRows | None:
        """The samples with a non-zero entry in any gradient; None if the first dimensions differ."""
        nonzero: Tensor | None = None
        for grad in grads:
            if grad.ndim == 0 or (nonzero is not None and len(nonzero) != len(grad)):
                return None
            rows = nonzero_rows(grad)
            nonzero = rows if nonzero is None else nonzero | rows.to(nonzero.device)
        return None if nonzero is None else cls(nonzero.nonzero().squeeze(1), len(nonzero))

    def with_outer(self, outer: int) -> SurvivingRows:
        """The same samples, for dimensions with another outer factor."""
        if outer not in self._by_outer:
            self._by_outer[outer] = copy(self)
            self._by_outer[outer].outer = outer
        return self._by_outer[outer]

    def indices(self, device: torch.device) -> Tensor:
        if device not in self._indices:
            self._indices[device] = next(iter(self._indices.values())).to(device)
        return self._indices[device]

    def take(self, x: Tensor, dim: int) -> Tensor:
        """The survivors' part of ``x``, whose dimension ``dim`` contains the samples."""
        indices = self.indices(x.device)
        if x.shape[dim] == self.n:
            return x.index_select(dim, indices)
        blocks: Tensor = x.unflatten(dim, (self.outer, self.n, -1))
        return blocks.index_select(dim + 1, indices).flatten(dim, dim + 2)

    def put(self, x: Tensor, dim: int) -> Tensor:
        """The inverse of ``take``, with zeros for all other samples."""
        blocks: Tensor = x.unflatten(dim, (self.outer, self.k, -1))
        full = blocks.new_zeros(*blocks.shape[: dim + 1], self.n, *blocks.shape[dim + 2 :])
        return full.index_add_(dim + 1, self.indices(x.device), blocks).flatten(dim, dim + 2)

    def cut(self, shape: Sequence[int], dim: int) -> list[int]:
        """The shape that ``take`` makes of a tensor of this shape."""
        return [*shape[:dim], shape[dim] // self.n * self.k, *shape[dim + 1 :]]

    def covers(self, nonzero: Tensor) -> bool:
        """Whether all rows of this mask over a first dimension are survivors: then ``take`` loses nothing."""
        if len(nonzero) % self.n:
            return False
        others = nonzero.view(self.n, -1).any(1).index_fill(0, self.indices(nonzero.device), False)
        return not bool(others.any())


def nonzero_rows(grad: Tensor) -> Tensor:
    """(n,) bool: the rows with an entry other than zero. NaN is not zero."""
    if grad.numel() == 0:
        return grad.new_zeros(len(grad), dtype=torch.bool)
    return grad.reshape(len(grad), -1).abs().amax(1) != 0


class CompactGrad(NamedTuple):
    """The gradient of a tensor: in full, or (with ``rows``) its surviving rows along ``dim``."""

    value: Tensor
    rows: SurvivingRows | None = None
    dim: int = 0

    def full(self) -> Tensor:
        return self.value if self.rows is None else self.rows.put(self.value, self.dim)

    def sum_to(self, shape: Sequence[int]) -> CompactGrad:
        """Sum over broadcast dimensions, which gives the gradient of a tensor of this full shape."""
        compact_shape = tuple(shape)
        rows = self.rows
        dim = self.dim - (self.value.ndim - len(shape))
        if rows is not None:
            size = self.value.shape[self.dim]
            if dim >= 0 and shape[dim] == size // rows.k * rows.n:
                compact_shape = (*shape[:dim], size, *shape[dim + 1 :])
            else:
                rows = None  # the samples are summed too: all of them share this tensor
        value = self.value if self.value.shape == compact_shape else self.value.sum_to_size(compact_shape)
        return CompactGrad(value) if rows is None else CompactGrad(value, rows, dim)

    def add(self, other: CompactGrad) -> CompactGrad:
        if self.rows is other.rows and self.dim == other.dim:
            return CompactGrad(self.value + other.value, self.rows, self.dim)
        return CompactGrad(self.full() + other.full())
