"""What training looks like from inside: margins and opponents left, from logits and targets alone.

The third figure, the won share, is already in what a loss returns: ``loss.rows(input, target).won_share()``.
Nothing here carries a gradient. Class losses and multi-label losses are told apart by the target's shape.
"""

from __future__ import annotations

import torch
from torch import Tensor

from sparring.losses.base import class_last, in_float32, valid_targets
from sparring.losses.checks import check_class_input, check_multilabel_input
from sparring.losses.delta import DeltaSchedule, delta_value
from sparring.losses.kernels.margin_softmax import strong_log_softmax
from sparring.losses.kernels.rule import probability_rule
from sparring.losses.multilabel import strong_labels


@torch.no_grad()
def margins(input: Tensor, target: Tensor, ignore_index: int = -100) -> Tensor:
    r"""The paper's p_margin: p_t − max_{i≠t} p_i of each row, above 0 where the prediction is right.

    Multi-label rows (a target of the input's shape): min over the positives − max over the negatives. NaN where a row is
    ignored or has no margin. Same shape as the row losses; a row of AS-Softmax is won where its margin exceeds δ.

    >>> p = torch.tensor([[0.4, 0.15, 0.15, 0.15, 0.15], [0.49, 0.5, 0.004, 0.003, 0.003]])
    >>> margins(p.log(), torch.tensor([0, 0]))
    tensor([ 0.2500, -0.0100])
    """
    if target.shape == input.shape and input.dim() > 0:
        check_multilabel_input(input, target, ignore_index)
        positive, negative = target == 1, target == 0
        p = torch.softmax(in_float32(input).masked_fill(~(positive | negative), -torch.inf), dim=-1)
    else:
        check_class_input(input, target, None, ignore_index)
        p = torch.softmax(class_last(in_float32(input)), dim=-1)  # (…, C)
        safe, valid = valid_targets(target.long(), ignore_index)
        positive = torch.zeros_like(p, dtype=torch.bool).scatter(-1, safe[..., None], valid[..., None])
        negative = ~positive & valid[..., None]
    weakest = p.masked_fill(~positive, torch.inf).amin(-1)
    strongest = p.masked_fill(~negative, -torch.inf).amax(-1)
    margin = weakest - strongest
    return margin.masked_fill(margin.isinf(), torch.nan)


@torch.no_grad()
def kept_classes(
    input: Tensor, target: Tensor, delta: float | DeltaSchedule = 0.3, ignore_index: int = -100
) -> Tensor:
    """How many classes AS-Softmax keeps in each row: the target and its strong opponents (1 when won, 0 when ignored).
    A row with NaN or +inf is decided by nothing: it keeps all.

    Multi-label rows: the members left in the two sums of Eq. 18 (0 when won).

    >>> p = torch.tensor([[0.4, 0.15, 0.15, 0.15, 0.15], [0.49, 0.5, 0.004, 0.003, 0.003]])
    >>> kept_classes(p.log(), torch.tensor([0, 0]), delta=0.2)
    tensor([1, 2])
    """
    if target.shape == input.shape and input.dim() > 0:
        check_multilabel_input(input, target, ignore_index)
        shape = (-1, input.shape[-1])
        labels = target.reshape(shape)
        positive, negative = strong_labels(in_float32(input).reshape(shape), labels == 1, labels == 0, delta)
        return (positive | negative).sum(1).reshape(input.shape[:-1])
    check_class_input(input, target, None, ignore_index)
    rows = class_last(input)  # (…, C)
    safe, valid = valid_targets(target.long(), ignore_index)
    _, logp, tau = strong_log_softmax(
        rows.reshape(-1, rows.shape[-1]), safe.reshape(-1), probability_rule(delta_value(delta))
    )
    return (logp.shape[1] - (logp < tau).sum(1)).reshape(target.shape) * valid  # a row of NaN keeps all
