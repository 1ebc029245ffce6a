"""Generalised cross entropy (Zhang & Sabuncu 2018): between cross entropy and the mean absolute error."""

import torch
from torch import Tensor

from sparring.losses.base import ClassLoss, register
from sparring.losses.checks import check_positive, check_range
from sparring.losses.robust.target_rows import target_rows
from sparring.losses.rows import RowLosses


def gce_rows(logits: Tensor, target: Tensor, q: float, ignore_index: int = -100) -> RowLosses:
    r"""Generalised cross entropy.

        loss = (1 − p_t^q) / q

    logits (N, C), target (N,) -> N rows. The gradient is p_t^q times that of cross entropy: a row whose label
    the model finds unlikely, perhaps a wrong one, counts little. The loss is at most 1/q.
    """
    check_q(q)
    return target_rows(lambda logp: -torch.expm1(q * logp) / q, logits, target, ignore_index)


def check_q(q: float) -> float:
    check_positive("q", q, note="for q near 0 the loss is cross entropy: use softmax")
    return check_range("q", q, 0, 1, note="q=1 is 1 − p_t")


@register("gce", gce_rows, "q")
class GCELoss(ClassLoss):
    """Generalised cross entropy, (1 − p_t^q)/q: robust to wrong labels (Zhang & Sabuncu 2018).

    Args:
        q: In (0, 1]. Near 0 the loss is cross entropy; 1 gives 1 − p_t, half the mean absolute error, which
            is the most robust and the slowest to learn. The default is the authors'.
        weight, ignore_index, reduction: As in nn.CrossEntropyLoss.

    Raises:
        TypeError: ``q`` is not a number.
        ValueError: ``q`` is not in (0, 1].

    Example:
        >>> GCELoss(q=1.0)(torch.zeros(2, 4), torch.tensor([0, 3]))
        tensor(0.7500)
    """

    def __init__(
        self,
        q: float = 0.7,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
    ) -> None:
        super().__init__(weight, ignore_index, reduction)
        self.q = check_q(q)
