"""Run by test_replicas.py under torchrun: a run is saved and resumed, also with another rate, and after damage."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import torch
import torch.distributed as dist

from sparring.files import CheckpointWarning
from sparring.training.resume import ResumeError
from tests.training.toy import gap, run


def main(folder: Path, out: str) -> None:
    torch.set_num_threads(1)
    whole, _ = run(folder=folder, epochs=2)
    rank, outcomes = dist.get_rank(), []
    outcomes.append(gap(whole, run(folder=folder, epochs=2)[0]))
    try:
        run(folder=folder, epochs=2, lr=0.5)
    except ResumeError as error:
        outcomes.append("lr 0.02 (now 0.5)" in str(error))
    dist.barrier()
    if rank == 0:
        path = folder / "checkpoint.pt"
        path.write_bytes(path.read_bytes()[:-1])
    dist.barrier()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        outcomes.append(gap(whole, run(folder=folder, epochs=2)[0]))
    outcomes.append(sum(issubclass(warning.category, CheckpointWarning) for warning in caught))
    Path(f"{out}.{rank}").write_text(repr(outcomes))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
