"""The focal loss (Lin et al. 2017): rows that are predicted well count less."""

import torch
from torch import Tensor

from sparring.losses.base import ClassLoss, register
from sparring.losses.checks import check_not_negative
from sparring.losses.robust.target_rows import target_rows
from sparring.losses.rows import RowLosses


def focal_rows(logits: Tensor, target: Tensor, gamma: float, ignore_index: int = -100) -> RowLosses:
    r"""The focal loss.

        loss = −(1 − p_t)^γ log p_t                   (Lin et al., Eq. 4, for the softmax)

    logits (N, C), target (N,) -> N rows. γ = 0 is cross entropy, to rounding.
    """
    check_gamma(gamma)

    def formula(logp: Tensor) -> Tensor:
        # The chain rule multiplies 0 by inf at p_t = 1 (for γ < 1) and at p_t = 0. The limits there: the loss
        # is 0 or inf, its derivative with respect to log p_t is 0 or, as for cross entropy, −1.
        inside = (logp < 0) & (logp > -torch.inf)
        safe = torch.where(inside, logp, -1)
        return torch.where(inside, (-torch.expm1(safe)) ** gamma * -safe, -logp * (logp != 0))

    return target_rows(formula, logits, target, ignore_index)


def check_gamma(gamma: float) -> float:
    return check_not_negative("gamma", gamma, note="gamma=0 is plain softmax")


@register("focal", focal_rows, "gamma")
class FocalLoss(ClassLoss):
    """The focal loss, −(1 − p_t)^γ log p_t, on the softmax: easy rows count less (Lin et al. 2017).

    The authors' balancing factor α_t is `weight`. A well-predicted row gets a small gradient, but never
    exactly 0, so no row is won.

    Args:
        gamma: γ, at least 0. 0 is cross entropy. The default is the authors'.
        weight, ignore_index, reduction: As in nn.CrossEntropyLoss.

    Raises:
        TypeError: ``gamma`` is not a number.
        ValueError: ``gamma`` is below 0 or infinite.

    Example:
        >>> FocalLoss(gamma=1.0)(torch.zeros(2, 4), torch.tensor([0, 3]))
        tensor(1.0397)
    """

    def __init__(
        self,
        gamma: float = 2.0,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
    ) -> None:
        super().__init__(weight, ignore_index, reduction)
        self.gamma = check_gamma(gamma)
