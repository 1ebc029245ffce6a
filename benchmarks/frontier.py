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
from frontier_tasks import BUDGETS, METHODS, SETTINGS, SHORT, Bench, Setting
from report import once, provenance

from sparring.files import write_text

QUICK = dataclasses.replace(
    SETTINGS["clinc_oos"], n_train=2000, n_dev=500, n_test=1000, n_seeds=1, plan=SHORT
)


def cost_of(setting: Setting, out: Path, bench: Bench | None = None) -> float:
    """The cost of a forward pass, measured once for a task."""
    path = out / setting.name / "cost.json"
    if not path.exists():
        measured = (bench or Bench(setting)).measure_cost()
        write_text(path, json.dumps({"forward_share": measured}) + "\n")
    return float(json.loads(path.read_text())["forward_share"])


def tuning_file(setting: Setting, out: Path, budget: float, lr: float) -> Path:
    return out / setting.name / f"tune_{budget:g}_{lr:g}.json"


def tuned(setting: Setting, out: Path, budget: float) -> float:
    """The learning rate with which softmax is best on dev at this budget."""
    paths = {lr: tuning_file(setting, out, budget, lr) for lr in setting.lrs}
    scores = {lr: json.loads(path.read_text())["dev"]["metric"] for lr, path in paths.items()}
    return max(scores, key=scores.__getitem__)


def tune(setting: Setting, out: Path, budgets: list[float]) -> None:
    """Train softmax with each learning rate. The best run on dev is also softmax's run of the first seed."""
    bench = Bench(setting)
    share = cost_of(setting, out, bench)
    for budget in sorted(set(budgets) & set(setting.plan["softmax"])):
        for lr in setting.lrs:
            path = tuning_file(setting, out, budget, lr)
            once(path, lambda b=budget, r=lr: bench.run(METHODS["softmax"], r, b, 0, share))


def run(setting: Setting, out: Path, budgets: list[float], methods: list[str]) -> None:
    """Train every method of the task's plan, seed by seed."""
    bench = Bench(setting)
    share = cost_of(setting, out, bench)

    def train(name: str, budget: float, seed: int) -> dict[str, Any]:
        lr = tuned(setting, out, budget)
        if name == "softmax" and seed == 0:
            return {"lr": lr, **json.loads(tuning_file(setting, out, budget, lr).read_text())}
        return {"lr": lr, **bench.run(METHODS[name], lr, budget, seed, share)}

    for seed in range(setting.n_seeds):
        for name in methods:
            for budget in sorted(set(budgets) & set(setting.plan.get(name, ()))):
                path = out / setting.name / f"run_{name}_{budget:g}_{seed}.json"
                once(path, lambda n=name, b=budget, s=seed: train(n, b, s))


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
