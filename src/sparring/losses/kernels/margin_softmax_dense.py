"""`margin_softmax.py` for a chunk of rows with few classes on CPU: every row takes the same few operations.

With few classes, sorting rows into kinds costs more than computing them all. Let w be the probabilities of a
row up to a factor, and w* = w_t · floor(1 / p_t) the smallest that stays:

    S = Σ_{i: w_i ≥ w*} w_i,      loss = log(S / w_t),      ∂loss/∂o = w_i [w_i ≥ w*] / S − onehot(t)

w is p itself, by torch.softmax, or p_i / p_t = exp(o_i − o_t): up to `EXP_CLASSES` classes, since the softmax
of a short row takes several times as long as its exponentials, and for a rule on ratios. A comparison with a
result in floating point and a product, or torch.threshold, replace the mask, which would cost more than the
arithmetic. A won row has S = w_t, so that its loss and its gradient are exactly 0.
"""

from functools import lru_cache

import torch
from torch import Tensor

from sparring.losses.kernels.rule import MarginRule

MAX_CLASSES = 1024  # beyond, it pays to leave out what a row does not need
EXP_CLASSES = 24
_MINUS_ONE = {dtype: torch.full((), -1.0, dtype=dtype) for dtype in (torch.float32, torch.float64)}
MAX_LOSS = 69.0  # exp(69) = 1e30: of a larger loss, p_t nears the end of float32


@lru_cache
def is_dense(n_classes: int, rule: MarginRule, dtype: torch.dtype) -> bool:
    """Whether `dense_rows` is exact for a rule: an opponent that stays must change the sum of its row.

    The strongest opponent is at least (1 − p_t) / C, and a row with p_t above the upper bound has none left.
    """
    return n_classes <= MAX_CLASSES and -rule.bounds()[1] >= 8 * torch.finfo(dtype).eps * n_classes


def uses_ratios(n_classes: int, rule: MarginRule) -> bool:
    """Whether w is p_i / p_t."""
    return n_classes <= EXP_CLASSES or rule.least_ratio is not None


def dense_sums(
    logits: Tensor, target: Tensor, rule: MarginRule, out: Tensor | None, with_grad: bool
) -> tuple[Tensor, Tensor | None, Tensor]:
    """Compute what all rows need. logits (n, C) in float32 at least, C > 1. `out` is an (n, C) buffer.

    Returns:
        S / w_t, (n, 1): 1 if the row is won, its logarithm is the loss. That is NaN, infinite or above
        `MAX_LOSS` where a number leaves its range. Which rows are conceded, (n, 1), or None for no row.
        The (n, C) gradients, if `with_grad`.
    """
    index = target.unsqueeze(1)
    conceded = None
    if uses_ratios(logits.shape[1], rule):
        weights = torch.sub(logits, logits.gather(1, index), out=out).exp_()
        target_weight = None  # 1
        if rule.concedes or rule.least_ratio is None:
            inverse = weights.sum(1, keepdim=True)  # 1 / p_t
        if rule.concedes:
            conceded = rule.is_ahead(weights.amax(1, keepdim=True).sub_(1).div_(inverse))
    else:
        weights = torch.softmax(logits, dim=1, out=out)
        target_weight = weights.gather(1, index)
        inverse = target_weight.reciprocal()
        if rule.concedes:
            conceded = rule.is_ahead(weights.amax(1, keepdim=True).sub_(target_weight))
    if rule.least_ratio is not None:
        torch.threshold_(weights, rule.least_ratio(weights.dtype), 0)
    else:
        least = rule.floor(inverse)
        if target_weight is not None:
            least.mul_(target_weight)
        weights.mul_(torch.ge(weights, least, out=torch.empty_like(weights)))
    remaining = weights.sum(1, keepdim=True)
    if with_grad:
        weights.div_(remaining).scatter_add_(1, index, _MINUS_ONE[weights.dtype].expand_as(remaining))
    if target_weight is not None:
        remaining.div_(target_weight)
    return remaining, conceded, weights


def dense_rows(
    logits: Tensor, target: Tensor, valid: Tensor, rule: MarginRule, out: Tensor, *, with_grad: bool
) -> tuple[Tensor, Tensor, Tensor] | None:
    """Return value, active and conceded, all (n,), or None where a number leaves the range of its dtype.

    `out` is an (n, C) buffer. It receives the gradients if `with_grad`.
    """
    remaining, ahead, _ = dense_sums(logits, target, rule, out, with_grad)
    value = remaining.squeeze(1).log()
    if not value.max().item() < MAX_LOSS:  # also for NaN
        return None
    active = remaining.squeeze(1) > 1  # not a view: callers of a loss may change its results in place
    conceded = torch.zeros_like(active) if ahead is None else ahead.squeeze(1) & valid
    if ahead is not None or not valid.all():
        active.logical_and_(valid).logical_and_(~conceded)
        factor = active.to(value.dtype)
        value.mul_(factor)
        if with_grad:
            out.mul_(factor[:, None])
    return value, active, conceded
