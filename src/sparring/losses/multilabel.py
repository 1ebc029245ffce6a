"""Softmax for multi-label classification (Su 2020) and its variants: temperature, the k largest terms, AS-Softmax.

log(1 + Σ exp x) is the log-sum-exp of x and 0, never exp-then-log: nothing overflows.
"""

from __future__ import annotations

import torch
from torch import Tensor

from sparring.losses.base import MultilabelLoss, in_float32, register
from sparring.losses.checks import check_count, check_positive
from sparring.losses.delta import DeltaSchedule, check_delta, delta_value
from sparring.losses.rows import RowLosses
from sparring.losses.softmax import softmax_rows


def multilabel_softmax_rows(logits: Tensor, target: Tensor, ignore_index: int = -100) -> RowLosses:
    r"""Every target class above 0 and every other below.

        loss = log(1 + Σ_{i∈neg} exp(o_i)) + log(1 + Σ_{t∈pos} exp(−o_t))             (Eq. 14)

    logits (N, C), target (N, C) of 0 and 1 -> N rows. Entries with `ignore_index` are in neither sum. A negative may
    be masked with -inf; +inf, or -inf for a positive, is an overflow and gives NaN.
    """
    positive, negative = target == 1, target == 0
    valid = _any(positive | negative)
    return _rows(_counted(logits), positive, negative, valid, active=valid)


def multilabel_t_softmax_rows(
    logits: Tensor, target: Tensor, tau: float, ignore_index: int = -100
) -> RowLosses:
    r"""Eq. 14 at a temperature: o / τ in place of o."""
    return multilabel_softmax_rows(in_float32(logits) / check_positive("tau", tau), target, ignore_index)


def multilabel_sparse_softmax_rows(
    logits: Tensor, target: Tensor, k: int, ignore_index: int = -100
) -> RowLosses:
    r"""Eq. 14 with only the k largest terms of each of its two sums."""
    check_count("k", k, note="the number of terms to keep in each sum")
    logits = _counted(logits)
    positive, negative = target == 1, target == 0
    valid = _any(positive | negative)
    return _rows(logits, _largest(-logits, positive, k), _largest(logits, negative, k), valid, active=valid)


def multilabel_as_softmax_rows(
    logits: Tensor, target: Tensor, delta: float | DeltaSchedule, ignore_index: int = -100
) -> RowLosses:
    r"""Eq. 14 against strong opponents only.

        z_i = 0  if min_pos p − p_i > δ  else 1            for negatives (Eq. 15, 17)
        z_t = 0  if p_t − max_neg p > δ  else 1            for positives (Eq. 16, 17)
        loss = log(1 + Σ_{i∈neg} z_i exp(o_i)) + log(1 + Σ_{t∈pos} z_t exp(−o_t))             (Eq. 18)

    p is the softmax over the row's classes, ignored ones left out. A row without a positive, or without a negative, has no
    margin to satisfy: nothing is discarded there.
    """
    logits = _counted(logits)
    positive, negative = target == 1, target == 0
    valid = _any(positive | negative)
    positive, negative = strong_labels(logits, positive, negative, delta)
    return _rows(logits, positive, negative, valid, active=_any(positive | negative))


def strong_labels(
    logits: Tensor, positive: Tensor, negative: Tensor, delta: float | DeltaSchedule
) -> tuple[Tensor, Tensor]:
    """The positives and the negatives that Eq. 17 keeps, two (N, C) masks."""
    threshold = delta_value(delta)
    strict = 1 - 4 * torch.finfo(logits.dtype).eps  # what meets the margin, to rounding, stays
    p = torch.softmax(torch.where(positive | negative, logits.detach(), -torch.inf), dim=1)  # (N, C)
    weakest = torch.where(positive, p, 2).amin(1, keepdim=True)
    strongest = torch.where(negative, p, -2).amax(1, keepdim=True)
    both = (_any(positive) & _any(negative))[:, None]
    easy_positive = both & (p * strict - strongest > threshold)  # Eq. 16
    easy_negative = both & (weakest * strict - p > threshold)  # Eq. 15
    return positive & ~easy_positive, negative & ~easy_negative


def _rows(logits: Tensor, positive: Tensor, negative: Tensor, valid: Tensor, active: Tensor) -> RowLosses:
    """Eq. 14 over the given members of each sum."""
    value = _log1p_sum_exp(logits, negative) + _log1p_sum_exp(-logits, positive)
    return RowLosses(torch.where(active, value, 0), valid, active)


def _log1p_sum_exp(x: Tensor, member: Tensor) -> Tensor:
    """log(1 + Σ exp x) = −log softmax(0, x)_0: plain cross entropy of a class with logit 0 against the members."""
    against = torch.cat([torch.zeros_like(x[:, :1]), torch.where(member, x, -torch.inf)], dim=1)
    return softmax_rows(against, torch.zeros_like(x[:, 0], dtype=torch.long)).value


def _largest(x: Tensor, member: Tensor, k: int) -> Tensor:
    """The k largest members of each row."""
    if k >= x.shape[1]:
        return member
    order = torch.where(member, x.detach(), -torch.inf).topk(k, dim=1).indices
    return member & torch.zeros_like(member).scatter(1, order, True)


def _counted(logits: Tensor) -> Tensor:
    """Logits in float32 at least, and NaN for +inf, since 0 · inf is: a sum that takes −o would count it as settled."""
    logits = in_float32(logits)
    return logits + 0 * logits.relu()


def _any(mask: Tensor) -> Tensor:
    return mask.sum(1) > 0  # any() takes ten times as long


@register("multilabel-softmax", multilabel_softmax_rows)
class MultilabelSoftmaxLoss(MultilabelLoss):
    """Su's multi-label softmax (Eq. 14). Predict the classes whose logit is above 0.

    >>> MultilabelSoftmaxLoss()(torch.zeros(1, 3), torch.tensor([[1, 0, 0]]))
    tensor(1.7918)
    """


@register("multilabel-t-softmax", multilabel_t_softmax_rows, "tau")
class MultilabelTSoftmaxLoss(MultilabelLoss):
    """Multi-label softmax at temperature τ."""

    def __init__(self, tau: float = 0.5, ignore_index: int = -100, reduction: str = "mean") -> None:
        super().__init__(ignore_index, reduction)
        self.tau = check_positive("tau", tau)


@register("multilabel-sparse-softmax", multilabel_sparse_softmax_rows, "k")
class MultilabelSparseSoftmaxLoss(MultilabelLoss):
    """Multi-label softmax with the k largest terms of each sum. The paper's k: 50 on Eurlex, 100 on WOS."""

    def __init__(self, k: int = 50, ignore_index: int = -100, reduction: str = "mean") -> None:
        super().__init__(ignore_index, reduction)
        self.k = check_count("k", k, note="the number of terms to keep in each sum")


@register("multilabel-as-softmax", multilabel_as_softmax_rows, "delta")
class MultilabelASSoftmaxLoss(MultilabelLoss):
    """Multi-label AS-Softmax (Eq. 15 to 18). A row is won when its weakest positive leads its strongest negative by δ.

    Probabilities are shared among a row's positives, so δ has to be smaller the more there are: the paper uses 0.05 on Eurlex (about five
    labels a document) and 0.35 on WOS (two).
    """

    def __init__(
        self, delta: float | DeltaSchedule = 0.3, ignore_index: int = -100, reduction: str = "mean"
    ) -> None:
        super().__init__(ignore_index, reduction)
        self.delta = check_delta(delta)
