"""What a user would write for each loss in plain torch: the rivals of `losses.py` at few classes."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

import sparring
from sparring import functional as SF

DELTA = 0.3
MARGIN = 2.0
KEPT = 3


def masked(logits: Tensor, target: Tensor) -> Tensor:
    """The plain masked form: softmax, compare, fill, cross entropy."""
    return F.cross_entropy(_masked_logits(logits, target), target)


class MinimalFunction(torch.autograd.Function):
    """AS-Softmax in as few lines as an autograd Function takes, without any check."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor) -> Tensor:
        p = logits.softmax(1)
        index = target[:, None]
        p_t = p.gather(1, index)
        kept = p.masked_fill(p_t - p > DELTA, 0)
        total = kept.sum(1, keepdim=True)
        ctx.save_for_backward(kept.div_(total).scatter_add_(1, index, torch.full_like(p_t, -1)))
        return (total / p_t).log().mean()

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None]:
        (grad,) = ctx.saved_tensors
        return grad * (upstream / len(grad)), None


def few_classes() -> dict[str, Callable[[Tensor, Tensor], Tensor]]:
    """Losses by name: those of this package, each after the expression that it competes with."""
    as_softmax = sparring.ASSoftmaxLoss(DELTA)
    return {
        "masked form": masked,
        "minimal Function": MinimalFunction.apply,
        "as-softmax": as_softmax,
        "F.cross_entropy, compiled": torch.compile(F.cross_entropy),
        "as-softmax, compiled": torch.compile(as_softmax),
        "masked form, a third ignored": lambda x, t: masked(x, _ignore_third(t)),
        "as-softmax, a third ignored": lambda x, t: as_softmax(x, _ignore_third(t)),
        "masked form, rows": _masked_rows,
        "as-softmax, rows": lambda x, t: as_softmax.rows(x, t).mean(),
        "masked form, logit margin": _logit_margin,
        "as-logit": sparring.ASLogitLoss(MARGIN),
        "softmax": sparring.SoftmaxLoss(),
        "F.cross_entropy, label smoothing": lambda x, t: F.cross_entropy(x, t, label_smoothing=0.1),
        "label-smoothing": sparring.LabelSmoothingLoss(0.1),
        "topk and logsumexp": _sparse,
        "sparse-softmax": sparring.SparseSoftmaxLoss(KEPT),
        "multi-label expression": lambda x, t: _multilabel(x, _labels(x, t)),
        "multilabel-softmax": lambda x, t: SF.multilabel_softmax_loss(x, _labels(x, t)),
        "multi-label masked expression": lambda x, t: _multilabel_masked(x, _labels(x, t)),
        "multilabel-as-softmax": lambda x, t: SF.multilabel_as_softmax_loss(x, _labels(x, t), delta=DELTA),
        "masked form on F.linear": lambda x, t: masked(F.linear(x, _weight(x.shape[1])), t),
        "fused head": lambda x, t: SF.linear_as_softmax_loss(x, _weight(x.shape[1]), t, delta=DELTA),
    }


def _masked_logits(logits: Tensor, target: Tensor) -> Tensor:
    p = logits.detach().softmax(1)
    index = target.clamp(min=0) if target[0] < 0 else target
    return logits.masked_fill(p.gather(1, index[:, None]) - p > DELTA, -torch.inf)


def _ignore_third(target: Tensor) -> Tensor:
    return target.clone().index_fill_(0, torch.arange(0, len(target), 3), -100)


def _masked_rows(logits: Tensor, target: Tensor) -> Tensor:
    p = logits.detach().softmax(1)
    weak = p.gather(1, target[:, None]) - p > DELTA
    active = weak.sum(1) < logits.shape[1] - 1
    assert len(active) == len(target)
    return F.cross_entropy(logits.masked_fill(weak, -torch.inf), target, reduction="none").mean()


def _logit_margin(logits: Tensor, target: Tensor) -> Tensor:
    numbers = logits.detach()
    weak = numbers.gather(1, target[:, None]) - numbers > MARGIN
    return F.cross_entropy(logits.masked_fill(weak, -torch.inf), target)


def _sparse(logits: Tensor, target: Tensor) -> Tensor:
    return (logits.topk(KEPT, 1).values.logsumexp(1) - logits.gather(1, target[:, None]).squeeze(1)).mean()


def _labels(logits: Tensor, target: Tensor) -> Tensor:
    return torch.zeros_like(logits, requires_grad=False).scatter_(1, target[:, None], 1)


def _multilabel(logits: Tensor, labels: Tensor) -> Tensor:
    signed = (1 - 2 * labels) * logits
    zeros = torch.zeros_like(logits[:, :1])
    negative = torch.cat([signed - labels * 1e12, zeros], 1).logsumexp(1)
    return (negative + torch.cat([signed - (1 - labels) * 1e12, zeros], 1).logsumexp(1)).mean()


def _multilabel_masked(logits: Tensor, labels: Tensor) -> Tensor:
    p = logits.detach().softmax(1)
    positive = labels == 1
    weakest = p.masked_fill(~positive, 2).amin(1, keepdim=True)
    strongest = p.masked_fill(positive, -2).amax(1, keepdim=True)
    out_of_sum = positive | (weakest - p > DELTA)
    negative = torch.cat([logits.masked_fill(out_of_sum, -torch.inf), torch.zeros_like(p[:, :1])], 1)
    out_of_sum = ~positive | (p - strongest > DELTA)
    others = torch.cat([(-logits).masked_fill(out_of_sum, -torch.inf), torch.zeros_like(p[:, :1])], 1)
    return (negative.logsumexp(1) + others.logsumexp(1)).mean()


@functools.cache
def _weight(n_features: int) -> Tensor:
    """A linear layer from as many features as classes."""
    return torch.eye(n_features).requires_grad_()
