"""The fused head against F.cross_entropy(F.linear(...)) and F.linear_cross_entropy: forward and backward.

    python benchmarks/linear.py             all shapes, about 15 minutes on two cores
    python benchmarks/linear.py --quick     the smallest shape, about a minute

Contestants alternate, and the minimum of the repeats counts. Ratios are to the faster of torch's two
functions in the same process and state. The fastest options of F.linear_cross_entropy are searched first,
at each shape. Input and weight get gradients; there is no bias.

A won row has p_t = 0.9, or 0.6 for a third of them, whose opponents are compared with the threshold. Other
rows have p_t = 0.1 and keep every class, which costs most. In "90 % won, half narrow" half of them have
p_t = 0.4 and one equally strong opponent, as late in training: all other classes are discarded.

Extra memory is the largest number of bytes alive at once besides the inputs and their two gradients.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from report import peak_memory, provenance, write
from rich.console import Console
from rich.table import Table
from torch import Tensor

import sparring
from sparring import functional as SF
from sparring.losses.kernels.margin_softmax_cpu import forget_workspace

SHAPES = [(2048, 384, 5201), (1024, 384, 50257), (512, 768, 128000)]
STATES = ["0 % won", "50 % won", "90 % won", "99 % won", "90 % won, half narrow"]
DELTA = 0.3
RESULT = Path(__file__).parents[1] / "docs" / "results" / "linear" / "linear.json"

Contestant = Callable[[Tensor, Tensor, Tensor], Tensor]


def make_batch(n_rows: int, n_features: int, n_classes: int, state: str) -> tuple[Tensor, Tensor, Tensor]:
    """Features with the intended p_t: noise plus a multiple of the target's weight."""
    torch.manual_seed(0)
    weight = F.normalize(torch.randn(n_classes, n_features), dim=1)
    target = torch.randint(n_classes, (n_rows,))
    share, half_narrow = float(state.split()[0]) / 100, state.endswith("narrow")
    n_won, order = round(share * n_rows), torch.randperm(n_rows)
    p_t = torch.full((n_rows,), 0.1)
    p_t[order[:n_won]] = 0.9
    p_t[order[: n_won // 3]] = 0.6
    narrow = order[n_won::2] if half_narrow else order[:0]
    rival = (target + 1) % n_classes
    towards, noise = weight[target], torch.randn(n_rows, n_features)
    towards[narrow] += weight[rival[narrow]]
    apart = F.normalize(weight[target] - weight[rival], dim=1)[narrow]
    noise[narrow] -= (noise[narrow] * apart).sum(1, keepdim=True) * apart  # the two stay equal
    p_t[narrow] = 0.4
    pull = _solve(towards, noise, weight, target, p_t)
    x = noise + pull[:, None] * towards
    head = sparring.LinearASSoftmaxLoss(n_features, n_classes, bias=False, delta=DELTA)
    head.linear.weight = torch.nn.Parameter(weight)
    won = head.rows(x, target).won_share().item()
    assert abs(won - share) < 0.01, f"expected {share} won, got {won}"
    return x, weight, target


@torch.no_grad()
def _solve(towards: Tensor, noise: Tensor, weight: Tensor, target: Tensor, p_t: Tensor) -> Tensor:
    """The multiple of the target's weight that gives p_t, by bisection."""
    pulls = []
    for part in torch.arange(len(target)).split(128):
        along, rest = towards[part] @ weight.T, noise[part] @ weight.T
        low, high = torch.zeros(len(part)), torch.full((len(part),), 64.0)
        for _ in range(18):
            middle = (low + high) / 2
            logp = torch.addcmul(rest, along, middle[:, None]).log_softmax(1)
            too_low = logp.gather(1, target[part, None]).squeeze(1).exp() < p_t[part]
            low = torch.where(too_low, middle, low)
            high = torch.where(too_low, high, middle)
        pulls.append((low + high) / 2)
    return torch.cat(pulls)


def unfused(x: Tensor, weight: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(F.linear(x, weight), target)


def torch_fused(**options: Any) -> Contestant:
    best = torch.nn.LinearCrossEntropyOptions(**options)
    return lambda x, weight, target: F.linear_cross_entropy(x, weight, target, options=best)


def run_once(loss: Contestant, x: Tensor, weight: Tensor, target: Tensor) -> float:
    x.grad = weight.grad = None
    start = time.perf_counter()
    loss(x, weight, target).backward()
    return time.perf_counter() - start


def best_options(x: Tensor, weight: Tensor, target: Tensor, console: Console) -> dict[str, Any]:
    """The fastest options of F.linear_cross_entropy: its defaults, or chunks of some size."""
    n_rows = len(x)
    choices: list[dict[str, Any]] = [{}, {"chunking_method": "aspect_ratio"}]
    sizes = [size for size in (64, 128, 256, 512, 1024, 2048) if size <= n_rows]
    choices += [
        {"batch_chunk_size": size, "acc_policy": policy}
        for size in sizes
        for policy in ("compact", "balanced")
    ]
    seconds, choice = math.inf, choices[0]
    for options in reversed(choices):
        time_taken = run_once(torch_fused(**options), x, weight, target)
        if time_taken < 1.5 * seconds:  # repeat close candidates
            repeats = [run_once(torch_fused(**options), x, weight, target) for _ in range(2)]
            time_taken = min(time_taken, *repeats)
        if time_taken < seconds:
            seconds, choice = time_taken, options
    name = choice or "its defaults"
    console.print(f"  F.linear_cross_entropy is fastest with {name}: {seconds * 1e3:.0f} ms", style="dim")
    return choice


def measure(shape: tuple[int, int, int], repeats: int, console: Console) -> list[dict[str, Any]]:
    results, small = [], math.prod(shape) < 1e10
    options: dict[str, Any] | None = None
    for state in STATES:
        x, weight, target = make_batch(*shape, state)
        x.requires_grad_()
        weight.requires_grad_()
        options = best_options(x, weight, target, console) if options is None else options
        entrants: dict[str, Contestant] = {
            "F.cross_entropy(F.linear)": unfused,
            "F.linear_cross_entropy": torch_fused(**options),
            "linear_as_softmax_loss": lambda x, weight, target: SF.linear_as_softmax_loss(
                x, weight, target, delta=DELTA
            ),
        }
        if small:
            entrants["linear_softmax_loss"] = SF.linear_softmax_loss
            entrants["as_softmax_loss(F.linear)"] = lambda x, weight, target: SF.as_softmax_loss(
                F.linear(x, weight), target, delta=DELTA
            )
        best = dict.fromkeys(entrants, float("inf"))
        for _ in range(2 * repeats if small else repeats):
            for name, loss in entrants.items():
                best[name] = min(best[name], run_once(loss, x, weight, target))
        rival = min(best["F.cross_entropy(F.linear)"], best["F.linear_cross_entropy"])
        gradient_bytes = 4 * (x.numel() + weight.numel())
        for name, loss in entrants.items():
            x.grad = weight.grad = None  # or their memory would be freed while measuring
            forget_workspace()  # it is reused by later calls, but counts for this one
            extra = peak_memory(partial(run_once, loss, x, weight, target)) - gradient_bytes
            results.append(
                {
                    "shape": list(shape),
                    "state": state,
                    "loss": name,
                    "ms": round(best[name] * 1e3, 1),
                    "speed": round(rival / best[name], 3),
                    "extra_mb": round(extra / 2**20, 1),
                    **({"options": options} if name == "F.linear_cross_entropy" else {}),
                }
            )
        console.print(f"  {shape}, {state}: {rival / best['linear_as_softmax_loss']:.2f}x", style="dim")
    return results


def show(results: list[dict[str, Any]], console: Console) -> None:
    for shape in dict.fromkeys(tuple(r["shape"]) for r in results):
        rows = [r for r in results if tuple(r["shape"]) == shape]
        title = "N, H, C = {}, {}, {}: ms, speed relative to the faster of torch's two; extra memory"
        table = Table(title=title.format(*shape))
        table.add_column("")
        for state in STATES:
            table.add_column(state, justify="right")
        table.add_column("extra MB", justify="right")
        for name in dict.fromkeys(r["loss"] for r in rows):
            loss_rows = [r for r in rows if r["loss"] == name]
            table.add_row(
                name,
                *(f"{r['ms']:.0f} ({r['speed']:.2f}x)" for r in loss_rows),
                f"{max(r['extra_mb'] for r in loss_rows):.1f}",
            )
        console.print(table)


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="the smallest shape only; nothing is written without --out",
    )
    parser.add_argument(
        "--repeats",
        type=int,
        default=9,
        help="runs of each contestant in each state; twice as many at the smallest shape",
    )
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--shapes", nargs="+", metavar="N,H,C", help="other shapes")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    default = RESULT.relative_to(RESULT.parents[3])
    parser.add_argument("--out", type=Path, help=f"the JSON file (default: {default})")
    args = parser.parse_args(argv)
    if not hasattr(F, "linear_cross_entropy"):
        sys.exit(f"linear.py: torch {torch.__version__} has no F.linear_cross_entropy; expected torch 2.13")
    try:
        shapes = [tuple(int(size) for size in shape.split(",")) for shape in args.shapes or ()] or (
            SHAPES[:1] if args.quick else SHAPES
        )
        assert all(len(shape) == 3 for shape in shapes)
    except (ValueError, AssertionError):
        parser.error(f"--shapes takes sizes such as 2048,384,5201, got {' '.join(args.shapes)}")
    torch.set_num_threads(args.threads)
    if args.child:  # measures one shape, and prints JSON
        json.dump(measure(shapes[0], args.repeats, Console(stderr=True)), sys.stdout)  # type: ignore[arg-type]
        return
    results = []
    environment = {**os.environ, "KINETO_LOG_LEVEL": "99"}
    for shape in shapes:  # in separate processes, because the state of the allocator changes times
        command = [sys.executable, __file__, "--child", "--shapes", ",".join(map(str, shape))]
        command += ["--repeats", str(args.repeats), "--threads", str(args.threads)]
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
        results += json.loads(done.stdout)
    console = Console(width=180)
    show(results, console)
    out = args.out or (None if args.quick or args.shapes else RESULT)
    if out is not None:
        write({**provenance(__file__, argv, args.threads), "results": results}, out)
        console.print(f"written to {out}")


if __name__ == "__main__":
    main(sys.argv[1:])
