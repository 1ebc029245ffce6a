"""Clipping gradients of which some are whole on every rank and some are parts."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor


@torch.no_grad()
def clip_grad_norm_(parameters: Tensor | Iterable[Tensor], max_norm: float) -> Tensor:
    """As torch's, for plain parameters beside those of a `ClassParallelHead`: the norm is over all ranks' slices, and the same everywhere.
    Torch's own refuses the two together, and of slices alone each rank would see a norm of its own."""
    grads = [
        each.grad
        for each in ([parameters] if isinstance(parameters, Tensor) else parameters)
        if each.grad is not None
    ]
    squares = [_square(grad) for grad in grads]
    norm = torch.stack(squares).sum().sqrt() if squares else torch.zeros(())
    factor = (max_norm / (norm + 1e-6)).clamp(max=1)
    for grad in grads:
        own = grad.to_local() if hasattr(grad, "to_local") else grad
        own.mul_(factor.to(own.device))
    return norm


def _square(grad: Tensor) -> Tensor:
    """Σ g², over all parts."""
    norm = torch.linalg.vector_norm(grad)
    whole: Tensor = norm.full_tensor() if hasattr(norm, "full_tensor") else norm
    return whole.float() ** 2
