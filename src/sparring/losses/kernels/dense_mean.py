"""The mean of margin softmax over all rows in one autograd node, for few classes on CPU."""

import torch.nn.functional as F
from torch import Tensor

from sparring.losses.kernels.margin_softmax import margin_softmax_rows
from sparring.losses.kernels.margin_softmax_dense import MAX_LOSS, dense_sums, is_dense, uses_ratios
from sparring.losses.kernels.mean_node import (
    Mean,
    MeanForm,
    OutOfRangeError,
    is_small,
    mean_of,
    read_targets,
    small_mean,
)
from sparring.losses.kernels.modes import in_float32
from sparring.losses.kernels.rule import MarginRule
from sparring.losses.rows import RowLosses

Settings = tuple[MarginRule, int]  # and ignore_index


def dense_mean(logits: Tensor, target: Tensor, rule: MarginRule, ignore_index: int) -> Tensor | None:
    """`margin_softmax_rows(…).mean()`, summed in another order, for arguments that are not checked yet.

    The result is None where the arguments may be wrong, or the rows have to be computed.
    """
    if rule.concede < 1 or not is_small(logits, target, ignore_index):
        return None
    if is_dense(logits.shape[1], rule, logits.dtype):
        return small_mean(_FORM, logits, target, (rule, ignore_index))
    if not rule.keeps_all() or logits.dtype.itemsize < 4 or target.min().item() < 0:  # half would lose digits
        return None
    try:
        return F.cross_entropy(logits, target)
    except IndexError:  # a target that is no class
        return None


def _mean(logits: Tensor, target: Tensor, settings: Settings, with_grad: bool) -> Mean:
    rule, ignore_index = settings
    target, valid = read_targets(target, ignore_index)
    if logits.dtype.itemsize < 4:
        logits = in_float32(logits)
    remaining, _, grad = dense_sums(logits, target, rule, None, with_grad)
    loss = remaining.log_()
    # of ratios to p_t, log(1 / p_t) has no limit but infinity
    if not uses_ratios(logits.shape[1], rule) and not loss.max().item() < MAX_LOSS:
        raise OutOfRangeError
    return mean_of(loss, valid, grad, with_grad=with_grad)


def _rows(logits: Tensor, target: Tensor, settings: Settings) -> RowLosses:
    rule, ignore_index = settings
    return margin_softmax_rows(logits, target, rule, ignore_index)


_FORM = MeanForm(_mean, _rows)
