"""Run by test_checkpoint.py on some ranks: train some steps, saving each, and write the final weights.

checkpoint_training FOLDER FIRST LAST [die]: from the checkpoint of step FIRST (0: none) to step LAST; with
"die" one rank exits while it saves the next step.
"""

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
    folder = Path(sys.argv[1])
    first, last = int(sys.argv[2]), int(sys.argv[3])
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    net = DistributedDataParallel(nn.Linear(4, H))
    head = ClassParallelHead(H, C, delta=AdaptiveDelta(), inputs="gathered")
    model = nn.ModuleDict({"net": net, "head": head})
    optimizer = torch.optim.AdamW([{"params": net.parameters()}, {"params": head.parameters()}], 0.05)
    checkpoints = Checkpoints(folder, keep=4)
    progress = {"step": 0}
    assert checkpoints.load(model, optimizer, progress=progress) == first
    assert progress["step"] == first
    for step in range(first, last):
        generator = torch.Generator().manual_seed(step)
        x, target = torch.randn(12, 4, generator=generator), torch.randint(C, (12,), generator=generator)
        head(net(x[rank::size]), target[rank::size]).backward()
        optimizer.step()
        optimizer.zero_grad()
        checkpoints.save(step + 1, model, optimizer, progress={"step": step + 1})
    if "die" in sys.argv:
        barrier = dist.barrier
        if rank == size - 1:  # it exits when its part is written, and before the checkpoint is complete
            dist.barrier = lambda *_: os._exit(9) if list(folder.glob("*.part/*.distcp")) else barrier()
        checkpoints.save(last + 1, model, optimizer, progress={"step": last + 1})
    layer = head.to_linear()
    if rank == 0:
        torch.save([*net.parameters(), layer.weight, layer.bias], folder / f"weights-{size}.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
