"""Row losses that depend on the probability of the target alone."""

from collections.abc import Callable

import torch
from torch import Tensor

from sparring.losses.base import valid_targets
from sparring.losses.kernels.modes import in_float32
from sparring.losses.rows import RowLosses


def target_rows(
    formula: Callable[[Tensor], Tensor], logits: Tensor, target: Tensor, ignore_index: int
) -> RowLosses:
    """Compute the loss of each row from log p_t.

    Args:
        formula: Maps log p_t, of shape (N,) and in float32 at least, to N losses. It has to be finite, with
            its derivatives, for log p_t = 0, and may be inf, with a finite derivative, for log p_t = -inf.
        logits: Logits of shape (N, C).
        target: N class indices.
        ignore_index: The target of rows that are left out.

    Returns:
        N rows. Every opponent stays, so a valid row is won only if there is no other class.
    """
    target, valid = valid_targets(target, ignore_index)
    logits = torch.where(valid[:, None], in_float32(logits), 0)  # NaN in an ignored row reaches no gradient
    value = formula(torch.log_softmax(logits, dim=1).gather(1, target[:, None]).squeeze(1))
    return RowLosses(torch.where(valid, value, 0), valid, valid & ((logits.shape[1] > 1) | value.isnan()))
