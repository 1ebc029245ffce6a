"""Multi-label softmax (Su 2020), plain, with a temperature, with the k largest terms, and as AS-Softmax.

log(1 + Σ exp x) is computed as the log-sum-exp of x and 0, so that it cannot overflow.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from sparring.losses.base import MultilabelLoss, in_float32, register
from sparring.losses.checks import check_count, check_positive, is_known_true
from sparring.losses.concede import check_concede, concede_value
from sparring.losses.delta import DEFAULT_DELTA, DeltaSchedule, check_delta, delta_value
from sparring.losses.kernels.dense_mean import MAX_SIZE
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


def multilabel_softmax_rows(
    logits: Tensor,
    target: Tensor,
    ignore_index: int = -100,
    concede: float | DeltaSchedule | None = None,
    pos_weight: Tensor | None = None,
) -> RowLosses:
    r"""Push every target class above 0 and every other class below 0.

        loss = log(1 + Σ_{i∈neg} exp(o_i)) + log(1 + Σ_{t∈pos} exp(−o_t))             (Eq. 14)

    logits (N, C), target (N, C) of 0 and 1 -> N rows. Entries with `ignore_index` are in neither sum; another
    label gives NaN. A negative may be masked with -inf; +inf, or -inf for a positive, gives NaN.

    With `pos_weight`, (C,), the terms of the second sum are w_t exp(−o_t): a positive label of weight 3
    counts as three labels with the same logit. It does not enter margins.

    With `concede`, a row with max_neg p − min_pos p > κ is conceded: its loss is 0. p is the softmax over the
    labels of the row that are not ignored.
    """
    labels = Labels.read(target, ignore_index, pos_weight)
    return labels.rows(_without_overflow(logits), labels.positive, labels.negative, labels.valid, concede)


def multilabel_t_softmax_rows(
    logits: Tensor,
    target: Tensor,
    tau: float,
    ignore_index: int = -100,
    pos_weight: Tensor | None = None,
) -> RowLosses:
    r"""Eq. 14 at a temperature: o / τ in place of o."""
    scaled = in_float32(logits) / check_positive("tau", tau)
    return multilabel_softmax_rows(scaled, target, ignore_index, pos_weight=pos_weight)


def multilabel_sparse_softmax_rows(
    logits: Tensor,
    target: Tensor,
    k: int,
    ignore_index: int = -100,
    pos_weight: Tensor | None = None,
) -> RowLosses:
    r"""Eq. 14 with only the k largest terms of each of its two sums."""
    check_count("k", k, note="the number of terms to keep in each sum")
    logits = _without_overflow(logits)
    labels = Labels.read(target, ignore_index, pos_weight)
    positive = _largest(labels.positive_terms(logits), labels.positive, k)
    return labels.rows(logits, positive, _largest(logits, labels.negative, k), labels.valid)


def multilabel_as_softmax_rows(
    logits: Tensor,
    target: Tensor,
    delta: float | DeltaSchedule,
    ignore_index: int = -100,
    concede: float | DeltaSchedule | None = None,
    pos_weight: Tensor | None = None,
) -> RowLosses:
    r"""Eq. 14 against strong opponents only.

        z_i = 0  if min_pos p − p_i > δ  else 1            for negatives (Eq. 15, 17)
        z_t = 0  if p_t − max_neg p > δ  else 1            for positives (Eq. 16, 17)
        loss = log(1 + Σ_{i∈neg} z_i exp(o_i)) + log(1 + Σ_{t∈pos} z_t exp(−o_t))             (Eq. 18)

    p is the softmax over the labels of the row that are not ignored. A row without a positive or without a
    negative label has no margin: nothing is discarded or conceded there. `concede` is that of
    `multilabel_softmax_rows`.
    """
    logits = _without_overflow(logits)
    labels = Labels.read(target, ignore_index, pos_weight)
    positive, negative = labels_within_margin(logits, labels.positive, labels.negative, delta)
    return labels.rows(logits, positive, negative, _any(positive | negative), concede)


def labels_within_margin(
    logits: Tensor, positive: Tensor, negative: Tensor, delta: float | DeltaSchedule
) -> tuple[Tensor, Tensor]:
    """Return the positives and the negatives that Eq. 17 keeps, as two (N, C) masks."""
    threshold = delta_value(delta)
    strict = (
        1 - 4 * torch.finfo(logits.dtype).eps
    )  # a label that meets the margin exactly, to rounding, stays
    p, weakest, strongest = label_probabilities(logits, positive, negative)
    has_both = (_any(positive) & _any(negative))[:, None]
    easy_positive = has_both & (p * strict - strongest > threshold)  # Eq. 16
    easy_negative = has_both & (weakest * strict - p > threshold)  # Eq. 15
    return positive & ~easy_positive, negative & ~easy_negative


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


def _largest(x: Tensor, member: Tensor, k: int) -> Tensor:
    """The k largest members of each row, as a mask."""
    if k >= x.shape[1]:
        return member
    indices = torch.where(member, x.detach(), -torch.inf).topk(k, dim=1).indices
    return member & torch.zeros_like(member).scatter(1, indices, True)


def _without_overflow(logits: Tensor) -> Tensor:
    """Logits in float32 at least, NaN for +inf: in the sum over −o, +inf would pass for a perfect score."""
    logits = in_float32(logits)
    return logits + 0 * logits.relu()


def _any(mask: Tensor) -> Tensor:
    return mask.sum(1) > 0  # any() takes ten times as long


@register("multilabel-softmax", multilabel_softmax_rows, "concede")
class MultilabelSoftmaxLoss(MultilabelLoss):
    """Multi-label softmax (Eq. 14; Su 2020). Predict the classes whose logit is above 0.

    Args:
        ignore_index: The label of entries that are left out, as if their class did not exist.
        reduction: "mean", "sum" or "none".
        concede: κ in [0, 1], or a schedule. A row in which a negative label is ahead of a positive one by
            more than κ is conceded: loss and gradient are exactly 0. None concedes nothing.
        pos_weight: (C,) weights of the positive labels, for rare classes, at least 0. Unlike in
            nn.BCEWithLogitsLoss, where labels are independent, they are factors inside of the sum over the
            positive labels: a label of weight 3 counts as three labels with the same logit.

    >>> MultilabelSoftmaxLoss()(torch.zeros(1, 3), torch.tensor([[1, 0, 0]]))
    tensor(1.7918)
    """

    def __init__(
        self,
        ignore_index: int = -100,
        reduction: str = "mean",
        *,
        concede: float | DeltaSchedule | None = None,
        pos_weight: Tensor | None = None,
    ) -> None:
        super().__init__(ignore_index, reduction, pos_weight)
        self.concede = check_concede(concede)


@register("multilabel-t-softmax", multilabel_t_softmax_rows, "tau")
class MultilabelTSoftmaxLoss(MultilabelLoss):
    """Multi-label softmax at temperature `tau`; `pos_weight` is that of `MultilabelSoftmaxLoss`."""

    def __init__(
        self,
        tau: float = 0.5,
        ignore_index: int = -100,
        reduction: str = "mean",
        *,
        pos_weight: Tensor | None = None,
    ) -> None:
        super().__init__(ignore_index, reduction, pos_weight)
        self.tau = check_positive("tau", tau)


@register("multilabel-sparse-softmax", multilabel_sparse_softmax_rows, "k")
class MultilabelSparseSoftmaxLoss(MultilabelLoss):
    """Multi-label softmax with the `k` largest terms of each sum. The paper's k: 50 on Eurlex, 100 on WOS."""

    def __init__(
        self,
        k: int = 50,
        ignore_index: int = -100,
        reduction: str = "mean",
        *,
        pos_weight: Tensor | None = None,
    ) -> None:
        super().__init__(ignore_index, reduction, pos_weight)
        self.k = check_count("k", k, note="the number of terms to keep in each sum")


@register("multilabel-as-softmax", multilabel_as_softmax_rows, "delta", "concede")
class MultilabelASSoftmaxLoss(MultilabelLoss):
    """Multi-label AS-Softmax (Eq. 15 to 18): a row is won if all positives lead all negatives by more than δ.

    Args:
        delta: The margin in [0, 1], or a schedule from `sparring.delta`. The positives of a row share its
            probability, so the more there are, the smaller δ has to be: the paper uses 0.05 on Eurlex (about
            five labels a document) and 0.35 on WOS (two).
        ignore_index: The label of entries that are left out, as if their class did not exist.
        reduction: "mean", "sum" or "none".
        concede, pos_weight: As in `MultilabelSoftmaxLoss`. The margin does not depend on the weights.

    >>> loss = MultilabelASSoftmaxLoss(delta=0.3)
    >>> loss.rows(torch.tensor([[4.0, 0.0, 1.0], [1.0, 0.8, 0.0]]), torch.tensor([[1, 0, 0], [1, 0, 0]])).won
    tensor([ True, False])
    """

    def __init__(
        self,
        delta: float | DeltaSchedule = DEFAULT_DELTA,
        ignore_index: int = -100,
        reduction: str = "mean",
        *,
        concede: float | DeltaSchedule | None = None,
        pos_weight: Tensor | None = None,
    ) -> None:
        super().__init__(ignore_index, reduction, pos_weight)
        self.delta = check_delta(delta)
        self.concede = check_concede(concede)
