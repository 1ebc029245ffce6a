"""What the processes of a data-parallel run do together with the gradients of a model."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from sparring.heads.parallel.collectives import Collectives


def sum_gradients(parameters: Iterable[nn.Parameter], collectives: Collectives) -> None:
    """Sum gradients over processes. One that is None on some is zero there; one that all lack stays None."""
    if collectives.size == 1:
        return
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    if any(parameter.grad is not None and parameter.grad.is_sparse for parameter in trained):
        raise ValueError("sparse gradients cannot be summed over processes; use nn.Embedding(sparse=False)")
    has_grad = [parameter.grad is not None for parameter in trained]
    present = collectives.max(torch.tensor(has_grad, dtype=torch.int32, device=collectives.device))
    by_dtype: dict[torch.dtype, list[nn.Parameter]] = {}
    for parameter, is_present in zip(trained, present.tolist(), strict=True):
        if is_present:
            by_dtype.setdefault(parameter.dtype, []).append(parameter)
    for group in by_dtype.values():
        grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in group]
        flat = collectives.sum(torch.cat([grad.flatten() for grad in grads]))
        for parameter, grad in zip(group, flat.split([p.numel() for p in group]), strict=True):
            parameter.grad = grad.view_as(parameter)


def check_accelerator(accelerator: Any) -> None:
    """Raise ValueError for an Accelerator that accumulates or shards the model."""
    if accelerator.gradient_accumulation_steps != 1:
        raise ValueError(
            "leave the Accelerator's gradient_accumulation_steps at 1; the loop has accumulation= for that"
        )
    wrapper = accelerator.distributed_type.value
    if wrapper in ("DEEPSPEED", "FSDP", "MEGATRON_LM"):
        raise ValueError(f"the loop keeps a whole model on every process, which {wrapper} does not; use DDP")
