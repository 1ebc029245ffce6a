"""Class-parallel heads on 1, 2 and 4 gloo ranks: memory of a rank, bytes on the wire, and time, against an unsharded head and against
gathering the logits.

    python benchmarks/parallel.py             10⁵ and 10⁶ classes, some minutes on two cores
    python benchmarks/parallel.py --quick     10⁴ classes and two ranks, half a minute
    python benchmarks/parallel.py --clusters  no runs: what the model says of 10⁷ and 10⁸ classes on GPUs

64 rows of 64 features, the same on all ranks; one thread a rank, so that more ranks than cores take turns. A step is forward and backward,
the least of the repeats counts, and contestants alternate. "gathering logits" is what a head on DTensors comes to without a loss that knows
of slices: every rank gets all logits. "unsharded" is F.cross_entropy of F.linear, "fused" our LinearLoss: both on the first rank of the
same run, while the others wait, with one thread and with one a core, whichever is quicker.

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
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from parallel_contestants import CONTESTANTS, CORES, FEATURES, ROWS, Contestant, contestant
from report import peak_memory, provenance, write
from rich.console import Console
from rich.table import Table

from sparring.heads.parallel.dtensor import own_slice

RESULT = Path(__file__).parents[1] / "docs" / "results" / "parallel" / "parallel.json"


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
    for column in (
        "classes",
        "ranks",
        "kept GB a rank",
        "sent MB a rank",
        "ms products",
        "90 % won",
        "ms AdamW",
        "ms wire",
    ):
        table.add_column(column, justify="right")
    for n_classes, ranks in ((10**7, 1), (10**7, 2), (10**7, 8), (10**8, 16), (10**8, 64), (10**8, 256)):
        kept, sent = model_kept(n_classes, 512, ranks), model_sent(4096, 512, ranks, gathered=True)
        products = [1e3 * model_flops(4096, 512, n_classes, ranks, won) / 60e12 for won in (0.0, 0.9)]
        update = 1e3 * kept / 16 * 28 / 1.5e12  # reads of four numbers, writes of three
        row = (
            f"{n_classes:,}",
            f"{ranks}",
            f"{kept / 1e9:.1f}",
            f"{sent / 1e6:.1f}",
            *(f"{each:.0f}" for each in (*products, update)),
        )
        table.add_row(*row, f"{1e3 * sent / 25e9:.1f}")
    console.print(table)


def loopback() -> int:
    """Bytes that went over the loopback interface."""
    try:
        line = next(
            line for line in Path("/proc/net/dev").read_text().splitlines() if line.strip().startswith("lo:")
        )
    except (OSError, StopIteration):
        return 0
    return int(line.split()[9])


def timed(each: Contestant, threads: int) -> float:
    for parameter in each.parameters:
        parameter.grad = None
    torch.set_num_threads(threads)
    dist.barrier()
    start = time.perf_counter()
    each.step()
    dist.barrier()
    return time.perf_counter() - start


def kept_by(each: Contestant) -> int:
    """Bytes of weights, gradients and AdamW's state on this rank."""
    each.step()
    optimizer = torch.optim.AdamW(each.parameters, 1e-6) if each.parameters else None
    if optimizer is None:
        return 0
    optimizer.step()
    state = [value for values in optimizer.state.values() for value in values.values() if value.dim()]
    gradients = [parameter.grad for parameter in each.parameters]
    return sum(own_slice(value).nbytes for value in (*each.parameters, *gradients, *state))


def measure(names: list[str], n_classes: int, repeats: int) -> None:
    """Run by torchrun, on every rank; the first one tells."""
    dist.init_process_group("gloo")
    made = {name: contestant(name, n_classes) for name in names}
    found: dict[str, dict[str, Any]] = {}
    for name, each in made.items():
        torch.set_num_threads(1)
        kept = kept_by(each)
        dist.barrier()
        before, at_lo = each.sent(), loopback()
        each.step()
        dist.barrier()
        n_sent, seen = each.sent() - before, loopback() - at_lo
        for parameter in each.parameters:
            parameter.grad = None
        extra = max(0, peak_memory(each.step) - kept // 4)  # less the gradients
        found[name] = {"kept": kept, "extra": extra, "sent": n_sent, "seen": seen, "won": each.won}
    seconds: dict[str, list[tuple[float, int]]] = {name: [] for name in made}
    for _ in range(repeats):
        for name, each in made.items():
            tried = (
                (1, CORES) if CONTESTANTS[name][2] == "first" else (1,)
            )  # on all ranks, for they wait for each other
            seconds[name] += [(timed(each, threads), threads) for threads in dict.fromkeys(tried)]
    most = torch.tensor([[each["kept"], each["extra"]] for each in found.values()], dtype=torch.double)
    dist.all_reduce(most, dist.ReduceOp.MAX)
    if dist.get_rank() == 0:
        for (name, each), (kept, extra) in zip(found.items(), most.tolist(), strict=True):
            best, threads = min(seconds[name])
            each |= {"kept": kept, "extra": extra, "seconds": best, "threads": threads}
        sys.stdout.write(f"RESULT {json.dumps(found)}\n")
    dist.destroy_process_group()


def launch(ranks: int, n_classes: int, repeats: int) -> list[dict[str, Any]]:
    names = [name for name, (_, _, where) in CONTESTANTS.items() if ranks > 1 or where != "several"]
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        str(ranks),
        __file__,
    ]
    command += ["--measure", str(n_classes), "--repeats", str(repeats), "--names", *names]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    if done.returncode or not lines:
        sys.exit(done.stderr[-3000:])
    return [
        {"classes": n_classes, "ranks": ranks, "contestant": name, **row}
        for name, row in json.loads(lines[0][7:]).items()
    ]


COLUMNS = (
    "",
    "ranks",
    "threads",
    "kept MB",
    "model",
    "extra MB",
    "sent KB",
    "model",
    "seen KB",
    "seconds",
    "model",
    "against unsharded",
)


def cells(rows: list[dict[str, Any]]) -> list[list[str]]:
    """Of one number of classes: what was measured, and beside it what the model says. Ratios are to the unsharded head of the same run."""
    base = {row["ranks"]: row["seconds"] for row in rows if row["contestant"] == "unsharded"}
    one = {row["contestant"]: row["seconds"] for row in rows if row["ranks"] == 1}
    found = []
    for row in rows:
        name, ranks, seconds, ours = (
            row["contestant"],
            row["ranks"],
            row["seconds"],
            row["contestant"].startswith("class-parallel"),
        )
        whole = CONTESTANTS[name][2] == "first"
        kept, sent = (
            model_kept(row["classes"], FEATURES, 1 if whole else ranks),
            model_sent(ROWS, FEATURES, ranks),
        )
        says = (
            f"{one[name] / min(ranks, CORES):.3f}" if ours and ranks > 1 else ""
        )  # ranks beyond the cores take turns
        found.append(
            [
                *(
                    name,
                    f"1 of {ranks}" if whole else str(ranks),
                    str(row["threads"]),
                    f"{row['kept'] / 1e6:.1f}",
                    f"{kept / 1e6:.1f}",
                ),
                *(
                    f"{row['extra'] / 1e6:.0f}",
                    f"{row['sent'] / 1e3:,.1f}",
                    f"{sent / 1e3:,.1f}" if ours else "",
                    f"{row['seen'] / 1e3:,.0f}",
                ),
                *(f"{seconds:.3f}", says, f"{seconds / base[ranks]:.2f}"),
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
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
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
    rows = [
        row
        for n_classes in sizes
        for n in ranks
        for row in launch(n, n_classes, 3 if args.quick else args.repeats)
    ]
    show(rows, Console(width=170))
    if not (args.quick or args.no_save):
        write(
            {**provenance(__file__, sys.argv[1:], 1), "rows_features": [ROWS, FEATURES], "rows": rows}, RESULT
        )


if __name__ == "__main__":
    main()
