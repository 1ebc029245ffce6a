"""RowLosses: the result of every loss, with the masks that training and diagnostics read."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from sparring.losses.checks import under_autocast
from sparring.losses.kernels.modes import at_least_float32

REDUCTIONS = ("none", "mean", "sum")
EXTRAS = ("nll", "log_prob", "entropy", "margin", "correct")


def check_reduction(reduction: str) -> str:
    if reduction not in REDUCTIONS:
        raise ValueError(f"reduction must be one of {', '.join(REDUCTIONS)}; got {reduction!r}")
    return reduction


def class_last(input: Tensor) -> Tensor:
    """(C,), (N, C) or (N, C, d1, …) to (N, d1, …, C): one row of logits per target."""
    return input if input.dim() <= 2 else input.movedim(1, -1)


def row_shape(input: Tensor, target: Tensor) -> torch.Size:
    """The shape of the row losses: that of class indices, or of class probabilities without the classes."""
    return target.shape if target.shape != input.shape else class_last(input).shape[:-1]


def valid_targets(target: Tensor, ignore_index: int) -> tuple[Tensor, Tensor]:
    """Return targets that are safe to index with (0 for ignored rows), and the mask of valid rows."""
    valid = target != ignore_index
    return torch.where(valid, target, 0), valid


def row_weights(weight: Tensor, target: Tensor, valid: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the class weight of each row's target: 0 for ignored rows, even if a weight is NaN or inf."""
    return torch.where(valid, weight.to(dtype)[target], 0)


def loss_dtype(input: Tensor) -> torch.dtype:
    """The dtype of F.cross_entropy: float32 under autocast, else the input's."""
    return at_least_float32(input.dtype) if under_autocast(input) else input.dtype


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
            return _nll_sum(self.value) / self.valid.sum().clamp(min=1).neg()
        total = _sum(self.weight.masked_fill(~self.valid, 0))
        return self.sum() / torch.where(total == 0, 1, total)

    def reduce(self, reduction: str) -> Tensor:
        """Reduce like nn.CrossEntropyLoss: ``"none"`` for (N,) losses, ``"mean"`` or ``"sum"``."""
        check_reduction(reduction)
        if reduction == "none":
            return self.weighted()
        return self.mean() if reduction == "mean" else self.sum()


def _sum(value: Tensor) -> Tensor:
    return -_nll_sum(value)


def _nll_sum(value: Tensor) -> Tensor:
    """−Σ value in the order in which F.cross_entropy sums, so that both agree to the bit."""
    return F.nll_loss(value.unsqueeze(1), torch.zeros_like(value, dtype=torch.long), reduction="sum")


def check_extras(extras: Sequence[str]) -> tuple[str, ...]:
    """Names of extras, as a tuple."""
    names = (extras,) if isinstance(extras, str) else tuple(extras)
    if unknown := [name for name in names if name not in EXTRAS]:
        raise ValueError(f"extras must be some of {', '.join(EXTRAS)}; got {', '.join(map(repr, unknown))}")
    return names


class RowStatistics(NamedTuple):
    """Numbers of N rows that all extras follow from. Logits are relative to the largest one of their row."""

    logsumexp: Tensor  # log Σ_i exp o_i
    target: Tensor  # o_t
    mean: Tensor  # Σ_i p_i o_i
    rival: Tensor  # max_{i≠t} o_i; -inf without another class

    def extras(self, valid: Tensor, names: Sequence[str]) -> dict[str, Tensor]:
        """The extras of these names, 0 or False for rows that are not valid."""
        log_prob = self.target - self.logsumexp
        values: dict[str, Tensor] = {}
        for name in names:
            if name == "correct":
                values[name] = valid & (self.target >= self.rival)
                continue
            if name == "nll":
                value = -log_prob
            elif name == "log_prob":
                value = log_prob
            elif name == "entropy":
                value = self.logsumexp - self.mean
            else:
                value = log_prob.exp() - (self.rival - self.logsumexp).exp()
            values[name] = torch.where(valid, value, 0)
        return values


def row_statistics(logits: Tensor, target: Tensor, valid: Tensor) -> RowStatistics:
    """The statistics of (N, C) logits in differentiable operations. Rows that are not valid get no gradient.

    logits are in float32 at least, target holds N classes.
    """
    index = target[:, None]
    logits = torch.where(valid[:, None], logits, 0)
    shifted = logits - logits.detach().amax(1, keepdim=True)
    logsumexp = shifted.logsumexp(1)
    finite = torch.where(shifted == -torch.inf, 0, shifted)  # p is 0 there, but 0 times -inf is NaN
    mean = ((shifted - logsumexp[:, None]).exp() * finite).sum(1)
    rival = shifted.scatter(1, index, -torch.inf).amax(1)
    return RowStatistics(logsumexp, shifted.gather(1, index).squeeze(1), mean, rival)


def row_extras(logits: Tensor, target: Tensor, valid: Tensor, extras: Sequence[str]) -> dict[str, Tensor]:
    """The extras of these names, from logits. For the arguments see `row_statistics`."""
    names = check_extras(extras)
    return row_statistics(logits, target, valid).extras(valid, names)
