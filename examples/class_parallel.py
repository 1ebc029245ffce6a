"""Whose name is this? Names in 163 languages, and each of twenty thousand things they stand for is a class: every rank holds its part.

    torchrun --nproc-per-node 2 examples/class_parallel.py
    torchrun --nproc-per-node 2 examples/class_parallel.py --classes 1000000 --steps 100      # room for a million
    torchrun --nproc-per-node 2 --max-restarts 1 examples/class_parallel.py --folder run     # a rank that dies costs ten steps

Encoder under DDP, each rank with its share of the batch; head by classes. The data comes with pycountry; nothing is downloaded.
"""

from __future__ import annotations

import argparse
import resource
import zlib
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from sparring import ClassParallelHead
from sparring.heads.parallel import Checkpoints, init_process_group
from sparring.lab.readers.catalogues import spellings

BUCKETS = 2**14


def bags(texts: list[str]) -> tuple[Tensor, Tensor]:
    """Runs of one to three characters, hashed: what nn.EmbeddingBag takes."""
    found = [
        [zlib.crc32(f" {text} "[i : i + n].encode()) % BUCKETS for n in (1, 2, 3) for i in range(len(text))]
        for text in texts
    ]
    ends = torch.tensor([0, *(len(each) for each in found)]).cumsum(0)
    return torch.tensor([run for each in found for run in each]), ends[:-1]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, value in {
        "steps": 400,
        "batch": 256,
        "names": 40000,
        "classes": 0,
        "lr": 0.01,
        "save": 10,
        "folder": "",
    }.items():
        parser.add_argument(f"--{name}", type=type(value), default=value)
    args = parser.parse_args()
    init_process_group(timeout=60)  # a rank that is silent for longer is taken for dead
    rank, size = dist.get_rank(), dist.get_world_size()

    torch.manual_seed(0)
    names = sorted((each.text, each.msgids[0]) for each in spellings() if len(each.msgids) == 1)
    names = [names[i] for i in torch.randperm(len(names))[: args.names].tolist()]
    classes = {thing: i for i, thing in enumerate(sorted({thing for _, thing in names}))}
    encoder = DistributedDataParallel(nn.EmbeddingBag(BUCKETS, 64))
    head = ClassParallelHead(64, max(args.classes, len(classes)), delta=0.3, inputs="gathered")
    model = nn.ModuleDict({"encoder": encoder, "head": head})
    optimizer = torch.optim.AdamW([{"params": encoder.parameters()}, {"params": head.parameters()}], args.lr)
    checkpoints = Checkpoints(args.folder) if args.folder else None
    first = checkpoints.load(model, optimizer) if checkpoints else 0

    train, test = names[len(names) // 20 :], names[: len(names) // 20]
    for step in range(first, args.steps):
        batch = torch.randint(
            len(train), (args.batch,), generator=torch.Generator().manual_seed(step)
        ).tolist()
        own = [train[i] for i in batch[rank::size]]
        features = encoder(*bags([text for text, _ in own]))
        rows = head.rows(features, torch.tensor([classes[thing] for _, thing in own]))
        rows.mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        if checkpoints and (step + 1) % args.save == 0:
            checkpoints.save(step + 1, model, optimizer)
        if rank == 0 and (step + 1) % 50 == 0:
            print(f"step {step + 1}: loss {rows.mean():.3f}, {rows.won_share():.0%} won", flush=True)

    own = test[rank::size]
    found = head.predict(encoder(*bags([text for text, _ in own])), k=5).indices
    hits = (found == torch.tensor([[classes[thing]] for _, thing in own])).float()
    right = torch.stack([hits[:, 0].sum(), hits.sum(), torch.tensor(float(len(own)))])
    dist.all_reduce(right)
    whole = head.to_linear() if args.folder else None
    if rank == 0:
        shares = right[:2] / right[2]
        print(
            f"{head.num_classes:,} classes on {size} rank(s): {shares[0]:.1%} right, {shares[1]:.1%} among the first five"
        )
        if whole is not None:
            torch.save(
                {"encoder": encoder.module.state_dict(), "head": whole.state_dict()},
                Path(args.folder) / "model.pt",
            )
    print(
        f"rank {rank}: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.2f} GiB at most",
        flush=True,
    )
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
