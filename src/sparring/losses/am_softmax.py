"""AM-Softmax (Wang et al. 2018): the target has to lead by a margin, on logits or on cosines."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sparring.losses.base import ClassLoss, register, valid_targets
from sparring.losses.checks import check_count, check_positive, check_range
from sparring.losses.kernels.modes import in_float32
from sparring.losses.rows import RowLosses
from sparring.losses.softmax import softmax_rows


def am_softmax_rows(
    logits: Tensor, target: Tensor, scale: float, margin: float, ignore_index: int = -100
) -> RowLosses:
    r"""Cross entropy after a margin m is subtracted from the target's logit and all logits are scaled by s.

    loss = −log [ exp(s (o_t − m)) / ( exp(s (o_t − m)) + Σ_{j≠t} exp(s o_j) ) ]           (Eq. 21)
    """
    scaled = in_float32(logits) * check_positive("scale", scale)
    index = valid_targets(target, ignore_index)[0][:, None]
    penalty = torch.full_like(index, -scale * check_range("margin", margin, 0), dtype=scaled.dtype)
    return softmax_rows(scaled.scatter_add(1, index, penalty), target, ignore_index)


@register("am-softmax", am_softmax_rows, "scale", "margin")
class AMSoftmaxLoss(ClassLoss):
    """Additive-margin softmax on logits (Eq. 21). For its original form on cosines use `CosineLinear` first.

    Args:
        scale: s. The paper's (s, m): 10, 0.3 on SST5; 8, 0.35 on Clinc_oos; 5, 0.3 on Conll2003; 1, 0.1 on
            SIGHAN2015. For cosines 64, 0.35 is usual.
        margin: m, at least 0.
        weight, ignore_index, reduction: As in nn.CrossEntropyLoss.
    """

    def __init__(
        self,
        scale: float = 10.0,
        margin: float = 0.3,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
    ) -> None:
        super().__init__(weight, ignore_index, reduction)
        self.scale = check_positive("scale", scale)
        self.margin = check_range("margin", margin, 0)


class CosineLinear(nn.Module):
    """A linear layer whose outputs are cosines of features and class vectors: (…, H) -> (…, C) in [-1, 1].

    >>> head = CosineLinear(16, 4)
    >>> AMSoftmaxLoss(scale=64, margin=0.35)(head(torch.randn(8, 16)), torch.zeros(8, dtype=torch.long)).shape
    torch.Size([])
    """

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.in_features = check_count("in_features", in_features)
        self.num_classes = check_count("num_classes", num_classes)
        self.weight = nn.Parameter(torch.empty(num_classes, in_features, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.kaiming_uniform_(self.weight, a=math.sqrt(5))  # as nn.Linear; only directions matter

    def forward(self, input: Tensor) -> Tensor:
        return F.linear(F.normalize(input, dim=-1), F.normalize(self.weight, dim=-1))

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, num_classes={self.num_classes}"
