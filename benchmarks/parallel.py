"""Class-parallel heads on 1, 2 and 4 gloo ranks: memory, bytes sent, and time.

They are compared with an unsharded head, and with gathering the logits.

    python benchmarks/parallel.py             10⁵ and 10⁶ classes, some minutes on two cores
    python benchmarks/parallel.py --quick     10⁴ classes and two ranks, half a minute
    python benchmarks/parallel.py --clusters  no runs: predictions for 10⁷ and 10⁸ classes on GPUs

Batches of 64 rows with 64 features, the same on all ranks; one thread per rank, so ranks beyond the number
of cores take turns. A step is forward and backward; contestants alternate, and the minimum of the repeats
counts. "gathering logits" is a head on DTensors whose loss needs all logits on every rank. "unsharded" is
F.cross_entropy(F.linear(...)), "fused" is LinearLoss: both run on the first rank while the others wait,
with one thread or one per core, whichever is faster.

Kept: weights, gradients and AdamW's state of a rank. Extra: the largest number of bytes alive at once in a
step besides these. Sent: the head's own count. Seen: bytes of all ranks on the loopback interface, with
headers.
"""

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
from parallel_contestants import CONTESTANTS, CORES, FEATURES, ROWS, Contestant, make_contestant
from report import peak_memory, provenance, write
from rich.console import Console
from rich.table import Table

from sparring.heads.parallel.dtensor import local_shard

RESULT = Path(__file__).parents[1] / "docs" / "results" / "parallel" / "parallel.json"


def model_kept(n_classes: int, features: int, ranks: int) -> float:
    """Bytes of a rank: weights, gradients and AdamW's two moments in float32."""
    return 16.0 * -(-n_classes // ranks) * features


def model_sent(rows: int, features: int, ranks: int, *, contested: int = 0, gathered: bool = False) -> float:
    """Bytes that a rank sends in a step.

    These are the max, Σ exp and the target's logit of each row, two numbers of each contested row, and the
    gradient of the input; with gathered inputs (``rows`` of all ranks) also features, targets and sizes.
    """
    ring = (ranks - 1) / ranks
    few = 2 * ring * 4 * (3 * rows + 2 * contested)
    if not gathered:
        return few + 2 * ring * 4 * rows * features
    return few + ring * rows * (4 * features + 8) + 8 * (ranks - 1) + ring * 4 * rows * features


def model_flops(rows: int, features: int, n_classes: int, ranks: int, won: float = 0.0) -> float:
    """Operations of a rank: one product in the forward, two in the backward over rows that are not won."""
    return 2.0 * rows * features * n_classes / ranks * (1 + 2 * (1 - won))


def clusters(console: Console) -> None:
    """GPUs with 80 GB, 60 TFLOP/s of TF32 products, 1.5 TB/s of memory and 25 GB/s between ranks."""
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
            *(f"{ms:.0f}" for ms in (*products, update)),
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


def timed(contestant: Contestant, threads: int) -> float:
    for parameter in contestant.parameters:
        parameter.grad = None
    torch.set_num_threads(threads)
    dist.barrier()
    start = time.perf_counter()
    contestant.step()
    dist.barrier()
    return time.perf_counter() - start


def kept_by(contestant: Contestant) -> int:
    """Bytes of weights, gradients and AdamW's state on this rank."""
    contestant.step()
    if not contestant.parameters:
        return 0
    optimizer = torch.optim.AdamW(contestant.parameters, 1e-6)
    optimizer.step()
    state = [value for values in optimizer.state.values() for value in values.values() if value.dim()]
    gradients = [parameter.grad for parameter in contestant.parameters]
    return sum(local_shard(value).nbytes for value in (*contestant.parameters, *gradients, *state))


def measure(names: list[str], n_classes: int, repeats: int) -> None:
    """Run by torchrun on every rank; the first one prints the results."""
    dist.init_process_group("gloo")
    contestants = {name: make_contestant(name, n_classes) for name in names}
    results: dict[str, dict[str, Any]] = {}
    for name, contestant in contestants.items():
        torch.set_num_threads(1)
        kept = kept_by(contestant)
        dist.barrier()
        sent_before = contestant.sent()
        seen_before = loopback()
        contestant.step()
        dist.barrier()
        sent = contestant.sent() - sent_before
        seen = loopback() - seen_before
        for parameter in contestant.parameters:
            parameter.grad = None
        extra = max(0, peak_memory(contestant.step) - kept // 4)  # without the gradients
        results[name] = {"kept": kept, "extra": extra, "sent": sent, "seen": seen, "won": contestant.won}
    seconds: dict[str, list[tuple[float, int]]] = {name: [] for name in contestants}
    for _ in range(repeats):
        for name, contestant in contestants.items():
            on_first_rank = CONTESTANTS[name][2] == "first"
            for threads in {1, CORES} if on_first_rank else {1}:  # the same loop on all ranks
                seconds[name].append((timed(contestant, threads), threads))
    largest = torch.tensor([[row["kept"], row["extra"]] for row in results.values()], dtype=torch.double)
    dist.all_reduce(largest, dist.ReduceOp.MAX)
    if dist.get_rank() == 0:
        for (name, row), (kept, extra) in zip(results.items(), largest.tolist(), strict=True):
            best, threads = min(seconds[name])
            row |= {"kept": kept, "extra": extra, "seconds": best, "threads": threads}
        sys.stdout.write(f"RESULT {json.dumps(results)}\n")
    dist.destroy_process_group()


def launch(ranks: int, n_classes: int, repeats: int) -> list[dict[str, Any]]:
    names = [name for name, (_, _, where) in CONTESTANTS.items() if ranks > 1 or where != "several"]
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", str(ranks), __file__]
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
    """Measurements and the model's predictions; ratios are to the unsharded head of the same run."""
    unsharded = {row["ranks"]: row["seconds"] for row in rows if row["contestant"] == "unsharded"}
    one_rank = {row["contestant"]: row["seconds"] for row in rows if row["ranks"] == 1}
    lines = []
    for row in rows:
        name = row["contestant"]
        ranks = row["ranks"]
        is_parallel = name.startswith("class-parallel")
        on_first_rank = CONTESTANTS[name][2] == "first"
        kept = model_kept(row["classes"], FEATURES, 1 if on_first_rank else ranks)
        sent = model_sent(ROWS, FEATURES, ranks)
        predicted = ""
        if is_parallel and ranks > 1:  # ranks beyond the cores take turns
            predicted = f"{one_rank[name] / min(ranks, CORES):.3f}"
        line = [
            name,
            f"1 of {ranks}" if on_first_rank else str(ranks),
            str(row["threads"]),
            f"{row['kept'] / 1e6:.1f}",
            f"{kept / 1e6:.1f}",
            f"{row['extra'] / 1e6:.0f}",
            f"{row['sent'] / 1e3:,.1f}",
            f"{sent / 1e3:,.1f}" if is_parallel else "",
            f"{row['seen'] / 1e3:,.0f}",
            f"{row['seconds']:.3f}",
            predicted,
            f"{row['seconds'] / unsharded[ranks]:.2f}",
        ]
        lines.append(line)
    return lines


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
    parser.add_argument(
        "--markdown", action="store_true", help="no runs: print the saved results as Markdown"
    )
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
