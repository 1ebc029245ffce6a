"""Class-parallel heads on 1, 2 and 4 gloo ranks: memory of a rank, bytes on the wire, and time, against an unsharded head and against
gathering the logits.

    python benchmarks/parallel.py             10⁵ and 10⁶ classes, some minutes on two cores
    python benchmarks/parallel.py --quick     10⁴ classes and two ranks, half a minute
    python benchmarks/parallel.py --clusters  no runs: what the model says of 10⁷ and 10⁸ classes on GPUs

64 rows of 64 features, the same on all ranks; one thread a rank, so that more ranks than cores take turns. A step is forward and backward,
the least of the repeats counts, and contestants alternate. "gathering logits" is what a head on DTensors comes to without a loss that knows
of slices: every rank gets all logits. "unsharded" is F.cross_entropy of F.linear; "fused" our LinearLoss, both on one rank.

Kept: weights, gradients and AdamW's state of a rank. Extra: the most bytes alive at once in a step over these. Sent: the head's own count,
and what the loopback interface saw beside it, of everybody, with the headers of packets.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from report import peak_memory, provenance, write
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from sparring import ASSoftmaxLoss, ClassParallelHead, LinearLoss

RESULT = Path(__file__).parents[1] / "docs" / "results" / "parallel" / "parallel.json"
ROWS, FEATURES = 64, 64
CONTESTANTS = {  # by name: δ, the share of rows that is won, and on how many ranks
    "unsharded": (1.0, 0.0, "one"),
    "fused, AS-Softmax": (0.3, 0.0, "one"),
    "gathering logits": (1.0, 0.0, "many"),
    "class-parallel, softmax": (1.0, 0.0, "all"),
    "class-parallel, AS-Softmax": (0.3, 0.0, "all"),
    "class-parallel, AS-Softmax, 90 % won": (0.3, 0.9, "all"),
}


def model_kept(n_classes: int, features: int, ranks: int) -> float:
    """Bytes of a rank: weights, gradients and AdamW's two moments in float32."""
    return 16.0 * -(-n_classes // ranks) * features


def model_sent(rows: int, features: int, ranks: int, *, contested: int = 0, gathered: bool = False) -> float:
    """Bytes that leave a rank in a step: max, Σ exp and the target's logit of each row, two numbers of each contested one, and the gradient
    of the input; of gathered inputs (``rows`` of all ranks) the features, targets and their number too."""
    ring = (ranks - 1) / ranks
    few = 2 * ring * 4 * (3 * rows + 2 * contested)
    if not gathered:
        return few + 2 * ring * 4 * rows * features
    return few + ring * rows * (4 * features + 8) + 8 * (ranks - 1) + ring * 4 * rows * features


def model_flops(rows: int, features: int, n_classes: int, ranks: int, won: float = 0.0) -> float:
    """Of a rank: one product in the forward, two in the backward over the rows that are not won."""
    return 2.0 * rows * features * n_classes / ranks * (1 + 2 * (1 - won))


def clusters(console: Console) -> None:
    """On GPUs of 80 GB: 60 TFLOP/s of TF32 products as they come out in practice, 1.5 TB/s of memory, 25 GB/s to the other ranks."""
    table = Table(title="4,096 rows of 512 features, gathered, AdamW in float32; a step of the head alone")
    for column in ("classes", "ranks", "kept GB a rank", "sent MB a rank", "ms products", "90 % won", "ms AdamW", "ms wire"):
        table.add_column(column, justify="right")
    for n_classes, ranks in ((10**7, 1), (10**7, 2), (10**7, 8), (10**8, 16), (10**8, 64), (10**8, 256)):
        kept, sent = model_kept(n_classes, 512, ranks), model_sent(4096, 512, ranks, gathered=True)
        products = [1e3 * model_flops(4096, 512, n_classes, ranks, won) / 60e12 for won in (0.0, 0.9)]
        update = 1e3 * kept / 16 * 28 / 1.5e12  # reads of four numbers, writes of three
        row = (f"{n_classes:,}", f"{ranks}", f"{kept / 1e9:.1f}", f"{sent / 1e6:.1f}", *(f"{each:.0f}" for each in (*products, update)))
        table.add_row(*row, f"{1e3 * sent / 25e9:.1f}")
    console.print(table)


def batch(weight: Callable[[Tensor], Tensor], n_classes: int, won: float) -> tuple[Tensor, Tensor]:
    """Random rows; of those that are to be won a long way towards the target's weight."""
    generator = torch.Generator().manual_seed(1)
    x, target = torch.randn(ROWS, FEATURES, generator=generator), torch.randint(n_classes, (ROWS,), generator=generator)
    n = round(won * ROWS)
    if n:
        x[:n] = 100 * weight(target[:n])
    return x, target


def rows_of(head: ClassParallelHead, classes: Tensor) -> Tensor:
    """Weights of classes, from the ranks that have them."""
    mine = head.slice.local(classes)
    own = head.weight.to_local().detach() if hasattr(head.weight, "to_local") else head.weight.detach()  # type: ignore[attr-defined]
    found = torch.where((mine >= 0)[:, None], own[mine.clamp(min=0)], 0.0) if len(own) else torch.zeros(len(classes), FEATURES)
    return head.wire.sum(found)


class Gathered(torch.autograd.Function):
    """(N, C/p) logits of a rank to (N, C) of all; backward keeps the own part."""

    @staticmethod
    def forward(ctx: Any, own: Tensor, widths: list[int]) -> Tensor:
        padded = own.new_zeros(len(own), max(widths))
        padded[:, : own.shape[1]] = own
        every = [torch.empty_like(padded) for _ in widths]
        dist.all_gather(every, padded)
        ctx.start = sum(widths[: dist.get_rank()])
        ctx.width = own.shape[1]
        return torch.cat([part[:, :n] for part, n in zip(every, widths, strict=True)], 1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        return grad[:, ctx.start : ctx.start + ctx.width].contiguous(), None


class SumOfInput(torch.autograd.Function):
    """The same input on all ranks: its gradient is the sum of theirs."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # type: ignore[override]
        dist.all_reduce(grad)
        return grad


def contestant(name: str, n_classes: int) -> tuple[list[nn.Parameter], Callable[[], None], Callable[[], int], float]:
    """Parameters, a step, bytes sent so far, and the share that is won."""
    delta, won, _ = CONTESTANTS[name]
    torch.manual_seed(0)
    head = ClassParallelHead(FEATURES, n_classes, delta, bias=False)
    x, target = batch(lambda classes: rows_of(head, classes), n_classes, won)
    x.requires_grad_()
    if name.startswith("class-parallel"):

        def step() -> None:
            head(x, target).backward()

        share = float(head.rows(x.detach(), target).won_share())
        assert abs(share - won) < 0.05, f"meant {won}, made {share}"
        return list(head.parameters()), step, lambda: head.wire.n_bytes, share
    if name == "gathering logits":
        ranks, own = dist.get_world_size(), head.weight.to_local().detach().clone().requires_grad_()  # type: ignore[attr-defined]
        widths = [-(-n_classes // ranks)] * ranks
        widths[-1] = n_classes - sum(widths[:-1])
        sent = [0]

        def gather_step() -> None:
            logits = Gathered.apply(F.linear(SumOfInput.apply(x), own), widths)
            sent[0] += (ranks - 1) * ROWS * max(widths) * 4 + 2 * (ranks - 1) * x.nbytes // ranks
            F.cross_entropy(logits, target).backward()

        return [own], gather_step, lambda: sent[0], 0.0  # type: ignore[list-item]
    whole = LinearLoss(FEATURES, n_classes, ASSoftmaxLoss(delta), bias=False)
    whole.linear.weight = nn.Parameter(head.to_linear().weight.detach())

    def alone() -> None:
        loss = whole(x, target) if name.startswith("fused") else F.cross_entropy(whole.logits(x), target)
        loss.backward()

    return [whole.linear.weight], alone, lambda: 0, 0.0


def loopback() -> int:
    """Bytes that went over the loopback interface."""
    try:
        line = next(line for line in Path("/proc/net/dev").read_text().splitlines() if line.strip().startswith("lo:"))
    except (OSError, StopIteration):
        return 0
    return int(line.split()[9])


def measure(names: list[str], n_classes: int, repeats: int) -> None:
    """Run by torchrun, on every rank; the first one tells."""
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    found: dict[str, dict[str, Any]] = {}
    made = {name: contestant(name, n_classes) for name in names}
    for name, (parameters, step, sent, share) in made.items():
        step()
        optimizer = torch.optim.AdamW(parameters, 1e-6)
        optimizer.step()
        state = [each for values in optimizer.state.values() for each in values.values() if each.dim()]
        local = [each.to_local() if hasattr(each, "to_local") else each for p in [*parameters, *state] for each in (p,)]
        kept = sum(each.nbytes for each in local) + sum(each.nbytes for each in local[: len(parameters)])
        del optimizer, state, local
        dist.barrier()
        before, at_lo = sent(), loopback()
        step()
        dist.barrier()
        n_sent, seen = sent() - before, loopback() - at_lo
        for each in parameters:
            each.grad = None
        extra = peak_memory(step) - kept // 4  # less the gradients
        found[name] = {"kept": kept, "extra": extra, "sent": n_sent, "seen": seen, "won": share, "seconds": []}
    for _ in range(repeats):
        for name, (parameters, step, _, _) in made.items():
            for each in parameters:
                each.grad = None
            dist.barrier()
            start = time.perf_counter()
            step()
            dist.barrier()
            found[name]["seconds"].append(time.perf_counter() - start)
    numbers = [[each["kept"], each["extra"]] for each in found.values()]
    most = torch.tensor(numbers, dtype=torch.double)
    dist.all_reduce(most, dist.ReduceOp.MAX)
    if dist.get_rank() == 0:
        for each, (kept, extra) in zip(found.values(), most.tolist(), strict=True):
            each |= {"kept": kept, "extra": extra, "seconds": min(each["seconds"])}
        sys.stdout.write(f"RESULT {json.dumps(found)}\n")
    dist.destroy_process_group()


def launch(ranks: int, n_classes: int, repeats: int) -> list[dict[str, Any]]:
    wanted = ("one", "all") if ranks == 1 else ("many", "all")
    names = [name for name, (_, _, where) in CONTESTANTS.items() if where in wanted]
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks), __file__]
    command += ["--measure", str(n_classes), "--repeats", str(repeats), "--names", *names]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"})
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    if done.returncode or not lines:
        sys.exit(done.stderr[-3000:])
    return [{"classes": n_classes, "ranks": ranks, "contestant": name, **row} for name, row in json.loads(lines[0][7:]).items()]


COLUMNS = ("", "ranks", "kept MB", "model", "extra MB", "sent KB", "model", "seen KB", "seconds", "model", "against unsharded")


def cells(rows: list[dict[str, Any]]) -> list[list[str]]:
    """Of one number of classes: what was measured, and beside it what the model says."""
    base = next(row["seconds"] for row in rows if row["contestant"] == "unsharded")
    one = {row["contestant"]: row["seconds"] for row in rows if row["ranks"] == 1}
    found = []
    for row in rows:
        ours, ranks, seconds = row["contestant"].startswith("class-parallel"), row["ranks"], row["seconds"]
        kept, sent = model_kept(row["classes"], FEATURES, ranks), model_sent(ROWS, FEATURES, ranks)
        time_ = one[row["contestant"]] / min(ranks, os.cpu_count() or 1) if ours else None  # ranks beyond the cores take turns
        found.append(
            [
                *(row["contestant"], str(ranks), f"{row['kept'] / 1e6:.1f}", f"{kept / 1e6:.1f}", f"{row['extra'] / 1e6:.0f}"),
                *(f"{row['sent'] / 1e3:,.1f}", f"{sent / 1e3:,.1f}" if ours else "", f"{row['seen'] / 1e3:,.0f}", f"{seconds:.3f}"),
                *("" if time_ is None else f"{time_:.3f}", f"{seconds / base:.2f}"),
            ]
        )
    return found


def show(rows: list[dict[str, Any]], console: Console, *, markdown: bool = False) -> None:
    for n_classes in dict.fromkeys(row["classes"] for row in rows):
        lines = cells([row for row in rows if row["classes"] == n_classes])
        if markdown:
            head = [f"{n_classes:,} classes", *COLUMNS[1:]]
            rule = ["---", *("---:" for _ in COLUMNS[1:])]
            print("\n" + "\n".join(f"| {' | '.join(line)} |" for line in [head, rule, *lines]))
            continue
        table = Table(title=f"{n_classes:,} classes, {ROWS} rows of {FEATURES} features")
        for column in COLUMNS:
            table.add_column(column, justify="right" if column else "left")
        for line in lines:
            table.add_row(*line)
        console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--clusters", action="store_true")
    parser.add_argument("--markdown", action="store_true", help="no runs: the tables of the result there is")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--no-save", action="store_true")
    parser.add_argument("--measure", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--names", nargs="+", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        measure(args.names, args.measure, args.repeats)
        return
    if args.clusters:
        clusters(Console(width=130))
        return
    if args.markdown:
        show(json.loads(RESULT.read_text())["rows"], Console(), markdown=True)
        return
    sizes, ranks = ((10_000,), (1, 2)) if args.quick else ((100_000, 1_000_000), (1, 2, 4))
    rows = [row for n_classes in sizes for n in ranks for row in launch(n, n_classes, 3 if args.quick else args.repeats)]
    show(rows, Console(width=170))
    if not (args.quick or args.no_save):
        write({**provenance(__file__, sys.argv[1:], 1), "rows_features": [ROWS, FEATURES], "rows": rows}, RESULT)


if __name__ == "__main__":
    main()
