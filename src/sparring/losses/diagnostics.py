"""Diagnostics of training from logits and targets alone: margins, and the number of opponents left.

The won share is part of what a loss returns: ``loss.rows(input, target).won_share()``. Nothing here carries a
gradient. A target of the input's shape holds multi-label rows, any other target holds class indices.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from sparring.losses.base import valid_targets
from sparring.losses.checks import check_class_input, check_multilabel_input
from sparring.losses.delta import DEFAULT_DELTA, DeltaSchedule, delta_value
from sparring.losses.kernels.margin_softmax_chunks import margin_log_softmax
from sparring.losses.kernels.modes import in_float32
from sparring.losses.kernels.rule import probability_rule
from sparring.losses.multilabel import labels_within_margin
from sparring.losses.rows import class_last


class LabelMargins(NamedTuple):
    """How far the label of each row is ahead, as logits. NaN margins: ignored rows, and rows without one."""

    margin: Tensor  # logit of the target minus that of its strongest opponent
    log_p: Tensor  # log-probability of the target
    rival: Tensor  # the strongest opponent
    label: Tensor  # the target; of a multi-label row, the positive label with the smallest logit


@torch.no_grad()
def label_margins(input: Tensor, target: Tensor, ignore_index: int = -100) -> LabelMargins:
    """Compute the margin of each label on logits, its probability, and its strongest opponent.

    Shapes are those of `margins`.

    >>> label_margins(torch.tensor([[2.0, 0.5, 1.0]]), torch.tensor([0])).rival
    tensor([2])
    """
    if target.shape != input.shape or input.dim() == 0:  # fewer passes over the logits, for the same result
        check_class_input(input, target, None, ignore_index)
        logits = class_last(in_float32(input))
        label, valid = valid_targets(target.long(), ignore_index)
        chosen = logits.gather(-1, label[..., None]).squeeze(-1)
        strongest = logits.scatter(-1, label[..., None], -torch.inf).max(-1)
        rows = (logits.reshape(-1, logits.shape[-1]), label.reshape(-1))
        log_p = -F.cross_entropy(*rows, reduction="none").view_as(chosen)
        missing = ~valid if logits.shape[-1] > 1 else torch.ones_like(valid)
        margin = (chosen - strongest.values).masked_fill(missing, torch.nan)
        return LabelMargins(margin, log_p.masked_fill(missing, torch.nan), strongest.indices, label)
    logits, positive, negative = _members(input, target, ignore_index)
    weakest = logits.masked_fill(~positive, torch.inf).min(-1)
    strongest = logits.masked_fill(~negative, -torch.inf).max(-1)
    missing = ~(positive.any(-1) & negative.any(-1))
    margin = (weakest.values - strongest.values).masked_fill(missing, torch.nan)
    log_p = weakest.values - logits.masked_fill(~(positive | negative), -torch.inf).logsumexp(-1)
    return LabelMargins(margin, log_p.masked_fill(missing, torch.nan), strongest.indices, weakest.indices)


def _members(input: Tensor, target: Tensor, ignore_index: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return logits with classes last, in float32 at least, and the masks of targets and of opponents."""
    if target.shape == input.shape and input.dim() > 0:
        check_multilabel_input(input, target, ignore_index)
        return in_float32(input), target == 1, target == 0
    check_class_input(input, target, None, ignore_index)
    logits = class_last(in_float32(input))  # (…, C)
    safe, valid = valid_targets(target.long(), ignore_index)
    positive = torch.zeros_like(logits, dtype=torch.bool).scatter(-1, safe[..., None], valid[..., None])
    return logits, positive, ~positive & valid[..., None]


@torch.no_grad()
def margins(input: Tensor, target: Tensor, ignore_index: int = -100) -> Tensor:
    r"""Compute the margin p_t − max_{i≠t} p_i of each row: above 0 if the prediction is right.

    A row of AS-Softmax is won if its margin exceeds δ. The margin of a multi-label row is the smallest
    probability of a positive label minus the largest of a negative one.

    Args:
        input: Logits, in the shapes of `ASSoftmaxLoss` or `MultilabelASSoftmaxLoss`.
        target: Class indices, or 0/1 labels in the input's shape.
        ignore_index: The target, or label, that is left out.

    Returns:
        Margins in the shape of the row losses. NaN if a row is ignored or has no margin.

    >>> p = torch.tensor([[0.4, 0.15, 0.15, 0.15, 0.15], [0.49, 0.5, 0.004, 0.003, 0.003]])
    >>> margins(p.log(), torch.tensor([0, 0]))
    tensor([ 0.2500, -0.0100])
    """
    logits, positive, negative = _members(input, target, ignore_index)
    p = torch.softmax(logits.masked_fill(~(positive | negative), -torch.inf), dim=-1)
    weakest = p.masked_fill(~positive, torch.inf).amin(-1)
    strongest = p.masked_fill(~negative, -torch.inf).amax(-1)
    margin = weakest - strongest
    return margin.masked_fill(margin.isinf(), torch.nan)


@torch.no_grad()
def kept_classes(
    input: Tensor, target: Tensor, delta: float | DeltaSchedule = DEFAULT_DELTA, ignore_index: int = -100
) -> Tensor:
    """Count the classes that AS-Softmax keeps in each row: the target and its strong opponents.

    Args:
        input: Logits, in the shapes of `ASSoftmaxLoss` or `MultilabelASSoftmaxLoss`.
        target: Class indices, or 0/1 labels in the input's shape.
        delta: The margin in [0, 1], or a schedule.
        ignore_index: The target, or label, that is left out.

    Returns:
        Counts in the shape of the row losses: 1 if a row is won, 0 if it is ignored, and all classes if it
        holds NaN or +inf. For multi-label rows, the number of terms in the two sums of Eq. 18: 0 if the row
        is won.

    >>> p = torch.tensor([[0.4, 0.15, 0.15, 0.15, 0.15], [0.49, 0.5, 0.004, 0.003, 0.003]])
    >>> kept_classes(p.log(), torch.tensor([0, 0]), delta=0.2)
    tensor([1, 2])
    """
    if target.shape == input.shape and input.dim() > 0:
        check_multilabel_input(input, target, ignore_index)
        logits, labels = (x.reshape(-1, input.shape[-1]) for x in (in_float32(input), target))
        positive, negative = labels_within_margin(logits, labels == 1, labels == 0, delta)
        return (positive | negative).sum(1).reshape(input.shape[:-1])
    check_class_input(input, target, None, ignore_index)
    rows = class_last(input)  # (…, C)
    safe, valid = valid_targets(target.long(), ignore_index)
    rule = probability_rule(delta_value(delta))
    _, logp, tau = margin_log_softmax(rows.reshape(-1, rows.shape[-1]), safe.reshape(-1), rule)
    return (logp.shape[1] - (logp < tau).sum(1)).reshape(target.shape) * valid
