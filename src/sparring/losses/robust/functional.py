"""The losses of this folder as functions. `sparring.functional` has them too."""

from torch import Tensor

from sparring.losses.base import class_loss
from sparring.losses.robust.focal import focal_rows
from sparring.losses.robust.gce import gce_rows
from sparring.losses.robust.sce import sce_rows


def gce_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    *,
    q: float = 0.7,
) -> Tensor:
    """Generalised cross entropy, (1 − p_t^q)/q (Zhang & Sabuncu 2018)."""
    return class_loss(gce_rows, input, target, weight, ignore_index, reduction, q=q)


def focal_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    *,
    gamma: float = 2.0,
) -> Tensor:
    """The focal loss, −(1 − p_t)^γ log p_t (Lin et al. 2017)."""
    return class_loss(focal_rows, input, target, weight, ignore_index, reduction, gamma=gamma)


def sce_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    *,
    alpha: float = 0.1,
    beta: float = 1.0,
) -> Tensor:
    """Symmetric cross entropy, −α log p_t + 4β (1 − p_t) (Wang et al. 2019)."""
    settings = {"alpha": alpha, "beta": beta}
    return class_loss(sce_rows, input, target, weight, ignore_index, reduction, **settings)
