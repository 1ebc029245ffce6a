"""The loss family: one file per idea, each with its equation as a pure row function and a thin module."""

from sparring.losses.am_softmax import AMSoftmaxLoss, CosineLinear
from sparring.losses.as_softmax import ASLogitLoss, ASSoftmaxLoss
from sparring.losses.base import Loss, list_losses, make_loss
from sparring.losses.entmax import Entmax15Loss, SparsemaxLoss
from sparring.losses.multilabel import MultilabelASSoftmaxLoss, MultilabelSoftmaxLoss, MultilabelSparseSoftmaxLoss, MultilabelTSoftmaxLoss
from sparring.losses.softmax import LabelSmoothingLoss, SoftmaxLoss, TSoftmaxLoss
from sparring.losses.topk_softmax import SparseSoftmaxLoss

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
    "list_losses",
    "make_loss",
]
