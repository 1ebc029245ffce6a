"""RowLosses: the result of every loss, with the masks that training and diagnostics read."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

REDUCTIONS = ("none", "mean", "sum")


def check_reduction(reduction: str) -> str:
    if reduction not in REDUCTIONS:
        raise ValueError(f"reduction must be one of {', '.join(REDUCTIONS)}; got {reduction!r}")
    return reduction


class RowLosses(NamedTuple):
    """The losses of N rows and their state. A row is one sample, or one token.

    A row is *ignored* if its target is ``ignore_index``, *won* if no opponent is left in its softmax,
    *conceded* if an opponent is too far ahead of its target, and *active* otherwise. Loss and gradient are
    exactly 0 for all but active rows, so only these need a backward pass.

    >>> flags = torch.tensor([[True, True, False], [True, False, False]])
    >>> rows = RowLosses(torch.tensor([0.5, 0, 0]), valid=flags[0], active=flags[1])
    >>> rows.mean(), rows.won_share()
    (tensor(0.2500), tensor(0.5000))

    `extras`, where asked for (``loss.rows(input, target, extras=("nll", "entropy"))``), come from the softmax
    over all classes, whatever the loss leaves out. They are 0 for ignored rows.

    - ``"nll"``: negative log-likelihood of the target, −log p_t. ``"log_prob"``: log p_t.
    - ``"entropy"``: −Σ_i p_i log p_i.
    - ``"margin"``: p_t − max_{i≠t} p_i.
    - ``"correct"``: bool, no other class has a larger logit. The others are differentiable.
    """

    value: Tensor  # (N,) loss; exactly 0 if the row is not active
    valid: Tensor  # (N,) bool: target != ignore_index
    active: Tensor  # (N,) bool: valid and not conceded, with at least one opponent left
    weight: Tensor | None = None  # (N,) class weight of the target, if the loss has class weights
    conceded: Tensor | None = (
        None  # (N,) bool: valid rows that were conceded; None: the loss concedes nothing
    )
    extras: dict[str, Tensor] | None = None  # (N,) tensors by name, those that were asked for

    @property
    def won(self) -> Tensor:
        """(N,) bool: valid rows without an opponent left."""
        inactive = self.valid & ~self.active
        return inactive if self.conceded is None else inactive & ~self.conceded

    def won_share(self) -> Tensor:
        """Won rows over valid rows as a 0-d tensor, without a device sync; 0 if no row is valid."""
        return self.won.sum() / self.valid.sum().clamp(min=1)

    def weighted(self) -> Tensor:
        """(N,) row losses times their class weights."""
        return self.value if self.weight is None else self.value * self.weight

    def scaled(self, row_weight: Tensor | None) -> "RowLosses":
        """The same rows with losses times a weight of each row; 0 stays 0, even times NaN.

        `mean` divides by what it divides by without them.
        """
        if row_weight is None:
            return self
        if row_weight.numel() != self.value.numel():
            raise ValueError(
                f"row_weight has shape {tuple(row_weight.shape)}, expected one weight for each of"
                f" {self.value.numel()} rows, in the order of the targets"
            )
        row_weight = row_weight.reshape(-1).to(self.value.dtype)
        return self._replace(value=torch.where(self.active, self.value * row_weight, 0))

    def sum(self) -> Tensor:
        """Σ w·l."""
        return _sum(self.weighted())

    def mean(self) -> Tensor:
        """Σ w·l / Σ w over the valid rows, won and conceded ones too; a graph-connected 0 without any."""
        if self.weight is None:
            return self.sum() / self.valid.sum().clamp(min=1)
        total = _sum(self.weight.masked_fill(~self.valid, 0))
        return self.sum() / torch.where(total == 0, 1, total)

    def reduce(self, reduction: str) -> Tensor:
        """Reduce like nn.CrossEntropyLoss: ``"none"`` for (N,) losses, ``"mean"`` or ``"sum"``."""
        check_reduction(reduction)
        if reduction == "none":
            return self.weighted()
        return self.mean() if reduction == "mean" else self.sum()


def _sum(value: Tensor) -> Tensor:
    """Sum in the order in which F.cross_entropy sums, so that both agree to the bit."""
    return -F.nll_loss(value.unsqueeze(1), torch.zeros_like(value, dtype=torch.long), reduction="sum")
