"""RowLosses: what every loss returns and everything downstream reads."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

REDUCTIONS = ("none", "mean", "sum")


class RowLosses(NamedTuple):
    """The losses of N rows, and which of them still matter. One row is one sample, or one token.

    Our words: a row is *ignored* when its target is ``ignore_index``, *won* when no opponent is left in its
    softmax (loss and gradient exactly 0), *active* otherwise. Only active rows need a backward.

    >>> rows = RowLosses(torch.tensor([0.5, 0.0, 0.0]), torch.tensor([True, True, False]), torch.tensor([True, False, False]))
    >>> rows.mean(), rows.won_share()
    (tensor(0.2500), tensor(0.5000))
    """

    value: Tensor  # (N,) loss; exactly 0 where the row is won or ignored
    valid: Tensor  # (N,) bool: target != ignore_index
    active: Tensor  # (N,) bool: valid and at least one opponent left, so it needs a backward
    weight: Tensor | None = None  # (N,) class weight of the target where class weights are given

    @property
    def won(self) -> Tensor:
        """(N,) bool: valid rows with no opponent left."""
        return self.valid & ~self.active

    def won_share(self) -> Tensor:
        """Won rows over valid rows, as a 0-d tensor (no device sync); 0 where no row is valid."""
        return self.won.sum() / self.valid.sum().clamp(min=1)

    def weighted(self) -> Tensor:
        """(N,) row losses times their class weights."""
        return self.value if self.weight is None else self.value * self.weight

    def sum(self) -> Tensor:
        """Σ w·l."""
        return _sum(self.weighted())

    def mean(self) -> Tensor:
        """Σ w·l / Σ w over the valid rows, won ones included; a graph-connected 0 where there are none."""
        if self.weight is None:
            return self.sum() / self.valid.sum().clamp(min=1)
        total = _sum(self.weight.masked_fill(~self.valid, 0))
        return self.sum() / torch.where(total == 0, 1, total)

    def reduce(self, reduction: str) -> Tensor:
        """``"none"`` (N,), ``"mean"`` or ``"sum"``, as nn.CrossEntropyLoss reduces."""
        match reduction:
            case "none":
                return self.weighted()
            case "mean":
                return self.mean()
            case "sum":
                return self.sum()
        raise ValueError(f"reduction must be one of {', '.join(REDUCTIONS)}; got {reduction!r}")


def _sum(value: Tensor) -> Tensor:
    """Σ value in the order in which F.cross_entropy sums, so that ours and torch's agree to the bit."""
    return -F.nll_loss(value.unsqueeze(1), torch.zeros_like(value, dtype=torch.long), reduction="sum")
