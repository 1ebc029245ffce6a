"""The mean of multi-label softmax and multi-label AS-Softmax in one autograd node, for few classes on CPU.

With E = exp(o), a positive label adds 1 / E to its sum and a negative one adds E to its own. Labels y of 0
and 1 separate them by products: y / E and E − y · E. Everything else is in `multilabel.py`.
"""

import torch
from torch import Tensor

from sparring.losses.kernels.mean_node import Mean, OutOfRangeError, is_small_matrix, mean_of
from sparring.losses.kernels.modes import in_float32


def is_small_multilabel(logits: Tensor, target: Tensor, ignore_index: int) -> bool:
    """`is_small_matrix` with one label per class, of any dtype but complex numbers."""
    return (
        is_small_matrix(logits, target, ignore_index)
        and target.shape == logits.shape
        and not target.requires_grad
        and not target.is_complex()
    )


def multilabel_mean(logits: Tensor, target: Tensor, delta: float | None, with_grad: bool) -> Mean:
    """The mean over all rows, and its gradient. No label may be ignored; δ is None for plain softmax.

    An infinite or NaN mean, or a sum of 0 divided by 0, is left to the rows.
    """
    logits = in_float32(logits)
    labels = target if target.dtype is logits.dtype else target.to(logits.dtype)
    if not torch.equal(labels * labels, labels):  # neither 0 nor 1; an infinite one makes the mean NaN
        raise OutOfRangeError
    weights = logits.exp()
    positive = labels / weights
    negative = torch.addcmul(weights, labels, weights, value=-1)
    if delta is not None:
        _leave_out_weak(positive, negative, weights, delta)
    positive_total = positive.sum(1, keepdim=True).add_(1)
    negative_total = negative.sum(1, keepdim=True).add_(1)
    grad = negative
    if with_grad:
        grad = negative.div_(negative_total).sub_(positive.div_(positive_total))
    return mean_of(positive_total.mul_(negative_total).log_(), None, grad, with_grad=with_grad)


def _leave_out_weak(positive: Tensor, negative: Tensor, weights: Tensor, delta: float) -> None:
    """Set the terms of Eq. 15 and 16 to 0. `weights` is overwritten."""
    strict = 1 - 4 * torch.finfo(weights.dtype).eps  # a label that meets the margin exactly stays
    strongest = negative.amax(1, keepdim=True)
    if strongest.min().item() == 0:  # a row without a negative label has no margin
        raise OutOfRangeError
    total = weights.sum(1, keepdim=True)
    p = weights.div_(total)
    weakest = positive.amax(1, keepdim=True).mul_(total).reciprocal_().nan_to_num_(nan=torch.nan, posinf=0)
    least = weakest.mul_(strict).sub_(delta)
    most = strongest.div_(total).add_(delta).div_(strict)
    kept = torch.ge(p, least, out=torch.empty_like(p))
    negative.mul_(kept)
    positive.mul_(torch.le(p, most, out=kept))
