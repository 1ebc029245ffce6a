"""The loss family: one file per idea, each with its equation as a pure row function and a thin module."""

from sparring.losses.am_softmax import AMSoftmaxLoss, CosineLinear, am_softmax_rows
from sparring.losses.as_softmax import ASLogitLoss, ASSoftmaxLoss, as_logit_rows, as_softmax_rows
from sparring.losses.base import Loss, list_losses, make_loss
from sparring.losses.entmax import Entmax15Loss, SparsemaxLoss, entmax15_rows, sparsemax_rows
from sparring.losses.multilabel import (
    MultilabelASSoftmaxLoss,
    MultilabelSoftmaxLoss,
    MultilabelSparseSoftmaxLoss,
    MultilabelTSoftmaxLoss,
    multilabel_as_softmax_rows,
    multilabel_softmax_rows,
    multilabel_sparse_softmax_rows,
    multilabel_t_softmax_rows,
)
from sparring.losses.softmax import (
    LabelSmoothingLoss,
    SoftmaxLoss,
    TSoftmaxLoss,
    label_smoothing_rows,
    softmax_rows,
    t_softmax_rows,
)
from sparring.losses.sparse_softmax import SparseSoftmaxLoss, sparse_softmax_rows

__all__ = [
    "AMSoftmaxLoss",
    "ASLogitLoss",
    "ASSoftmaxLoss",
    "CosineLinear",
    "Entmax15Loss",
    "LabelSmoothingLoss",
    "Loss",
    "MultilabelASSoftmaxLoss",
    "MultilabelSoftmaxLoss",
    "MultilabelSparseSoftmaxLoss",
    "MultilabelTSoftmaxLoss",
    "SoftmaxLoss",
    "SparseSoftmaxLoss",
    "SparsemaxLoss",
    "TSoftmaxLoss",
    "am_softmax_rows",
    "as_logit_rows",
    "as_softmax_rows",
    "entmax15_rows",
    "label_smoothing_rows",
    "list_losses",
    "make_loss",
    "multilabel_as_softmax_rows",
    "multilabel_softmax_rows",
    "multilabel_sparse_softmax_rows",
    "multilabel_t_softmax_rows",
    "softmax_rows",
    "sparse_softmax_rows",
    "sparsemax_rows",
    "t_softmax_rows",
]
