"""Sparring: classification losses that train only against strong opponents, and training that does not pay for what is won."""

from sparring import functional, skip
from sparring.heads.linear import (
    LinearASSoftmaxLoss,
    LinearLoss,
    LinearMultilabelASSoftmaxLoss,
    LinearSoftmaxLoss,
    LinearSparseSoftmaxLoss,
)
from sparring.heads.parallel import ClassParallelHead
from sparring.losses import (
    AMSoftmaxLoss,
    ASLogitLoss,
    ASSoftmaxLoss,
    CosineLinear,
    Entmax15Loss,
    LabelSmoothingLoss,
    Loss,
    MultilabelASSoftmaxLoss,
    MultilabelSoftmaxLoss,
    MultilabelSparseSoftmaxLoss,
    MultilabelTSoftmaxLoss,
    SoftmaxLoss,
    SparsemaxLoss,
    SparseSoftmaxLoss,
    TSoftmaxLoss,
    list_losses,
    make_loss,
)
from sparring.losses.as_softmax import as_softmax
from sparring.losses.delta import (
    AdaptiveDelta,
    ConstantDelta,
    CosineDelta,
    DeltaSchedule,
    LinearDelta,
    WarmupDelta,
)
from sparring.losses.diagnostics import kept_classes, margins
from sparring.losses.rows import RowLosses
from sparring.training import AdaptiveAccumulation, DivergenceError, RevisitSampler, Scorecard

__version__ = "0.1.0"

__all__ = [
    "AMSoftmaxLoss",
    "ASLogitLoss",
    "ASSoftmaxLoss",
    "AdaptiveAccumulation",
    "AdaptiveDelta",
    "ClassParallelHead",
    "ConstantDelta",
    "CosineDelta",
    "CosineLinear",
    "DeltaSchedule",
    "DivergenceError",
    "Entmax15Loss",
    "LabelSmoothingLoss",
    "LinearASSoftmaxLoss",
    "LinearDelta",
    "LinearLoss",
    "LinearMultilabelASSoftmaxLoss",
    "LinearSoftmaxLoss",
    "LinearSparseSoftmaxLoss",
    "Loss",
    "MultilabelASSoftmaxLoss",
    "MultilabelSoftmaxLoss",
    "MultilabelSparseSoftmaxLoss",
    "MultilabelTSoftmaxLoss",
    "RevisitSampler",
    "RowLosses",
    "Scorecard",
    "SoftmaxLoss",
    "SparseSoftmaxLoss",
    "SparsemaxLoss",
    "TSoftmaxLoss",
    "WarmupDelta",
    "__version__",
    "as_softmax",
    "functional",
    "kept_classes",
    "list_losses",
    "make_loss",
    "margins",
    "skip",
]
