"""The same losses and gradients with the logits held: for tracing, forward-mode AD, second derivatives, many gradients at once."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from sparring.heads.dispatch import Head
from sparring.losses.base import at_least_float32, valid_targets
from sparring.losses.rows import RowLosses

_ROWS, _ELEMENTS = 32, 2**20  # labels that are compared at once, at least: all of them may be large


def valid_rows(target: Tensor, ignore_index: int) -> Tensor:
    """(N,) bool: rows with a class index, or with at least one label, that is not ignored."""
    if target.dim() == 1:
        return valid_targets(target, ignore_index)[1]
    parts = target.split(max(_ROWS, _ELEMENTS // target.shape[1]))
    return torch.cat([((part == 0) | (part == 1)).any(1) for part in parts])


def unfused_rows(
    head: Head, target: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None = None
) -> RowLosses:
    """`head.rows(F.linear(x, weight, bias), target)`.

    Features of ignored rows count as zeros. The fused passes never multiply by them either, so that a NaN in an ignored
    row reaches no gradient.
    """
    bias = None if bias is None else bias.to(head.dtype)
    return head.rows(F.linear(_valid_features(head, target, x), weight.to(head.dtype), bias), target)


def batched_gradients(
    upstream: Tensor, head: Head, target: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of Σ upstream·value for a batch of `upstream` under `is_grads_batched`, in operations that can be batched."""
    x_valid, weight_cast = _valid_features(head, target, x), weight.to(head.dtype)
    logits = F.linear(x_valid, weight_cast, None if bias is None else bias.to(head.dtype))
    pull_back = torch.func.vjp(lambda logits: head.rows(logits, target).value, logits)[1]
    ones = torch.ones(len(x), dtype=at_least_float32(head.dtype), device=x.device)
    grad = (pull_back(ones)[0] * upstream[:, None]).to(head.dtype)  # (N, C), of the logits
    of_input, of_weight, of_bias = grad @ weight_cast, grad.T @ x_valid, grad.sum(0)
    bias_dtype = weight.dtype if bias is None else bias.dtype
    return of_input.to(x.dtype), of_weight.to(weight.dtype), of_bias.to(bias_dtype)


def _valid_features(head: Head, target: Tensor, x: Tensor) -> Tensor:
    return torch.where(valid_rows(target, head.ignore_index)[:, None], x, 0).to(head.dtype)
