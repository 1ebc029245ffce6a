"""Run by test_faults.py: train a class-parallel head without end, with a timeout of five seconds."""

import sys
from pathlib import Path

import torch
import torch.distributed as dist

from sparring import ClassParallelHead
from sparring.heads.parallel import init_process_group


def main() -> None:
    init_process_group("gloo", timeout=5)
    head = ClassParallelHead(8, 100)
    x, target = torch.randn(16, 8, generator=torch.Generator().manual_seed(0)), torch.arange(16)
    while True:
        head(x.requires_grad_(), target).backward()
        if dist.get_rank() == 0:
            (Path(sys.argv[1]) / "step-00000001").mkdir(exist_ok=True)


if __name__ == "__main__":
    main()
