"""Survivors: which samples of a batch still carry gradient, and gradients that hold only those."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from typing import NamedTuple

import torch
from torch import Tensor


class Survivors:
    """K of n samples, and how to cut any tensor that runs over all n down to them.

    A dimension *runs over the samples* when its size is before·n·m, the sample being the factor in the middle: that of (n, T, H),
    but also of the (n·T, H) that a linear layer makes of it, or of (T·n, H) with T ``before``.

    >>> two = Survivors(torch.tensor([0, 2]), n=3)
    >>> two.take(torch.arange(6), dim=0)
    tensor([0, 1, 4, 5])
    >>> two.put(torch.tensor([0, 1, 4, 5]), dim=0)
    tensor([0, 1, 0, 0, 4, 5])
    """

    def __init__(self, keep: Tensor, n: int) -> None:
        self.n, self.k, self.before = n, keep.numel(), 1
        self._keep = {keep.device: keep}
        self._at = {1: self}

    def at(self, before: int) -> Survivors:
        """The same samples, in dimensions that have so many entries before each."""
        if before not in self._at:
            other = copy(self)
            other.before = before
            self._at[before] = other
        return self._at[before]

    @classmethod
    def of(cls, grads: Iterable[Tensor]) -> Survivors | None:
        """The samples with a non-zero gradient in any of these; None where they do not share a first dimension."""
        alive: Tensor | None = None
        for grad in grads:
            if grad.ndim == 0 or (alive is not None and alive.shape[0] != grad.shape[0]):
                return None
            rows = nonzero_rows(grad)
            alive = rows if alive is None else alive | rows.to(alive.device)
        return None if alive is None else cls(alive.nonzero().squeeze(1), alive.shape[0])

    def keep(self, device: torch.device) -> Tensor:
        """(K,) their indices."""
        if device not in self._keep:
            self._keep[device] = next(iter(self._keep.values())).to(device)
        return self._keep[device]

    def take(self, x: Tensor, dim: int) -> Tensor:
        """The survivors' part of x."""
        keep = self.keep(x.device)
        if x.shape[dim] == self.n:
            return x.index_select(dim, keep)
        blocks: Tensor = x.unflatten(dim, (self.before, self.n, -1))
        return blocks.index_select(dim + 1, keep).flatten(dim, dim + 2)

    def put(self, x: Tensor, dim: int) -> Tensor:
        """Undo ``take``: zeros for everybody else."""
        blocks: Tensor = x.unflatten(dim, (self.before, self.k, -1))
        full = blocks.new_zeros(*blocks.shape[: dim + 1], self.n, *blocks.shape[dim + 2 :])
        return full.index_add_(dim + 1, self.keep(x.device), blocks).flatten(dim, dim + 2)

    def covers(self, alive: Tensor) -> bool:
        """Whether all these (a mask over a first dimension) are survivors, so that ``take`` loses nothing."""
        if len(alive) % self.n:
            return False
        others = alive.view(self.n, -1).any(1).index_fill(0, self.keep(alive.device), False)
        return not bool(others.any())

    def fits(self, shape: Sequence[int], dim: int) -> bool:
        """Whether that dimension can run over the samples."""
        return len(shape) > dim and shape[dim] > 0 and shape[dim] % (self.before * self.n) == 0


def nonzero_rows(grad: Tensor) -> Tensor:
    """(n,) bool: where along the first dimension anything differs from zero (nan does)."""
    return (
        grad.reshape(grad.shape[0], -1).abs().amax(1) != 0
        if grad.numel()
        else grad.new_zeros(grad.shape[0], dtype=torch.bool)
    )


class Grad(NamedTuple):
    """A gradient of some tensor: of all of it, or (with ``rows``) of the survivors' part along ``dim``."""

    value: Tensor
    rows: Survivors | None = None
    dim: int = 0

    def full(self) -> Tensor:
        return self.value if self.rows is None else self.rows.put(self.value, self.dim)

    def fit(self, shape: Sequence[int]) -> Grad:
        """Sum over what broadcasting repeated, so that this is the gradient of a tensor of the given shape."""
        if self.rows is None:
            return self if self.value.shape == tuple(shape) else Grad(self.value.sum_to_size(tuple(shape)))
        dim = self.dim - (self.value.ndim - len(shape))
        size = self.value.shape[self.dim]
        if dim < 0 or shape[dim] != size // self.rows.k * self.rows.n:
            return Grad(
                self.value.sum_to_size(tuple(shape))
            )  # no samples there: a gradient of something they share
        fitted = (*shape[:dim], size, *shape[dim + 1 :])
        return Grad(
            self.value if self.value.shape == fitted else self.value.sum_to_size(fitted), self.rows, dim
        )

    def __add__(self, other: object) -> Grad:
        if not isinstance(other, Grad):
            return NotImplemented
        if self.rows is other.rows and self.dim == other.dim:
            return Grad(self.value + other.value, self.rows, self.dim)
        return Grad(self.full() + other.full())
