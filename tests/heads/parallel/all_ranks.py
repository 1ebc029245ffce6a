"""Run by test_head.py on four ranks: all checks that need several ranks, in one launch.

An error on any rank fails the launch. Rank 0 prints a line for each group of checks that passed.
"""

import sys
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from sparring import ClassParallelHead
from tests.heads.parallel import collective_checks, mesh_checks, nonfinite, unsharded


def main() -> None:
    early = ClassParallelHead(mesh_checks.H, mesh_checks.C)  # made before the process group
    dist.init_process_group("gloo", timeout=timedelta(seconds=200))
    three = dist.new_group([0, 1, 2])
    one = dist.new_group([3])
    two = dist.new_group([0, 1])
    n_cases = {4: unsharded.check_all(None, part=0)}
    if dist.get_rank() < 3:  # three ranks and one rank, side by side
        n_cases[3] = unsharded.check_all(three, part=1)
        nonfinite.check_all(three)
    else:
        n_cases[1] = unsharded.check_all(one, part=2)
    if dist.get_rank() < 2:
        n_cases[2] = unsharded.check_all(two, part=2)
    dist.barrier()
    collective_checks.check_all()
    mesh_checks.check_all(early)
    every: list[Any] = [None] * 4
    dist.all_gather_object(every, n_cases)
    if dist.get_rank() == 0:
        counts = sorted({item for counts in every for item in counts.items()})
        sys.stdout.write(f"unsharded: {counts}\nnonfinite: passed\ncollectives: passed\nmeshes: passed\n")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
