"""What rows cost: losses without extras, against an earlier source; extras; and a frozen head.

    python benchmarks/rows.py --before PATH --out docs/results/rows.json

``--before`` is the ``src`` folder of an earlier version. Both sources are measured in turn, in processes of
their own, by the CPU time of one thread, and the quickest of all repetitions counts.
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
from report import peak_memory, provenance, write

import sparring
from sparring.losses.kernels.margin_softmax_cpu import forget_workspace
from sparring.losses.rows import RowLosses

EXTRAS = ("nll", "entropy", "margin", "correct")
SHAPES = ((32, 10), (32, 150), (256, 1000))  # rows, classes
HEAD = {"rows": 128, "features": 256, "classes": 50_000}


def seconds(step: Callable[[], object], repetitions: int) -> float:
    """CPU seconds of the quickest call."""
    step()
    best = float("inf")
    for _ in range(repetitions):
        start = time.process_time()
        step()
        best = min(best, time.process_time() - start)
    return best


def steps(extras: bool) -> dict[str, Callable[[], object]]:
    """Forward and backward passes by name."""
    torch.manual_seed(0)
    options: dict[str, Any] = {"extras": EXTRAS} if extras else {}
    table: dict[str, Callable[[], object]] = {}
    for n_rows, n_classes in SHAPES:
        logits = torch.randn(n_rows, n_classes, requires_grad=True)
        target = torch.randint(n_classes, (n_rows,))
        loss = sparring.ASSoftmaxLoss(0.3)
        table[f"loss {n_rows}x{n_classes}"] = lambda x=logits, y=target, f=loss: _run(f.rows(x, y, **options))
    features = torch.randn(256, 64, requires_grad=True)
    head = sparring.LinearASSoftmaxLoss(64, 2000)
    target = torch.randint(2000, (256,))
    table["fused head 256x2000"] = lambda: _run(head.rows(features, target, **options))
    return table


def _run(rows: RowLosses) -> None:
    value = rows.mean()
    extras = getattr(rows, "extras", None)  # earlier versions have none
    if extras is not None:
        value = value + extras["entropy"].mean()
    value.backward()


def measure(extras: bool, repetitions: int) -> dict[str, float]:
    return {name: 1e6 * seconds(step, repetitions) for name, step in steps(extras).items()}


def compare(before: Path, repetitions: int, turns: int) -> dict[str, dict[str, float]]:
    """Microseconds of both sources: the least of all turns."""
    results: dict[str, dict[str, float]] = {}
    sources = [("before", before), ("now", Path(sparring.__file__).parents[1])]
    for turn in range(turns):
        for label, source in sources if turn % 2 else reversed(sources):  # neither is always the first
            command = [sys.executable, __file__, "--measure", "--repetitions", str(repetitions)]
            environment = {**os.environ, "PYTHONPATH": str(source)}
            run = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
            for name, value in json.loads(run.stdout.splitlines()[-1]).items():
                entry = results.setdefault(name, {})
                entry[label] = min(value, entry.get(label, value))
    return results


def frozen_head() -> dict[str, dict[str, float]]:
    """Peak memory in MB, and CPU seconds, of a head of 50,000 classes."""
    torch.manual_seed(0)
    features = torch.randn(HEAD["rows"], HEAD["features"], requires_grad=True)
    target = torch.randint(HEAD["classes"], (HEAD["rows"],))
    head = sparring.LinearASSoftmaxLoss(HEAD["features"], HEAD["classes"])

    def plain_forward() -> None:
        with torch.no_grad():
            torch.nn.functional.cross_entropy(head.logits(features), target)

    def both_passes() -> None:
        head(features, target).backward()
        head.zero_grad()

    table = {}
    for name, step, trained in (
        ("torch, forward pass alone", plain_forward, False),
        ("frozen head, both passes", both_passes, False),
        ("trained head, both passes", both_passes, True),
    ):
        head.requires_grad_(trained)
        forget_workspace()
        table[name] = {"MB": peak_memory(step) / 1e6, "seconds": seconds(step, 3)}
    table["weights"] = {"MB": head.linear.weight.nbytes / 1e6}
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", type=Path, help="src folder of an earlier version")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--repetitions", type=int, default=200)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--measure", action="store_true", help="print the times of this source, as JSON")
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.measure:
        print(json.dumps(measure(False, args.repetitions)))
        return
    argv = [word if word != str(args.before) else "PATH" for word in sys.argv[1:]]
    report: dict[str, Any] = provenance(__file__, argv, 1)
    if args.before is not None:
        report["microseconds without extras"] = compare(args.before, args.repetitions, args.turns)
    report["microseconds with extras"] = measure(True, args.repetitions)
    report["head of 50,000 classes"] = frozen_head()
    print(json.dumps(report, indent=1))
    if args.out is not None:
        write(report, args.out)


if __name__ == "__main__":
    main()
