"""AS-Softmax: during training only opponents within δ of the target stay in the softmax."""

from functools import lru_cache

import torch
from torch import Tensor

from sparring.losses.base import ClassLoss, register, valid_targets
from sparring.losses.checks import check_class_input, check_range
from sparring.losses.concede import check_concede, concede_value
from sparring.losses.delta import DEFAULT_DELTA, DeltaSchedule, check_delta, delta_value
from sparring.losses.kernels.dense_mean import dense_mean
from sparring.losses.kernels.margin_softmax import margin_softmax_rows
from sparring.losses.kernels.margin_softmax_chunks import margin_log_softmax
from sparring.losses.kernels.mean_node import MEANS
from sparring.losses.kernels.rule import MarginRule, logit_rule, probability_rule
from sparring.losses.rows import RowLosses, class_last


def as_softmax_rows(
    logits: Tensor,
    target: Tensor,
    delta: float | DeltaSchedule,
    ignore_index: int = -100,
    concede: float | DeltaSchedule | None = None,
) -> RowLosses:
    r"""Cross entropy against strong opponents only.

        z_i  = 0  if p_t − p_i > δ  else 1            (Eq. 6, strict)
        loss = log Σ_i z_i exp(o_i) − o_t             (Eq. 7)

    logits (N, C), target (N,) -> N rows. A row is won if no opponent is left. p is the softmax over all
    classes, in float32 at least, and carries no gradient here. The paper writes ≥ in Eq. 5; only > makes
    δ = 1 plain softmax to the bit.

    With `concede`, a row with max_i p_i − p_t > κ is conceded: its loss is 0.
    """
    return margin_softmax_rows(logits, target, _probability_rule(delta, concede), ignore_index)


def _probability_rule(delta: float | DeltaSchedule, concede: float | DeltaSchedule | None) -> MarginRule:
    rule = probability_rule(delta_value(delta))
    return rule if concede is None else rule._replace(concede=concede_value(concede))


def as_logit_rows(
    logits: Tensor,
    target: Tensor,
    margin: float,
    ignore_index: int = -100,
    concede: float | DeltaSchedule | None = None,
) -> RowLosses:
    r"""The paper's AS-variant: a margin on logits, o_t − o_i > δ' (Eq. 8), instead of on probabilities."""
    return margin_softmax_rows(logits, target, _logit_rule(margin, concede), ignore_index)


def _logit_rule(margin: float, concede: float | DeltaSchedule | None) -> MarginRule:
    rule = logit_rule(check_range("margin", margin, 0))
    return rule if concede is None else rule._replace(concede=concede_value(concede))


def _as_softmax_mean(
    logits: Tensor,
    target: Tensor,
    ignore_index: int,
    delta: float | DeltaSchedule,
    concede: float | DeltaSchedule | None = None,
) -> Tensor | None:
    is_number = type(delta) is float and concede is None
    rule = _constant_rule(delta) if is_number else _probability_rule(delta, concede)
    return dense_mean(logits, target, rule, ignore_index)


@lru_cache
def _constant_rule(delta: float) -> MarginRule:
    """`_probability_rule` of a number, in one call that takes less time."""
    return _probability_rule(delta, None)


def _as_logit_mean(
    logits: Tensor,
    target: Tensor,
    ignore_index: int,
    margin: float,
    concede: float | DeltaSchedule | None = None,
) -> Tensor | None:
    return dense_mean(logits, target, _logit_rule(margin, concede), ignore_index)


MEANS[as_softmax_rows] = _as_softmax_mean
MEANS[as_logit_rows] = _as_logit_mean


def as_softmax(
    input: Tensor, target: Tensor, delta: float | DeltaSchedule = DEFAULT_DELTA, ignore_index: int = -100
) -> Tensor:
    r"""Compute the training-time probabilities of Eq. 7: a softmax over the target and its strong opponents.

    Args:
        input: Logits, in the shapes of `ASSoftmaxLoss`.
        target: Class indices. A row with `ignore_index` gets its plain softmax.
        delta: The margin in [0, 1], or a schedule.
        ignore_index: The target of rows that are left out.

    Returns:
        Probabilities in the shape of the input, 0 for discarded classes.

    >>> p = torch.tensor([[0.4, 0.15, 0.15, 0.15, 0.15], [0.49, 0.5, 0.004, 0.003, 0.003]])
    >>> as_softmax(p.log(), torch.tensor([0, 0]), delta=0.2)
    tensor([[1.0000, 0.0000, 0.0000, 0.0000, 0.0000],
            [0.4949, 0.5051, 0.0000, 0.0000, 0.0000]])
    """
    check_class_input(input, target, None, ignore_index)
    rows = class_last(input)  # (…, C)
    safe, valid = valid_targets(target.reshape(-1).long(), ignore_index)
    rule = probability_rule(delta_value(delta))
    logq, logp, _ = margin_log_softmax(rows.reshape(-1, rows.shape[-1]), safe, rule)
    probabilities = torch.where(valid[:, None], logq, logp).exp().to(input.dtype)
    return probabilities.reshape(rows.shape).movedim(-1, min(1, input.dim() - 1))


@register("as-softmax", as_softmax_rows, "delta", "concede")
class ASSoftmaxLoss(ClassLoss):
    """AS-Softmax with cross entropy (Eq. 6 and 7): a drop-in replacement for nn.CrossEntropyLoss.

    Classes whose probability is more than δ below the target's are left out of the softmax. A sample without
    an opponent left is won: its loss and gradient are exactly 0. "mean" divides by all valid rows.

    Since training stops at a margin of δ, probabilities are under-confident, the more the smaller δ is.
    `SettleDelta` or a temperature fitted on other data mends that.

    Args:
        delta: The margin in [0, 1], or a schedule from `sparring.delta`. 1 is plain softmax; the paper
            suggests 0.3, more for easy tasks and less for hard ones.
        weight, ignore_index, reduction: As in nn.CrossEntropyLoss. Targets are class indices, not class
            probabilities: the margin needs one target class.
        concede: κ in [0, 1], or a schedule. A row whose strongest opponent is ahead of the target by more
            than κ is conceded: loss and gradient are exactly 0, as if its label were wrong. None concedes
            nothing. In a loop of your own use `WarmupConcede`, so that nothing is conceded at the start.

    >>> loss = ASSoftmaxLoss(delta=0.3)
    >>> logits = torch.tensor([[4.0, 0.0, 1.0], [1.0, 0.8, 0.0]], requires_grad=True)
    >>> loss(logits, torch.tensor([0, 0]))
    tensor(0.3912, grad_fn=...)
    >>> loss.rows(logits, torch.tensor([0, 0])).won
    tensor([ True, False])
    """

    def __init__(
        self,
        delta: float | DeltaSchedule = DEFAULT_DELTA,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
        *,
        concede: float | DeltaSchedule | None = None,
    ) -> None:
        super().__init__(weight, ignore_index, reduction)
        self.delta = check_delta(delta)
        self.concede = check_concede(concede)


@register("as-logit", as_logit_rows, "margin", "concede")
class ASLogitLoss(ClassLoss):
    """AS-Softmax with a `margin` on logits (Eq. 8), at least 0. The paper finds about 6 equal to softmax.

    `concede` compares probabilities, as in `ASSoftmaxLoss`.
    """

    def __init__(
        self,
        margin: float = 2.0,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
        *,
        concede: float | DeltaSchedule | None = None,
    ) -> None:
        super().__init__(weight, ignore_index, reduction)
        self.margin = check_range("margin", margin, 0)
        self.concede = check_concede(concede)
