"""Multi-label softmax (Su 2020), plain, with a temperature, with the k largest terms, and as AS-Softmax.

log(1 + Σ exp x) is computed as the log-sum-exp of x and 0, so that it cannot overflow.
"""

import torch
from torch import Tensor

from sparring.losses.base import MultilabelLoss, register
from sparring.losses.checks import check_count, check_positive
from sparring.losses.concede import check_concede
from sparring.losses.delta import DEFAULT_DELTA, DeltaSchedule, check_delta, delta_value
from sparring.losses.kernels.labels import Labels, label_probabilities
from sparring.losses.kernels.mean_node import MEANS, MeanForm, small_mean
from sparring.losses.kernels.modes import in_float32
from sparring.losses.kernels.multilabel_mean import is_small_multilabel, multilabel_mean
from sparring.losses.rows import RowLosses


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


def _softmax_mean(
    logits: Tensor, target: Tensor, ignore_index: int, concede: float | DeltaSchedule | None = None
) -> Tensor | None:
    if concede is not None or not is_small_multilabel(logits, target, ignore_index):
        return None
    return small_mean(_FORM, logits, target, None)


def _as_softmax_mean(
    logits: Tensor,
    target: Tensor,
    ignore_index: int,
    delta: float | DeltaSchedule,
    concede: float | DeltaSchedule | None = None,
) -> Tensor | None:
    if concede is not None or not is_small_multilabel(logits, target, ignore_index):
        return None
    return small_mean(_FORM, logits, target, delta_value(delta))


def _rows(logits: Tensor, target: Tensor, delta: float | None) -> RowLosses:
    if delta is None:
        return multilabel_softmax_rows(logits, target)
    return multilabel_as_softmax_rows(logits, target, delta)


_FORM = MeanForm(multilabel_mean, _rows)
MEANS[multilabel_softmax_rows] = _softmax_mean
MEANS[multilabel_as_softmax_rows] = _as_softmax_mean


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
