"""The losses. Each file has the equation as a pure function of rows, and a module around it."""

from sparring.losses.am_softmax import AMSoftmaxLoss as AMSoftmaxLoss
from sparring.losses.am_softmax import CosineLinear as CosineLinear
from sparring.losses.as_softmax import ASLogitLoss as ASLogitLoss
from sparring.losses.as_softmax import ASSoftmaxLoss as ASSoftmaxLoss
from sparring.losses.base import Loss as Loss
from sparring.losses.base import list_losses as list_losses
from sparring.losses.base import make_loss as make_loss
from sparring.losses.entmax import Entmax15Loss as Entmax15Loss
from sparring.losses.entmax import SparsemaxLoss as SparsemaxLoss
from sparring.losses.multilabel import MultilabelASSoftmaxLoss as MultilabelASSoftmaxLoss
from sparring.losses.multilabel import MultilabelSoftmaxLoss as MultilabelSoftmaxLoss
from sparring.losses.multilabel import MultilabelSparseSoftmaxLoss as MultilabelSparseSoftmaxLoss
from sparring.losses.multilabel import MultilabelTSoftmaxLoss as MultilabelTSoftmaxLoss
from sparring.losses.robust.focal import FocalLoss as FocalLoss
from sparring.losses.robust.gce import GCELoss as GCELoss
from sparring.losses.robust.sce import SCELoss as SCELoss
from sparring.losses.softmax import LabelSmoothingLoss as LabelSmoothingLoss
from sparring.losses.softmax import SoftmaxLoss as SoftmaxLoss
from sparring.losses.softmax import TSoftmaxLoss as TSoftmaxLoss
from sparring.losses.sparse_softmax import SparseSoftmaxLoss as SparseSoftmaxLoss
