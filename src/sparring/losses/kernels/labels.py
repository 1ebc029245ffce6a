"""The labels of multi-label rows, and the two sums over them (Eq. 14)."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from sparring.losses.checks import is_known_true
from sparring.losses.concede import concede_value
from sparring.losses.delta import DeltaSchedule
from sparring.losses.kernels.mean_node import MAX_SIZE
from sparring.losses.rows import RowLosses
from sparring.losses.softmax import softmax_rows


class Labels(NamedTuple):
    """The labels of N rows as masks."""

    positive: Tensor  # (N, C) bool: label 1
    negative: Tensor  # (N, C) bool: label 0
    valid: Tensor  # (N,) bool: at least one label is not ignored
    undefined: Tensor | None  # (N,) bool: a label is neither 0, 1 nor ignore_index; None: no row
    log_pos_weight: Tensor | None  # (C,); None: all 0

    @classmethod
    def read(cls, target: Tensor, ignore_index: int, pos_weight: Tensor | None = None) -> "Labels":
        log_pos_weight = None if pos_weight is None else pos_weight.log()
        positive = target == 1
        negative = target == 0
        n_classes = target.shape[1]
        n_counted = (positive | negative).sum(1)
        if target.dtype == torch.bool or is_known_true(n_counted == n_classes):
            return cls(positive, negative, n_counted > 0, None, log_pos_weight)
        n_ignored = (target == ignore_index).sum(1)
        undefined = n_counted + n_ignored < n_classes
        return cls(positive, negative, n_ignored < n_classes, undefined, log_pos_weight)

    def positive_terms(self, logits: Tensor) -> Tensor:
        """log(w_t exp(−o_t)) for all classes, as if they were positive labels."""
        return -logits if self.log_pos_weight is None else self.log_pos_weight.to(logits.dtype) - logits

    def rows(
        self,
        logits: Tensor,
        positive: Tensor,
        negative: Tensor,
        active: Tensor,
        concede: float | DeltaSchedule | None = None,
    ) -> RowLosses:
        """Eq. 14 over the given positives and negatives. A row with an undefined label is NaN.

        A row is conceded if a negative label is ahead of a positive one by more than κ = `concede`.
        """
        value = _log1p_sum_exp(logits, negative)
        value = value + _log1p_sum_exp(self.positive_terms(logits), positive)
        if self.undefined is not None:  # values cannot be checked without a device sync: fail loudly instead
            value = value * torch.ones_like(value).masked_fill(self.undefined, torch.nan)
            active = active | self.undefined
        conceded = None
        if (kappa := concede_value(concede)) < 1:
            _, weakest, strongest = label_probabilities(logits, self.positive, self.negative)
            behind = strongest - weakest > kappa + 4 * torch.finfo(logits.dtype).eps
            conceded = behind.squeeze(1) & ~value.isnan()
            active = active & ~conceded
        return RowLosses(torch.where(active, value, 0), self.valid, active, conceded=conceded)


def label_probabilities(logits: Tensor, positive: Tensor, negative: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return p of all labels, (N, C), the smallest of the positives and the largest of the negatives, (N, 1).

    p carries no gradient. The smallest of no positives is 2, the largest of no negatives is −2.
    """
    p = torch.softmax(torch.where(positive | negative, logits.detach(), -torch.inf), dim=1)
    weakest = torch.where(positive, p, 2).amin(1, keepdim=True)
    strongest = torch.where(negative, p, -2).amax(1, keepdim=True)
    return p, weakest, strongest


def _log1p_sum_exp(x: Tensor, member: Tensor) -> Tensor:
    """log(1 + Σ exp x) = −log softmax(0, x)_0: cross entropy of a class with logit 0 against the members."""
    with_zero = torch.cat([torch.zeros_like(x[:, :1]), torch.where(member, x, -torch.inf)], dim=1)
    zeros = torch.zeros_like(x[:, 0], dtype=torch.long)
    if with_zero.numel() <= MAX_SIZE:
        return F.cross_entropy(with_zero, zeros, reduction="none")
    return softmax_rows(with_zero, zeros).value  # needs less memory
