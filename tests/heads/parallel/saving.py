"""Run by test_checkpoint.py under torchrun: trains so many steps, saving and loading, and tells what the weights are.

saving FOLDER FIRST LAST [die]: from the checkpoint of step FIRST (0: none) to step LAST; `die`: while saving once more
"""

from __future__ import annotations

import os
import sys
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from sparring import AdaptiveDelta, ClassParallelHead
from sparring.heads.parallel import Checkpoints

C, H = 19, 6


def main() -> None:
    folder, first, last, *more = sys.argv[1:]
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    net = DistributedDataParallel(nn.Linear(4, H))
    model = nn.ModuleDict(
        {"net": net, "head": ClassParallelHead(H, C, delta=AdaptiveDelta(), inputs="gathered")}
    )
    optimizer = torch.optim.AdamW(
        [{"params": net.parameters()}, {"params": model["head"].parameters()}], 0.05
    )
    checkpoints, told = Checkpoints(folder, keep=4), {"seen": 0}
    assert checkpoints.load(model, optimizer, told=told) == int(first)
    assert told["seen"] == int(first)
    for step in range(int(first), int(last)):
        generator = torch.Generator().manual_seed(step)
        x, target = torch.randn(12, 4, generator=generator), torch.randint(C, (12,), generator=generator)
        model["head"](net(x[rank::size]), target[rank::size]).backward()
        optimizer.step()
        optimizer.zero_grad()
        checkpoints.save(step + 1, model, optimizer, told={"seen": step + 1})
    if more:  # one rank dies when its part is written, and before the whole is
        wait = dist.barrier
        if rank == size - 1:
            dist.barrier = lambda *_: os._exit(9) if list(Path(folder).glob("*.part/*.distcp")) else wait()  # type: ignore[assignment]
        checkpoints.save(int(last) + 1, model, optimizer, told={"seen": int(last) + 1})
    whole = model["head"].to_linear()
    if rank == 0:
        torch.save([*net.parameters(), whole.weight, whole.bias], Path(folder) / f"weights-{size}.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
