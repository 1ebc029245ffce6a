"""Communication between the processes of a run. All calls are collective."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn


class Replicas:
    """The copies of a model, one on each process. With a single process every call returns its argument."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.many = dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1
        self.rank = dist.get_rank() if self.many else 0
        self.size = dist.get_world_size() if self.many else 1

    def sum(self, numbers: Sequence[float]) -> list[float]:
        if not self.many:
            return list(numbers)
        total = torch.tensor(numbers, dtype=torch.float64, device=self.device)
        dist.all_reduce(total)
        return total.tolist()

    def sum_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Sum gradients. One that is None on some processes is zero there; one that all lack stays None."""
        if not self.many:
            return
        trained = [parameter for parameter in parameters if parameter.requires_grad]
        if any(parameter.grad is not None and parameter.grad.is_sparse for parameter in trained):
            raise ValueError(
                "sparse gradients cannot be summed over processes; use nn.Embedding(sparse=False)"
            )
        has_grad = [parameter.grad is not None for parameter in trained]
        present = torch.tensor(has_grad, dtype=torch.int32, device=self.device)
        dist.all_reduce(present, op=dist.ReduceOp.MAX)
        by_dtype: dict[torch.dtype, list[nn.Parameter]] = {}
        for parameter, is_present in zip(trained, present.tolist(), strict=True):
            if is_present:
                by_dtype.setdefault(parameter.dtype, []).append(parameter)
        for group in by_dtype.values():
            flat = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in group])
            dist.all_reduce(flat)
            for parameter, grad in zip(group, flat.split([p.numel() for p in group]), strict=True):
                parameter.grad = grad.view_as(parameter)

    def same(self, tensors: Iterable[Tensor]) -> None:
        """Copy the values of the first process to all others."""
        if self.many:
            for tensor in tensors:
                dist.broadcast(tensor.data, 0)

    def first(self, value: Any) -> Any:
        """The object of the first process."""
        if not self.many:
            return value
        box = [value]
        dist.broadcast_object_list(box, 0, device=self.device)
        return box[0]

    def gather(self, value: Any) -> list[Any]:
        """The objects of all processes."""
        if not self.many:
            return [value]
        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value)
        return values


def check_accelerator(accelerator: Any) -> None:
    """Raise ValueError for an Accelerator that accumulates or shards the model."""
    if accelerator.gradient_accumulation_steps != 1:
        raise ValueError(
            "leave the Accelerator's gradient_accumulation_steps at 1; the loop has accumulation= for that"
        )
    kind = accelerator.distributed_type.value
    if kind in ("DEEPSPEED", "FSDP", "MEGATRON_LM"):
        raise ValueError(f"the loop keeps a whole model on every process, which {kind} does not; use DDP")
