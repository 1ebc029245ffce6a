"""Sparse-Softmax (Sun et al. 2021): only the k largest logits stay in the softmax."""

import torch
from torch import Tensor

from sparring.losses.base import ClassLoss, register, valid_targets
from sparring.losses.checks import check_count
from sparring.losses.kernels.mean_node import (
    MEANS,
    Mean,
    MeanForm,
    is_small,
    mean_of,
    read_targets,
    small_mean,
)
from sparring.losses.kernels.modes import in_float32
from sparring.losses.rows import RowLosses
from sparring.losses.soft_targets import SOFT_TARGETS, keep_largest
from sparring.losses.softmax import softmax_mean, softmax_rows


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


def _sparse_softmax_mean(logits: Tensor, target: Tensor, ignore_index: int, k: int) -> Tensor | None:
    if not is_small(logits, target, ignore_index):
        return None
    if check_count("k", k, note="the number of logits to keep") >= logits.shape[1]:
        return softmax_mean(logits, target, ignore_index)
    return small_mean(_FORM, logits, target, (k, ignore_index))


def _mean(logits: Tensor, target: Tensor, settings: tuple[int, int], with_grad: bool) -> Mean:
    """`sparse_softmax_rows(…).mean()` and its gradient: softmax of the k largest, minus onehot(target)."""
    k, ignore_index = settings
    target, valid = read_targets(target, ignore_index)
    index = target[:, None]
    logits = in_float32(logits)
    top, classes = logits.topk(k, dim=1)
    peak = top[:, :1]
    weights = torch.sub(top, peak).exp_()
    total = weights.sum(1, keepdim=True)
    grad = logits
    if with_grad:
        grad = torch.zeros_like(logits).scatter_(1, classes, weights.div_(total))
        grad.scatter_add_(1, index, torch.full_like(total, -1))
    loss = total.log_().add_(torch.sub(peak, logits.gather(1, index)))
    return mean_of(loss, valid, grad, with_grad=with_grad)


def _rows(logits: Tensor, target: Tensor, settings: tuple[int, int]) -> RowLosses:
    k, ignore_index = settings
    return sparse_softmax_rows(logits, target, k, ignore_index)


_FORM = MeanForm(_mean, _rows)
MEANS[sparse_softmax_rows] = _sparse_softmax_mean
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
