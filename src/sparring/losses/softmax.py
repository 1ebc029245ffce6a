"""Softmax with cross entropy, and two variations of it: temperature and label smoothing."""

import torch
import torch.nn.functional as F
from torch import Tensor

from sparring.losses.base import ClassLoss, register, valid_targets
from sparring.losses.checks import check_positive, check_range
from sparring.losses.concede import check_concede, concede_value
from sparring.losses.delta import DeltaSchedule
from sparring.losses.kernels.dense_mean import dense_mean
from sparring.losses.kernels.margin_softmax import margin_softmax_rows
from sparring.losses.kernels.mean_node import MEANS, is_small
from sparring.losses.kernels.modes import in_float32
from sparring.losses.kernels.rule import SOFTMAX_RULE, MarginRule
from sparring.losses.rows import RowLosses
from sparring.losses.soft_targets import SOFT_TARGETS, keep_all, scale, smooth


def softmax_rows(
    logits: Tensor,
    target: Tensor,
    ignore_index: int = -100,
    concede: float | DeltaSchedule | None = None,
) -> RowLosses:
    r"""Plain cross entropy.

        loss = log Σ_i exp(o_i) − o_t             (Eq. 2)

    logits (N, C), target (N,) -> N rows. No valid row is ever won, since every opponent stays. With
    `concede`, a row with max_i p_i − p_t > κ is conceded: its loss is 0.
    """
    return margin_softmax_rows(logits, target, _rule(concede), ignore_index)


def _rule(concede: float | DeltaSchedule | None) -> MarginRule:
    return SOFTMAX_RULE if concede is None else SOFTMAX_RULE._replace(concede=concede_value(concede))


def softmax_mean(
    logits: Tensor, target: Tensor, ignore_index: int, concede: float | DeltaSchedule | None = None
) -> Tensor | None:
    return dense_mean(logits, target, _rule(concede), ignore_index)


MEANS[softmax_rows] = softmax_mean


def t_softmax_rows(logits: Tensor, target: Tensor, tau: float, ignore_index: int = -100) -> RowLosses:
    r"""Cross entropy at a temperature: softmax of o / τ (Eq. 20). τ > 1 smooths, τ < 1 sharpens."""
    scaled = in_float32(logits) / check_positive("tau", tau)
    return softmax_rows(scaled, target, ignore_index)


def label_smoothing_rows(
    logits: Tensor, target: Tensor, epsilon: float, ignore_index: int = -100
) -> RowLosses:
    r"""Cross entropy against softened labels, as the paper's A.3 defines them.

        loss = −(1 − ε) log p_t − ε/(n−1) Σ_{i≠t} log p_i

    The target keeps 1 − ε and each other class gets ε/(n−1). torch's ``label_smoothing`` spreads ε over all n
    classes including the target: torch's ε equals ours at ε·(n−1)/n. A class that is masked with -inf gets
    its share of ε too, so the loss is inf, as in torch; the gradient is still p − softened labels.
    """
    check_epsilon(epsilon)
    target, valid = valid_targets(target, ignore_index)
    index = target[:, None]
    n_classes = logits.shape[1]
    logp = torch.log_softmax(torch.where(valid[:, None], in_float32(logits), 0), dim=1)  # (N, C)
    value = -(1 - epsilon) * logp.gather(1, index).squeeze(1)
    if epsilon > 0 and n_classes > 1:
        value = value - epsilon / (n_classes - 1) * logp.scatter(1, index, 0).sum(1)
    return RowLosses(torch.where(valid, value, 0), valid, valid & ((n_classes > 1) | value.isnan()))


def _label_smoothing_mean(logits: Tensor, target: Tensor, ignore_index: int, epsilon: float) -> Tensor | None:
    """The mean by torch's label smoothing, which spreads its ε over all n classes."""
    if not is_small(logits, target, ignore_index) or logits.dtype.itemsize < 4 or target.min().item() < 0:
        return None
    spread = check_epsilon(epsilon) * logits.shape[1] / (logits.shape[1] - 1)
    if spread > 1:
        return None
    try:
        return F.cross_entropy(logits, target, label_smoothing=spread)
    except IndexError:  # a target that is no class
        return None


MEANS[label_smoothing_rows] = _label_smoothing_mean
SOFT_TARGETS |= {softmax_rows: keep_all, t_softmax_rows: scale, label_smoothing_rows: smooth}


def check_epsilon(epsilon: float) -> float:
    if check_range("epsilon", epsilon, 0, 1, note="epsilon=0 is plain softmax") == 1:
        raise ValueError("epsilon must be below 1, got 1: the target class would have weight 0")
    return epsilon


@register("softmax", softmax_rows, "concede")
class SoftmaxLoss(ClassLoss):
    """Softmax with cross entropy: nn.CrossEntropyLoss with `rows`, and with 0 for a batch without valid rows.

    Args:
        weight, ignore_index, reduction: As in nn.CrossEntropyLoss.
        concede: κ in [0, 1], or a schedule. A row whose strongest opponent is ahead of the target by more
            than κ is conceded: loss and gradient are exactly 0, as if its label were wrong. None concedes
            nothing. In a loop of your own use `WarmupConcede`, so that nothing is conceded at the start.

    >>> SoftmaxLoss()(torch.zeros(2, 4), torch.tensor([0, 3]))
    tensor(1.3863)
    >>> rows = SoftmaxLoss(concede=0.5).rows(torch.tensor([[3.0, 0.0], [0.0, 1.0]]), torch.tensor([1, 0]))
    >>> rows.conceded, rows.value
    (tensor([ True, False]), tensor([0.0000, 1.3133]))
    """

    def __init__(
        self,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
        *,
        concede: float | DeltaSchedule | None = None,
    ) -> None:
        super().__init__(weight, ignore_index, reduction)
        self.concede = check_concede(concede)


@register("t-softmax", t_softmax_rows, "tau")
class TSoftmaxLoss(ClassLoss):
    """Softmax at temperature `tau` (Eq. 20). The paper's τ: 5 on SST5, 0.5 on most other tasks."""

    def __init__(
        self,
        tau: float = 0.5,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
    ) -> None:
        super().__init__(weight, ignore_index, reduction)
        self.tau = check_positive("tau", tau)


@register("label-smoothing", label_smoothing_rows, "epsilon")
class LabelSmoothingLoss(ClassLoss):
    """Label smoothing with ε/(n−1) on each other class (paper A.3; torch spreads ε over all n classes).

    Args:
        epsilon: ε in [0, 1). 0 is plain softmax.
        weight, ignore_index, reduction: As in nn.CrossEntropyLoss; a row has the weight of its target class.
    """

    def __init__(
        self,
        epsilon: float = 0.1,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
    ) -> None:
        super().__init__(weight, ignore_index, reduction)
        self.epsilon = check_epsilon(epsilon)
