"""Cost and gain of skip="auto" over architectures of transformers and timm, in small configurations.

    python benchmarks/zoo.py --threads 1              all models at 0, 50 and 90 % won: about ten minutes
    python benchmarks/zoo.py --models bert resnet     some of them

A step is forward, AS-Softmax and backward, without an optimizer. A bias of the logits, which dropout cannot
change, decides which samples are won. Steps with skip="auto", its trials included, alternate with full steps
of a twin. Times are processor seconds, so that other work on the machine disturbs them less, and the slowest
tenth of each is left out. The ratio is that of their totals: above 1, skip="auto" costs time.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from pathlib import Path
from typing import Any

import torch
import transformers
from report import ROOT, provenance, write
from rich.console import Console
from rich.table import Table
from torch import Tensor
from zoo_models import N_SAMPLES, NAMES, TIMM, make

from sparring import ASSoftmaxLoss
from sparring.backward.skipper import ForwardResult, Skipper

SHARES = (0.0, 0.5, 0.9)
AIM = 1.03
LOSS = ASSoftmaxLoss(delta=0.3)
RESULT = ROOT / "docs" / "results" / "skip" / "zoo.json"


def step(skipper: Skipper, batch: dict[str, Tensor]) -> float:
    """The processor seconds of a step."""
    skipper.model.zero_grad()
    torch.manual_seed(1)

    def compute(part: dict[str, Tensor]) -> ForwardResult:
        logits = skipper.model(**{name: x for name, x in part.items() if name != "labels"})
        return ForwardResult(logits, part["labels"], LOSS.rows(logits, part["labels"]), len(logits))

    gc.collect()  # outside of the clock
    gc.disable()
    start = time.process_time()
    done = skipper.forward(compute, batch, lambda part, samples: {k: x[samples] for k, x in part.items()})
    skipper.backward(done, 1 / N_SAMPLES)
    seconds = time.process_time() - start
    gc.enable()
    return seconds


def measure(name: str, won: float, n_steps: int) -> dict[str, Any]:
    model, batch = make(name, won)
    twin, _ = make(name, won)
    skippers = {"off": Skipper(twin, "off"), "auto": Skipper(model, "auto")}
    seconds: dict[str, list[float]] = {"off": [], "auto": []}
    for n in range(n_steps + 2):
        for form, skipper in skippers.items():
            spent = step(skipper, batch)
            if n > 1:
                seconds[form].append(spent)
    skippers["auto"].close()
    totals = {form: sum(sorted(times)[: int(0.9 * n_steps)]) for form, times in seconds.items()}
    costs, compaction = skippers["auto"].costs, skippers["auto"].compaction
    assert costs is not None
    assert compaction is not None
    return {
        "model": name,
        "won": won,
        "ms": round(1e3 * totals["off"] / int(0.9 * n_steps), 2),
        "ratio": round(totals["auto"] / totals["off"], 3),
        "last_form": costs.choose(),
        "in_full": dict(compaction.stats.in_full),
        "reasons": dict(compaction.stats.reasons),
    }


def show(results: list[dict[str, Any]], console: Console) -> None:
    table = Table(title=f'Time of skip="auto" over full steps (aim: at most {AIM}), and its last form')
    table.add_column("model")
    for won in SHARES:
        table.add_column(f"{won:.0%} won", justify="right")
    for name in dict.fromkeys(r["model"] for r in results):
        by_share = {r["won"]: r for r in results if r["model"] == name}
        cells = [f"{r['ratio']:.2f} {r['last_form']}" for r in (by_share[won] for won in SHARES)]
        table.add_row(name, *cells)
    console.print(table)


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="+", choices=NAMES, default=NAMES, metavar="NAME")
    parser.add_argument("--steps", type=int, default=40, help="of each kind (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--out", type=Path, default=RESULT)
    args = parser.parse_args(argv)
    torch.set_num_threads(args.threads)
    transformers.logging.set_verbosity_error()
    console = Console()
    report = provenance(__file__, argv, args.threads)
    report["versions"]["transformers"] = transformers.__version__
    report["results"] = []
    try:
        import timm

        report["versions"]["timm"] = timm.__version__
    except ImportError as error:
        console.print(f"without the models of timm: {error}")
        args.models = [name for name in args.models if name not in TIMM]
    for name in args.models:
        for won in SHARES:
            result = measure(name, won, args.steps)
            console.print(f"  {name}, {won:.0%} won: {result['ratio']:.2f}", style="dim")
            report["results"].append(result)
            report["worst"] = max(result["ratio"] for result in report["results"])
        write(report, args.out)
    show(report["results"], console)
    console.print(f"written to {args.out}")


if __name__ == "__main__":
    main(sys.argv[1:])
