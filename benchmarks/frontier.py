"""Accuracy against compute: softmax, ours and other ways to leave samples out, at equal budgets.

    python benchmarks/frontier.py tune            softmax's learning rate for each budget, chosen on dev
    python benchmarks/frontier.py run             all methods, budgets and seeds; six hours on two cores
    python benchmarks/frontier.py show            tables, JSON and charts in docs/results/frontier
    python benchmarks/frontier.py --quick         all three on a part of clinc_oos, printed only; ten minutes

A budget is what 1, 2, 4 or 8 epochs of softmax cost. The cost of an epoch without backward passes, over one
with all, is measured for each task first (`cost`), and is then the same for every method. All methods have
the learning rate that softmax chose. Every run has one thread. Runs are kept in --out: finished ones are not
repeated, and several processes may share the work.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

import torch
from frontier_report import show
from frontier_tasks import BUDGETS, METHODS, SETTINGS, Bench, Setting
from labels import once
from report import provenance

from sparring.files import write_text

TUNING_SEED = 100
QUICK = dataclasses.replace(SETTINGS["clinc_oos"], n_train=2000, n_dev=500, n_test=1000, n_seeds=1)


def cost_of(setting: Setting, out: Path, bench: Bench | None = None) -> float:
    """The cost of a forward pass, measured once for a task."""
    path = out / setting.name / "cost.json"
    if not path.exists():
        measured = (bench or Bench(setting)).measure_cost()
        write_text(path, json.dumps({"forward_share": measured}) + "\n")
    return float(json.loads(path.read_text())["forward_share"])


def tuned(setting: Setting, out: Path, budget: float) -> float:
    """The learning rate with which softmax is best on dev at this budget."""
    folder = out / setting.name
    scores = {
        lr: json.loads((folder / f"tune_{budget:g}_{lr:g}.json").read_text())["dev"]["metric"]
        for lr in setting.lrs
    }
    return max(scores, key=scores.__getitem__)


def tune(setting: Setting, out: Path, budgets: list[float]) -> None:
    bench = Bench(setting)
    share = cost_of(setting, out, bench)
    for budget in budgets:
        for lr in setting.lrs:
            path = out / setting.name / f"tune_{budget:g}_{lr:g}.json"
            once(path, lambda b=budget, r=lr: bench.run(METHODS["softmax"], r, b, TUNING_SEED, share))


def run(setting: Setting, out: Path, budgets: list[float], methods: list[str]) -> None:
    bench = Bench(setting)
    share = cost_of(setting, out, bench)
    for seed in range(setting.n_seeds):
        for budget in budgets:
            lr = tuned(setting, out, budget)
            for name in methods:
                path = out / setting.name / f"run_{name}_{budget:g}_{seed}.json"
                once(
                    path,
                    lambda n=name, r=lr, b=budget, s=seed: {
                        "lr": r,
                        **bench.run(METHODS[n], r, b, s, share),
                    },
                )


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("tune", "run", "show"), nargs="?")
    parser.add_argument("--quick", action="store_true", help="ten minutes")
    parser.add_argument("--tasks", nargs="*", default=list(SETTINGS), choices=list(SETTINGS))
    parser.add_argument("--budgets", nargs="*", type=float, default=list(BUDGETS))
    parser.add_argument("--methods", nargs="*", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--out", type=Path, default=Path("runs/frontier"))
    parser.add_argument("--results", type=Path, help="folder of tables, JSON and charts")
    options = parser.parse_args(argv)
    if options.what is None and not options.quick:
        parser.error("say tune, run or show, or --quick")
    torch.set_num_threads(1)
    settings = [QUICK] if options.quick else [SETTINGS[name] for name in options.tasks]
    if options.quick:
        options.out, options.budgets = options.out / "quick", [2.0, 4.0]
    for setting in settings:
        (options.out / setting.name).mkdir(parents=True, exist_ok=True)
        if options.what in (None, "tune"):
            tune(setting, options.out, options.budgets)
        if options.what in (None, "run"):
            run(setting, options.out, options.budgets, options.methods)
        if options.what in (None, "show"):
            about: dict[str, Any] = {**provenance(__file__, argv, 1), "seed": list(range(setting.n_seeds))}
            about |= {"settings": dataclasses.asdict(setting), "forward_share": cost_of(setting, options.out)}
            show(options.out / setting.name, setting.name, options.budgets, about, options.results)


if __name__ == "__main__":
    main(sys.argv[1:])
