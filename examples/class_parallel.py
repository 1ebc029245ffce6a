"""Class-parallel training: names in many languages, and the thing that each of them names is its class.

    torchrun --nproc-per-node 2 examples/class_parallel.py
    torchrun --nproc-per-node 2 examples/class_parallel.py --classes 1000000 --steps 100
    torchrun --nproc-per-node 2 --max-restarts 1 examples/class_parallel.py --folder run

The encoder is wrapped in DDP, and each rank has its part of a batch; the classes of the head are sharded
over the ranks. --classes makes room for more classes than the data has. With --folder, a run whose rank
dies continues from the last checkpoint. The data comes with the pycountry package; nothing is downloaded.
"""

import argparse
import gettext
import resource
import zlib
from pathlib import Path

import pycountry
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from sparring import ClassParallelHead
from sparring.parallel import Checkpoints, init_process_group

BUCKETS = 2**14


def read_names() -> list[tuple[str, str]]:
    """(translated name, English name) of languages, countries, scripts and currencies, in random order."""
    names: dict[str, set[str]] = {}
    for path in sorted(Path(pycountry.LOCALES_DIR).glob("*/LC_MESSAGES/*.mo")):
        with path.open("rb") as file:
            catalogue = vars(gettext.GNUTranslations(file))["_catalog"]
        for english, name in catalogue.items():
            if isinstance(english, str) and english and name not in ("", english):
                names.setdefault(name, set()).add(english)
    unique = sorted((name, min(english)) for name, english in names.items() if len(english) == 1)
    return [unique[i] for i in torch.randperm(len(unique)).tolist()]


def encode(names: list[tuple[str, str]]) -> tuple[Tensor, Tensor]:
    """Hashed character n-grams (n = 1, 2, 3) of the names, and their offsets, for nn.EmbeddingBag."""
    bags = [
        [zlib.crc32(f" {name} "[i : i + n].encode()) % BUCKETS for n in (1, 2, 3) for i in range(len(name))]
        for name, _ in names
    ]
    offsets = torch.tensor([0, *(len(bag) for bag in bags)]).cumsum(0)
    return torch.tensor([bucket for bag in bags for bucket in bag]), offsets[:-1]


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--names", type=int, default=40000, help="names to use")
    parser.add_argument("--classes", type=int, default=0, help="classes of the head, at least")
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--save", type=int, default=10, help="steps between checkpoints")
    parser.add_argument("--folder", default="", help="folder of checkpoints")
    return parser.parse_args()


def main() -> None:
    args = parse_arguments()
    init_process_group(timeout=60)  # a rank that does not respond for longer is an error
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    names = read_names()[: args.names]
    classes = {english: i for i, english in enumerate(sorted({english for _, english in names}))}
    test, train = names[: len(names) // 20], names[len(names) // 20 :]

    encoder = DistributedDataParallel(nn.EmbeddingBag(BUCKETS, 64))
    head = ClassParallelHead(64, max(args.classes, len(classes)), delta=0.3, inputs="gathered")
    model = nn.ModuleDict({"encoder": encoder, "head": head})
    optimizer = torch.optim.AdamW([{"params": encoder.parameters()}, {"params": head.parameters()}], args.lr)
    checkpoints = Checkpoints(args.folder) if args.folder else None
    first = checkpoints.load(model, optimizer) if checkpoints else 0

    for step in range(first, args.steps):
        generator = torch.Generator().manual_seed(step)
        batch = torch.randint(len(train), (args.batch,), generator=generator).tolist()
        samples = [train[i] for i in batch[rank::size]]
        target = torch.tensor([classes[english] for _, english in samples])
        rows = head.rows(encoder(*encode(samples)), target)
        rows.mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        if checkpoints and (step + 1) % args.save == 0:
            checkpoints.save(step + 1, model, optimizer)
        if rank == 0 and (step + 1) % 50 == 0:
            print(f"step {step + 1}: loss {rows.mean():.3f}, {rows.won_share():.0%} won", flush=True)

    samples = test[rank::size]
    predicted = head.predict(encoder(*encode(samples)), k=5).indices
    hits = (predicted == torch.tensor([[classes[english]] for _, english in samples])).float()
    counts = torch.stack([hits[:, 0].sum(), hits.sum(), torch.tensor(float(len(samples)))])
    dist.all_reduce(counts)
    layer = head.to_linear() if args.folder else None
    if rank == 0:
        right, among_five = (counts[:2] / counts[2]).tolist()
        shares = f"{right:.1%} right, {among_five:.1%} among the top 5"
        print(f"{head.num_classes:,} classes on {size} rank(s): {shares}")
        if layer is not None:
            state = {"encoder": encoder.module.state_dict(), "head": layer.state_dict()}
            torch.save(state, Path(args.folder) / "model.pt")
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"rank {rank}: {memory:.2f} GiB at most", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
