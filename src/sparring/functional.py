"""The losses as functions: the arguments of F.cross_entropy, then the settings of the loss as keywords.

The module of the same name documents each loss: `ASSoftmaxLoss` for `as_softmax_loss`. Defaults are the same.
"""

from typing import Any

from torch import Tensor

from sparring.heads.functional import (
    linear_as_softmax_loss,
    linear_multilabel_as_softmax_loss,
    linear_softmax_loss,
    linear_sparse_softmax_loss,
)
from sparring.losses.am_softmax import am_softmax_rows
from sparring.losses.as_softmax import as_logit_rows, as_softmax, as_softmax_rows
from sparring.losses.base import RowFunction, class_loss, multilabel_rows, reduce
from sparring.losses.delta import DEFAULT_DELTA, DeltaSchedule
from sparring.losses.entmax import entmax15_rows, sparsemax_rows
from sparring.losses.kernels.mean_node import short_mean
from sparring.losses.multilabel import (
    multilabel_as_softmax_rows,
    multilabel_softmax_rows,
    multilabel_sparse_softmax_rows,
    multilabel_t_softmax_rows,
)
from sparring.losses.robust.functional import focal_loss, gce_loss, sce_loss
from sparring.losses.softmax import label_smoothing_rows, softmax_rows, t_softmax_rows
from sparring.losses.sparse_softmax import sparse_softmax_rows

__all__ = [
    "am_softmax_loss",
    "as_logit_loss",
    "as_softmax",
    "as_softmax_loss",
    "entmax15_loss",
    "focal_loss",
    "gce_loss",
    "label_smoothing_loss",
    "linear_as_softmax_loss",
    "linear_multilabel_as_softmax_loss",
    "linear_softmax_loss",
    "linear_sparse_softmax_loss",
    "multilabel_as_softmax_loss",
    "multilabel_softmax_loss",
    "multilabel_sparse_softmax_loss",
    "multilabel_t_softmax_loss",
    "sce_loss",
    "softmax_loss",
    "sparse_softmax_loss",
    "sparsemax_loss",
    "t_softmax_loss",
]


def softmax_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    *,
    concede: float | DeltaSchedule | None = None,
) -> Tensor:
    """Cross entropy of the softmax (Eq. 2)."""
    return class_loss(softmax_rows, input, target, weight, ignore_index, reduction, concede=concede)


def t_softmax_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    *,
    tau: float = 0.5,
) -> Tensor:
    """Cross entropy at a temperature (Eq. 20)."""
    return class_loss(t_softmax_rows, input, target, weight, ignore_index, reduction, tau=tau)


def label_smoothing_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    *,
    epsilon: float = 0.1,
) -> Tensor:
    """Cross entropy against labels softened by ε/(n−1) (paper A.3; torch softens by ε/n)."""
    return class_loss(label_smoothing_rows, input, target, weight, ignore_index, reduction, epsilon=epsilon)


def sparse_softmax_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    *,
    k: int = 20,
) -> Tensor:
    """Cross entropy over the k largest logits (Sun et al., Eq. 5)."""
    return class_loss(sparse_softmax_rows, input, target, weight, ignore_index, reduction, k=k)


def sparsemax_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    """The sparsemax loss (Martins & Astudillo 2016)."""
    return class_loss(sparsemax_rows, input, target, weight, ignore_index, reduction)


def entmax15_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    """The 1.5-entmax loss (Peters et al. 2019)."""
    return class_loss(entmax15_rows, input, target, weight, ignore_index, reduction)


def am_softmax_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    *,
    scale: float = 10.0,
    margin: float = 0.3,
) -> Tensor:
    """Cross entropy with a margin subtracted from the target's logit (Eq. 21)."""
    settings = {"scale": scale, "margin": margin}
    return class_loss(am_softmax_rows, input, target, weight, ignore_index, reduction, **settings)


def as_softmax_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    *,
    delta: float | DeltaSchedule = DEFAULT_DELTA,
    concede: float | DeltaSchedule | None = None,
) -> Tensor:
    """Cross entropy against strong opponents only (Eq. 6 and 7)."""
    settings = {"delta": delta, "concede": concede}
    return class_loss(as_softmax_rows, input, target, weight, ignore_index, reduction, **settings)


def as_logit_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    *,
    margin: float = 2.0,
    concede: float | DeltaSchedule | None = None,
) -> Tensor:
    """Cross entropy against the opponents within a margin of logits (Eq. 8)."""
    settings = {"margin": margin, "concede": concede}
    return class_loss(as_logit_rows, input, target, weight, ignore_index, reduction, **settings)


def multilabel_softmax_loss(
    input: Tensor,
    target: Tensor,
    ignore_index: int = -100,
    reduction: str = "mean",
    *,
    concede: float | DeltaSchedule | None = None,
    pos_weight: Tensor | None = None,
) -> Tensor:
    """Multi-label softmax (Eq. 14; Su 2020)."""
    settings = {"concede": concede, "pos_weight": pos_weight}
    return _multilabel_loss(multilabel_softmax_rows, input, target, ignore_index, reduction, **settings)


def multilabel_t_softmax_loss(
    input: Tensor,
    target: Tensor,
    ignore_index: int = -100,
    reduction: str = "mean",
    *,
    tau: float = 0.5,
    pos_weight: Tensor | None = None,
) -> Tensor:
    """Multi-label softmax at a temperature."""
    settings = {"tau": tau, "pos_weight": pos_weight}
    return _multilabel_loss(multilabel_t_softmax_rows, input, target, ignore_index, reduction, **settings)


def multilabel_sparse_softmax_loss(
    input: Tensor,
    target: Tensor,
    ignore_index: int = -100,
    reduction: str = "mean",
    *,
    k: int = 50,
    pos_weight: Tensor | None = None,
) -> Tensor:
    """Multi-label softmax with the k largest terms of each sum."""
    settings = {"k": k, "pos_weight": pos_weight}
    return _multilabel_loss(
        multilabel_sparse_softmax_rows, input, target, ignore_index, reduction, **settings
    )


def multilabel_as_softmax_loss(
    input: Tensor,
    target: Tensor,
    ignore_index: int = -100,
    reduction: str = "mean",
    *,
    delta: float | DeltaSchedule = DEFAULT_DELTA,
    concede: float | DeltaSchedule | None = None,
    pos_weight: Tensor | None = None,
) -> Tensor:
    """Multi-label AS-Softmax (Eq. 15 to 18)."""
    settings = {"delta": delta, "concede": concede, "pos_weight": pos_weight}
    return _multilabel_loss(multilabel_as_softmax_rows, input, target, ignore_index, reduction, **settings)


def _multilabel_loss(
    row_function: RowFunction,
    input: Tensor,
    target: Tensor,
    ignore_index: int,
    reduction: str,
    **settings: Any,
) -> Tensor:
    if reduction == "mean" and settings.get("pos_weight") is None:
        settings.pop("pos_weight", None)
        mean = short_mean(row_function, input, target, ignore_index, **settings)
        if mean is not None:
            return mean
    rows = multilabel_rows(row_function, input, target, ignore_index, **settings)
    return reduce(rows, reduction, input, target.shape[:-1])
