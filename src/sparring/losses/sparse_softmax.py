"""Sparse-Softmax (Sun et al. 2021): only the k largest logits stay in the softmax."""

import torch
from torch import Tensor

from sparring.losses.base import ClassLoss, in_float32, register, valid_targets
from sparring.losses.checks import check_count
from sparring.losses.rows import RowLosses
from sparring.losses.soft_targets import SOFT_TARGETS, keep_largest
from sparring.losses.softmax import softmax_rows


def sparse_softmax_rows(logits: Tensor, target: Tensor, k: int, ignore_index: int = -100) -> RowLosses:
    r"""Cross entropy over the k largest logits.

        loss = log Σ_{i∈Ω_k} exp(o_i) − o_t           (Sun et al., Eq. 5)

    logits (N, C), target (N,) -> N rows. A target outside Ω_k is not in the sum but still contributes −o_t.
    From k = C on, the loss is softmax. A row can be won only with k = 1, if its target has the largest logit.
    """
    check_count("k", k, note="the number of logits to keep")
    if k >= logits.shape[1]:
        return softmax_rows(logits, target, ignore_index)
    target, valid = valid_targets(target, ignore_index)
    index = target[:, None]
    logits = in_float32(logits)
    top, classes = logits.topk(k, dim=1)  # (N, k), in descending order, NaN first
    top = torch.where(valid[:, None], top, 0)  # NaN in an ignored row must not reach its gradient
    peak = top[:, :1].detach()  # subtracted from both terms, so that large logits lose no digits
    value = ((top - peak).logsumexp(1, keepdim=True) - (logits.gather(1, index) - peak)).squeeze(1)
    active = valid  # of two logits that stay, one is an opponent
    if k == 1:
        active = valid & ((classes != index).any(1) | value.isnan())
    return RowLosses(torch.where(active, value, 0), valid, active)


SOFT_TARGETS[sparse_softmax_rows] = keep_largest


@register("sparse-softmax", sparse_softmax_rows, "k")
class SparseSoftmaxLoss(ClassLoss):
    """Softmax over the `k` largest logits. Its authors recommend k = 20 for about a hundred classes.

    >>> SparseSoftmaxLoss(k=2)(torch.tensor([[0.0, 0.0, -1.0]]), torch.tensor([0]))
    tensor(0.6931)
    """

    def __init__(
        self, k: int = 20, weight: Tensor | None = None, ignore_index: int = -100, reduction: str = "mean"
    ) -> None:
        super().__init__(weight, ignore_index, reduction)
        self.k = check_count("k", k, note="the number of logits to keep")
