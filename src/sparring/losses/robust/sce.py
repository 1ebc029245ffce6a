"""Symmetric cross entropy (Wang et al. 2019): cross entropy plus its reverse, which is robust to noise."""

import torch
from torch import Tensor

from sparring.losses.base import ClassLoss, register
from sparring.losses.checks import check_not_negative
from sparring.losses.robust.target_rows import target_rows
from sparring.losses.rows import RowLosses

LOG_ZERO = -4.0  # A: stands for log 0 in the reverse cross entropy


def sce_rows(
    logits: Tensor, target: Tensor, alpha: float, beta: float, ignore_index: int = -100
) -> RowLosses:
    r"""Symmetric cross entropy.

        loss = α CE + β RCE
        CE   = −Σ_i y_i log p_i = −log p_t            y = onehot(t)
        RCE  = −Σ_i p_i log y_i = −A (1 − p_t)        log 0 := A = −4

    logits (N, C), target (N,) -> N rows. α = 1, β = 0 is cross entropy, to rounding.
    """
    check_shares(alpha, beta)

    def formula(logp: Tensor) -> Tensor:
        reverse = beta * LOG_ZERO * torch.expm1(logp)
        return reverse - alpha * logp if alpha > 0 else reverse  # 0 times -inf is NaN

    return target_rows(formula, logits, target, ignore_index)


def check_shares(alpha: float, beta: float) -> tuple[float, float]:
    check_not_negative("alpha", alpha, note="the factor of the cross entropy")
    check_not_negative("beta", beta, note="the factor of the reverse cross entropy")
    if alpha == 0 and beta == 0:
        raise ValueError("alpha and beta are both 0: one of them must be above 0")
    return alpha, beta


@register("sce", sce_rows, "alpha", "beta")
class SCELoss(ClassLoss):
    """Symmetric cross entropy, −α log p_t + 4β (1 − p_t): robust to wrong labels (Wang et al. 2019).

    The authors' experiments use (α, β) = (0.1, 1) on CIFAR-10, the default here, (0.01, 1) on MNIST and
    (6, 0.1) on CIFAR-100: many classes need more of the cross entropy to learn at all. Their code clips
    labels at 1e-4, so A is log 1e-4 = −9.2 there: a β of theirs corresponds to 2.3 β here, where A is −4.

    Args:
        alpha: α, at least 0: the factor of the cross entropy.
        beta: β, at least 0: the factor of the reverse cross entropy.
        weight, ignore_index, reduction: As in nn.CrossEntropyLoss.

    Raises:
        TypeError: ``alpha`` or ``beta`` is not a number.
        ValueError: ``alpha`` or ``beta`` is below 0 or infinite, or both are 0.

    Example:
        >>> SCELoss(alpha=0.0, beta=1.0)(torch.zeros(2, 4), torch.tensor([0, 3]))
        tensor(3.)
    """

    def __init__(
        self,
        alpha: float = 0.1,
        beta: float = 1.0,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
    ) -> None:
        super().__init__(weight, ignore_index, reduction)
        self.alpha, self.beta = check_shares(alpha, beta)
