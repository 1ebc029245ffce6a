"""Time and memory of forward and backward of every loss, relative to F.cross_entropy.

    python benchmarks/losses.py                 the whole table, about a quarter of an hour
    python benchmarks/losses.py --quick         AS-Softmax and its rivals only, about a minute
    python benchmarks/losses.py --few           few classes: each loss beside what a user would write
    python benchmarks/losses.py --quick --device cuda      on a GPU

Rivals are the plain masked form of AS-Softmax, a minimal autograd Function, the losses of the entmax package
and, with --few, the torch expressions of `few_classes.py`. Losses are called in turn and the minimum of the
repeats counts (with --few the median), with one thread (--threads 1) in processor seconds. Each group of
losses runs in its own process, next to F.cross_entropy, since the state of the allocator affects all times.

Rows are built so that a given share is won at delta = 0.3, as in training. A third of the won rows has p_t =
0.6 (their opponents must be read), the others 0.9. Of the other rows, half have p_t = 0.1 (plain softmax) and
half 0.4 next to one opponent of the same probability. "untrained" has p_t = 1/C everywhere.

Everything is measured twice: with the default allocator, which returns large blocks to the system and pays
page faults at every call, and with glibc told to keep them. Peak memory is what a call allocates beyond its
inputs, including the gradient.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import entmax
import torch
import torch.nn.functional as F
from few_classes import DELTA, MinimalFunction, few_classes, masked
from report import peak_memory, provenance, write
from rich.console import Console
from rich.table import Table
from torch import Tensor

import sparring
from sparring.losses.kernels import margin_softmax_cpu

SHAPES = [(4096, 151), (2048, 5201), (512, 50257)]
FEW_SHAPES = [(256, 5), (1024, 20), (8192, 9), (4096, 151)]
FEW = "few classes"
STATES = ["untrained", "0 % won", "50 % won", "90 % won"]
GROUPS = ["as-softmax", "baselines", "entmax", "multi-label"]
KEEP_BLOCKS = {"MALLOC_MMAP_THRESHOLD_": str(2**32), "MALLOC_TRIM_THRESHOLD_": str(2**32)}
RESULTS = Path(__file__).parents[1] / "docs" / "results" / "losses"

Contestant = Callable[[Tensor, Tensor], Tensor]


def make_batch(n_rows: int, n_classes: int, state: str) -> tuple[Tensor, Tensor]:
    torch.manual_seed(0)
    spread = 2.0 if n_classes > 100 else 0.5  # of few opponents none may hold most of their probability
    logits, target = torch.randn(n_rows, n_classes) * spread, torch.randint(n_classes, (n_rows,))
    if state == "untrained":
        return logits / 20, target
    rows = torch.arange(n_rows)
    others = logits.scatter(1, target[:, None], -torch.inf).logsumexp(1)  # log mass of all opponents
    share = float(state.split()[0]) / 100
    n_won = round(share * n_rows)
    order = torch.randperm(n_rows)
    p_t = torch.full((n_rows,), 0.1)
    p_t[order[:n_won]] = 0.9
    p_t[order[: n_won // 3]] = 0.6
    scanned = order[n_won::2]
    p_t[scanned] = 0.66  # 0.4 once the strong opponent below has joined
    logits[rows, target] = others + (p_t / (1 - p_t)).log()
    logits[scanned, (target[scanned] + 1) % n_classes] = logits[scanned, target[scanned]]
    won = sparring.ASSoftmaxLoss(DELTA).rows(logits, target).won_share().item()
    assert abs(won - share) < 0.01, f"expected a won share of {share}, got {won}"
    return logits, target


def contestants(group: str) -> dict[str, Contestant]:
    """Losses by name. The first one is the reference of all ratios."""
    losses: dict[str, Contestant] = {"F.cross_entropy": F.cross_entropy}
    if group == FEW:
        losses |= few_classes()
    elif group == "as-softmax":
        losses["masked form"] = masked
        losses["minimal Function"] = MinimalFunction.apply
        losses["as-softmax"] = sparring.make_loss("as-softmax", delta=DELTA)
        losses["as-softmax, concede"] = sparring.make_loss("as-softmax", delta=DELTA, concede=0.5)
    elif group == "entmax":
        losses["entmax package, sparsemax"] = entmax.SparsemaxLoss()
        losses["sparsemax"] = sparring.make_loss("sparsemax")
        losses["entmax package, entmax15"] = entmax.Entmax15Loss(k=None)
        losses["entmax15"] = sparring.make_loss("entmax15")
    elif group == "multi-label":
        losses |= {
            name: _with_label_rows(sparring.make_loss(name))
            for name in sparring.list_losses()
            if name.startswith("multilabel")
        }
    else:
        losses |= {
            name: sparring.make_loss(name)
            for name in (
                "softmax",
                "t-softmax",
                "label-smoothing",
                "sparse-softmax",
                "am-softmax",
                "as-logit",
                "gce",
                "focal",
                "sce",
            )
        }
    return losses


def _with_label_rows(loss: sparring.Loss) -> Contestant:
    def call(logits: Tensor, target: Tensor) -> Tensor:
        labels = torch.zeros_like(logits, dtype=torch.int8).scatter_(1, target[:, None], 1)
        return loss(logits, labels)  # type: ignore[no-any-return]

    return call


def run_once(loss: Contestant, logits: Tensor, target: Tensor) -> float:
    logits.grad = None
    wait = torch.cuda.synchronize if logits.is_cuda else bool
    # of one thread, processor time is the same without the turns of other processes
    clock = time.process_time if logits.is_cpu and torch.get_num_threads() == 1 else time.perf_counter
    wait()
    start = clock()
    loss(logits, target).backward()
    wait()
    return clock() - start


def memory_of(loss: Contestant, logits: Tensor, target: Tensor) -> int:
    logits.grad = None
    margin_softmax_cpu.forget_workspace()  # else its memory would not be counted
    return peak_memory(lambda: loss(logits, target).backward())


def measure(
    group: str, repeats: int, shapes: list[tuple[int, int]], device: str, console: Console
) -> list[dict[str, Any]]:
    entrants = contestants(group)
    few = group == FEW
    results = []
    for n_rows, n_classes in shapes:
        for state in STATES[1:] if few else STATES:
            console.print(f"  {group}: {n_rows} x {n_classes}, {state}", style="dim")
            logits, target = (x.to(device) for x in make_batch(n_rows, n_classes, state))
            logits.requires_grad_()
            for loss in entrants.values():  # one of them may have to be compiled
                run_once(loss, logits, target)
            times: dict[str, list[float]] = {name: [] for name in entrants}
            deadline = time.perf_counter() + (12 if few else 4)
            for n in range(repeats if n_classes > 1000 else 10**6 if few else 10 * repeats):
                if n > 2 and time.perf_counter() > deadline:
                    break
                for name, loss in entrants.items():
                    times[name].append(run_once(loss, logits, target))
            # of a few hundred microseconds, the minimum is a matter of luck with caches and page faults
            typical = statistics.median if few else min
            seconds = {name: typical(values) for name, values in times.items()}
            memory = dict.fromkeys(entrants, 0)
            if not few and device == "cpu":
                memory = {name: memory_of(loss, logits, target) for name, loss in entrants.items()}
            for name in entrants:
                results.append(
                    {
                        "shape": [n_rows, n_classes],
                        "state": state,
                        "group": group,
                        "loss": name,
                        "ms": round(seconds[name] * 1e3, 3),
                        "ratio": round(seconds[name] / seconds["F.cross_entropy"], 3),
                        "memory_mb": round(memory[name] / 2**20, 2),
                        "memory_ratio": round(memory[name] / max(1, memory["F.cross_entropy"]), 3),
                    }
                )
    return results


def show(results: list[dict[str, Any]], title: str, console: Console) -> None:
    shapes = sorted({tuple(r["shape"]) for r in results}, key=lambda s: s[1])
    for shape in shapes:
        rows = [r for r in results if tuple(r["shape"]) == shape]
        table = Table(
            title=f"{shape[0]} x {shape[1]}, {title}: time relative to F.cross_entropy; peak memory"
        )
        table.add_column("loss")
        states = [state for state in STATES if any(r["state"] == state for r in rows)]
        for state in states:
            table.add_column(state, justify="right")
        table.add_column("memory", justify="right")
        for name in dict.fromkeys(r["loss"] for r in rows):
            # F.cross_entropy is in every group: reversed, the first group counts
            by_state = {r["state"]: r for r in reversed(rows) if r["loss"] == name}
            is_reference = name == "F.cross_entropy"
            results_of_loss = [by_state[state] for state in states]
            times = [f"{r['ms']:.2f} ms" if is_reference else f"{r['ratio']:.2f}x" for r in results_of_loss]
            worst = max(results_of_loss, key=lambda r: r["memory_ratio"])
            ratio = "" if is_reference else f" ({worst['memory_ratio']:.2f}x)"
            table.add_row(name, *times, f"{worst['memory_mb']:.1f} MB{ratio}")
        console.print(table)


def parse(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="F.cross_entropy, the masked form and AS-Softmax, with and without concede",
    )
    parser.add_argument(
        "--repeats",
        type=int,
        default=15,
        help="runs of each contestant, ten times as many for the smallest shape",
    )
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--few", action="store_true", help="few classes, next to what a user would write")
    parser.add_argument("--device", default="cpu", help="where to measure (default: %(default)s)")
    parser.add_argument("--shapes", nargs="+", metavar="NxC")
    parser.add_argument("--out", type=Path, help="where the JSON goes (default: below docs/results/losses)")
    parser.add_argument("--child", choices=[*GROUPS, FEW], help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    args.shapes = args.shapes or [f"{n}x{c}" for n, c in (FEW_SHAPES if args.few else SHAPES)]
    args.out = args.out or RESULTS / ("few_classes.json" if args.few else "losses.json")
    try:
        args.sizes = [(int(n), int(c)) for n, c in (shape.split("x") for shape in args.shapes)]
    except ValueError:
        parser.error(f"--shapes takes sizes such as 4096x151, got {' '.join(args.shapes)}")
    return args


def main(argv: list[str]) -> None:
    args = parse(argv)
    torch.set_num_threads(args.threads)
    if args.child:  # one group with one allocator: print the numbers as JSON
        results = measure(args.child, args.repeats, args.sizes, args.device, Console(stderr=True))
        json.dump(results, sys.stdout)
        return
    console = Console()
    report = provenance(__file__, argv, args.threads)
    groups = [FEW] if args.few else GROUPS[:1] if args.quick else GROUPS
    allocators: list[tuple[str, str, dict[str, str]]] = [("default", "default allocator", {})]
    if not args.few and args.device == "cpu":
        allocators.append(("keeping", "allocator keeping its blocks", KEEP_BLOCKS))
    for key, title, environment in allocators:
        console.print(title)
        report[key] = []
        for group in groups:
            command = [sys.executable, __file__, "--child", group, *argv]
            variables = {**os.environ, "KINETO_LOG_LEVEL": "99", **environment}
            process = subprocess.run(command, env=variables, stdout=subprocess.PIPE, text=True, check=True)
            report[key] += json.loads(process.stdout)
    for key, title, _ in allocators:
        show(report[key], title, console)
    write(report, args.out)
    console.print(f"written to {args.out}")


if __name__ == "__main__":
    main(sys.argv[1:])
