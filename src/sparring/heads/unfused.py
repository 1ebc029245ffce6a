"""The same losses and gradients with materialised logits.

Tracing, forward-mode AD, second derivatives and batched gradients cannot run chunk by chunk.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from sparring.heads.dispatch import HeadInputs, HeadSpec
from sparring.losses.base import valid_targets
from sparring.losses.rows import RowLosses

# Labels compared at once: 32 rows or 2**20 entries, since the mask of a whole label matrix may be large.
_MIN_ROWS = 32
_MIN_ENTRIES = 2**20


def valid_rows(target: Tensor, ignore_index: int) -> Tensor:
    """(N,) bool: rows whose class index, or at least one of whose labels, is not ignored."""
    if target.dim() == 1:
        return valid_targets(target, ignore_index)[1]
    parts = target.split(max(_MIN_ROWS, _MIN_ENTRIES // target.shape[1]))
    return torch.cat([((part == 0) | (part == 1)).any(1) for part in parts])


def unfused_rows(
    spec: HeadSpec, target: Tensor, features: Tensor, weight: Tensor, bias: Tensor | None = None
) -> RowLosses:
    """``spec.rows(F.linear(features, weight, bias), target)``.

    Features of ignored rows are replaced by zeros, so that a NaN in an ignored row reaches no gradient. The
    chunked passes never multiply by them either.
    """
    bias = None if bias is None else bias.to(spec.dtype)
    logits = F.linear(_valid_features(spec, target, features), weight.to(spec.dtype), bias)
    return spec.rows(logits, target)


def batched_gradients(upstream: Tensor, inputs: HeadInputs, spec: HeadSpec) -> tuple[Tensor, ...]:
    """Gradients of Σ upstream·value for a batch of ``upstream`` under ``is_grads_batched``."""
    leaves = [tensor.detach().requires_grad_() for tensor in inputs[:3] if tensor is not None]
    with torch.enable_grad():
        value = unfused_rows(spec, inputs.target, *leaves).value
    return torch.autograd.grad(value, leaves, upstream)


def _valid_features(spec: HeadSpec, target: Tensor, features: Tensor) -> Tensor:
    return torch.where(valid_rows(target, spec.ignore_index)[:, None], features, 0).to(spec.dtype)
