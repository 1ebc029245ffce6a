"""In which dtype the losses compute, and which transforms of torch are active."""

import torch
from torch import Tensor


def at_least_float32(dtype: torch.dtype) -> torch.dtype:
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


def in_float32(logits: Tensor) -> Tensor:
    """Logits in float32 at least."""
    return logits.to(at_least_float32(logits.dtype))


def in_forward_mode() -> bool:
    """Whether forward-mode AD is active (`torch.func.jvp`, `jacfwd` or `torch.autograd.forward_ad`).

    The losses then run as differentiable torch operations: with nested forward mode, torch silently computes
    a wrong second derivative from an autograd.Function that defines `jvp`.
    """
    return torch.autograd.forward_ad._current_level >= 0


def in_autograd_vmap(x: Tensor) -> bool:
    """Whether x is a batch of gradients under `is_grads_batched`, whose vmap is older than torch.func's."""
    return torch._C._functorch.is_legacy_batchedtensor(x)


def in_vmap(x: Tensor) -> bool:
    """Whether x is a batch of tensors inside any vmap: in-place multiplication by it is not possible."""
    return in_autograd_vmap(x) or torch._C._functorch.is_batchedtensor(x)
