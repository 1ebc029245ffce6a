"""Begin as one of several processes, so that a restart works and a silent rank is noticed."""

from __future__ import annotations

import os
from datetime import timedelta

import torch.distributed as dist
from torch.distributed.rendezvous import rendezvous

from sparring.losses.checks import check_positive


def init_process_group(backend: str | None = None, timeout: float = 60.0) -> None:
    """torch.distributed.init_process_group for a process that torchrun or `accelerate launch` started.

    - ``timeout``, in seconds: how long a rank may be silent before the others end with an error; torch waits for half an hour. With gloo a
      rank that is gone is noticed at once.
    - Under ``torchrun --max-restarts`` torch's own finds the addresses of the processes that died, since the launcher's store outlives them
      (pytorch#135712). Here each start on a node has its place in it. On several nodes, whose counts of restarts may differ, start
      torchrun with TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 instead.
    """
    wait, restart = (
        timedelta(seconds=check_positive("timeout", timeout)),
        os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"),
    )
    if restart == "0":
        dist.init_process_group(backend, timeout=wait)
        return
    store, rank, size = next(rendezvous("env://", timeout=wait))
    prefixed = dist.PrefixStore(f"restart-{restart}", store)  # type: ignore[attr-defined]
    dist.init_process_group(backend, store=prefixed, rank=rank, world_size=size, timeout=wait)
