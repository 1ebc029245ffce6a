r"""Class probabilities as targets, as F.cross_entropy takes them: from Mixup, distillation or several raters.

    loss = Σ_i w_i y_i (log Σ_{j∈Ω} exp(o_j) − o_i),      Ω: the classes that the loss keeps

y are the probabilities of a row, w class weights. "mean" divides by the number of rows, as in torch. A loss
with a margin needs one target class, so AS-Softmax takes no probabilities.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from sparring.losses.checks import check_tensors
from sparring.losses.kernels.modes import in_float32
from sparring.losses.rows import RowLosses, class_last

# Row functions that take probabilities -> (logits in float32 at least, probabilities, settings) -> the same,
# such that the loss is the equation above, and the logits that stay in the sum.
Soften = Callable[..., tuple[Tensor, Tensor, Tensor]]
SOFT_TARGETS: dict[Callable[..., RowLosses], Soften] = {}


def takes_probabilities(row_function: Callable[..., RowLosses], input: Tensor, target: Tensor) -> bool:
    """Whether the target holds class probabilities, and the loss takes them."""
    return target.is_floating_point() and target.shape == input.shape and row_function in SOFT_TARGETS


def soft_target_rows(
    row_function: Callable[..., RowLosses],
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    row_weight: Tensor | None = None,
    extras: Sequence[str] = (),
    concede: Any = None,
    **settings: Any,
) -> RowLosses:
    """Row losses of logits in the shapes of nn.CrossEntropyLoss, and class probabilities in the same shape.

    Raises:
        ValueError: A shape is wrong, the probabilities of a row do not sum to 1 (checked on CPU), or a κ or
            extras are asked for.
    """
    check_tensors(input, target, "class probabilities")
    n_classes = input.shape[min(1, input.dim() - 1)] if input.dim() else 0
    if n_classes == 0:
        raise ValueError(f"input has shape {tuple(input.shape)}, expected logits of at least one class")
    if weight is not None and weight.shape != (n_classes,):
        raise ValueError(
            f"weight has shape {tuple(weight.shape)}, expected ({n_classes},): one weight per class"
        )
    if concede is not None:
        raise ValueError("concede compares one target class with the others; use concede=None here")
    if extras:
        raise ValueError("extras need one target class for each row, not class probabilities")
    logits, probabilities = (
        class_last(x).flatten(0, -2) if x.dim() > 1 else x[None] for x in (input, target)
    )
    logits = in_float32(logits)
    _check_probabilities(probabilities)
    soften = SOFT_TARGETS[row_function]
    logits, probabilities, kept = soften(logits, probabilities.to(logits.dtype), **settings)
    if weight is not None:
        probabilities = probabilities * weight.to(logits.dtype)
    peak = kept.detach().amax(1, keepdim=True)
    differences = (kept - peak).logsumexp(1, keepdim=True) - (logits - peak)
    value = torch.where(probabilities == 0, 0, probabilities * differences).sum(1)  # 0 times inf is NaN
    valid = torch.ones_like(value, dtype=torch.bool)
    active = valid & ((logits.shape[1] > 1) | value.isnan())
    return RowLosses(torch.where(active, value, 0), valid, active).scaled(row_weight)


def _check_probabilities(target: Tensor) -> None:
    """Probabilities are at least 0 and sum to 1, to the precision of half floats. Checked on CPU only."""
    if not target.is_cpu or target.numel() == 0 or torch.compiler.is_compiling():
        return
    try:
        low = float(target.min())
        sums = target.float().sum(1)
        wrong = ((sums - 1).abs() > 0.01).nonzero().flatten()
        row = int(wrong[0]) if len(wrong) else None
    except RuntimeError:  # inside vmap values cannot be read
        return
    if low < 0 or row is not None:
        what = f"a value of {low:g}" if low < 0 else f"a row, number {row}, that sums to {float(sums[row]):g}"
        raise ValueError(
            f"target holds {what}, expected class probabilities of at least 0 that sum to 1 in each row."
            " For 0/1 label rows use MultilabelSoftmaxLoss"
        )


def keep_all(logits: Tensor, probabilities: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Softmax."""
    return logits, probabilities, logits


def scale(logits: Tensor, probabilities: Tensor, tau: float) -> tuple[Tensor, Tensor, Tensor]:
    """Softmax at a temperature."""
    scaled = logits / tau
    return scaled, probabilities, scaled


def smooth(logits: Tensor, probabilities: Tensor, epsilon: float) -> tuple[Tensor, Tensor, Tensor]:
    """Label smoothing: each class gives up ε of its probability, in equal parts to the others."""
    n_classes = logits.shape[1]
    if epsilon > 0 and n_classes > 1:
        probabilities = (1 - epsilon) * probabilities + epsilon * (1 - probabilities) / (n_classes - 1)
    return logits, probabilities, logits


def keep_largest(logits: Tensor, probabilities: Tensor, k: int) -> tuple[Tensor, Tensor, Tensor]:
    """Sparse-Softmax: the k largest logits stay in the sum."""
    return logits, probabilities, logits.topk(min(k, logits.shape[1]), dim=1).values
