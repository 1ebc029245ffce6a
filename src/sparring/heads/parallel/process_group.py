"""Training functions for several processes: a process group that survives restarts, and gradient clipping."""

import os
from collections.abc import Iterable
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.rendezvous import rendezvous

from sparring.losses.checks import check_positive


def init_process_group(backend: str | None = None, timeout: float = 60.0) -> None:
    """torch.distributed.init_process_group for processes started by torchrun or ``accelerate launch``.

    It also works after a restart by ``torchrun --max-restarts``. There torch's own function finds the
    addresses of the dead processes, because the launcher's store outlives them (pytorch#135712); here each
    restart uses a separate prefix in the store. With several nodes, whose restart counts may differ, start
    torchrun with TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 instead.

    Args:
        backend: "gloo", "nccl", or None for the default.
        timeout: Seconds after which an unresponsive rank is an error on the others; torch's default is 30
            minutes. gloo notices a dead process at once.
    """
    wait = timedelta(seconds=check_positive("timeout", timeout))
    restart = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    if restart == "0":
        dist.init_process_group(backend, timeout=wait)
        return
    store, rank, size = next(rendezvous("env://", timeout=wait))
    prefixed = dist.PrefixStore(f"restart-{restart}", store)  # type: ignore[attr-defined]
    dist.init_process_group(backend, store=prefixed, rank=rank, world_size=size, timeout=wait)


@torch.no_grad()
def clip_grad_norm_(parameters: Tensor | Iterable[Tensor], max_norm: float) -> Tensor:
    """torch.nn.utils.clip_grad_norm_ for plain parameters together with those of a `ClassParallelHead`.

    torch's own function rejects this mixture.

    Returns:
        The norm over the shards of all ranks, equal on all of them.
    """
    if isinstance(parameters, Tensor):
        parameters = [parameters]
    grads = [parameter.grad for parameter in parameters if parameter.grad is not None]
    norms = [torch.linalg.vector_norm(grad) for grad in grads]
    squares = [(norm.full_tensor() if hasattr(norm, "full_tensor") else norm).float() ** 2 for norm in norms]
    norm = torch.stack(squares).sum().sqrt() if squares else torch.zeros(())
    factor = (max_norm / (norm + 1e-6)).clamp(max=1)
    for grad in grads:
        local = grad.to_local() if hasattr(grad, "to_local") else grad
        local.mul_(factor.to(local.device))
    return norm
