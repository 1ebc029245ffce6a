"""Accuracy against compute: softmax, ours and other ways to leave samples out, at equal budgets.

    python benchmarks/frontier.py tune            learning rates for each budget, chosen on dev
    python benchmarks/frontier.py choose --budgets 8     forms of the preset on dev, where it was chosen
    python benchmarks/frontier.py run             all methods, budgets and seeds; six hours on two cores
    python benchmarks/frontier.py show            tables, JSON and charts in docs/results/frontier
    python benchmarks/frontier.py overhead        time of skip and fast where nothing is won, without them = 1
    python benchmarks/frontier.py --quick         all three on a part of clinc_oos, printed only; ten minutes

A budget is what 1, 2, 4 or 8 epochs of softmax cost. The cost of an epoch without backward passes, over one
with all, is measured for each task first, and is then the same for every method. Softmax and fast each choose
a learning rate at each budget; the rivals take softmax's, and the other forms of fast take its. Every run has
one thread. Runs are kept in --out: finished ones are not repeated, nor those that docs/results/frontier
holds, and several processes may share the work.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

import torch
from frontier_report import BASE, OURS, Runs, restore, show, show_all
from frontier_tasks import BUDGETS, FORMS, METHODS, SETTINGS, WHOLE, Bench, Setting
from report import ROOT, once, provenance

from sparring.files import write_text

WITHIN = 0.003  # two metrics on dev that are nearer are not told apart
CHOOSING_SEEDS = (100, 101, 102)
COMMITTED = ROOT / "docs" / "results" / "frontier"
QUICK = dataclasses.replace(
    SETTINGS["clinc_oos"], n_train=2000, n_dev=500, n_test=1000, n_seeds=1, plan=WHOLE
)


def cost_of(setting: Setting, out: Path, bench: Bench | None = None) -> float:
    """The cost of a forward pass, measured once for a task."""
    path = out / setting.name / "cost.json"
    if not path.exists():
        measured = (bench or Bench(setting)).measure_cost()
        write_text(path, json.dumps({"forward_share": measured}) + "\n")
    return float(json.loads(path.read_text())["forward_share"])


def tuned_like(name: str) -> str:
    """The method whose learning rates another one takes: those with a fitted head take those of fast."""
    return OURS if name.startswith(OURS) or "fitted" in name else BASE


def tuning_path(setting: Setting, out: Path, name: str, budget: float, lr: str) -> Path:
    return out / setting.name / f"tune_{'' if name == BASE else f'{name}_'}{budget:g}_{lr}.json"


def tuning_runs(setting: Setting, out: Path, name: str, budget: float) -> dict[float, dict[str, Any]]:
    """The finished tuning runs of a method at a budget, by learning rate."""
    paths = (out / setting.name).glob(tuning_path(setting, out, name, budget, "*").name)
    return {float(path.stem.rsplit("_", 1)[1]): json.loads(path.read_text()) for path in paths}


def best_of(runs: dict[float, dict[str, Any]]) -> float:
    """The learning rate that is best on dev: of those within ``WITHIN`` of the best metric, by the NLL."""
    dev = {lr: runs[lr]["dev"] for lr in sorted(runs)}
    best = max(figures["metric"] for figures in dev.values())
    return min((lr for lr in dev if dev[lr]["metric"] >= best - WITHIN), key=lambda lr: dev[lr]["nll"])


def tune(setting: Setting, out: Path, budgets: list[float], methods: list[str]) -> None:
    """Double or halve a learning rate until neither is better on dev, for one budget after another.

    Our method also tries what is best for softmax, so that it is not caught in a worse optimum.
    """
    bench = Bench(setting)
    share = cost_of(setting, out, bench)

    def train(name: str, budget: float, lr: float) -> dict[str, Any]:
        path = tuning_path(setting, out, name, budget, f"{lr:g}")
        once(path, lambda: bench.run(METHODS[name], lr, budget, 0, share), wait=True)
        return dict(json.loads(path.read_text()))

    for name in (BASE, OURS):
        if name not in methods:
            continue
        best = setting.lr
        for budget in sorted(set(budgets) & set(setting.plan[name])):
            runs: dict[float, dict[str, Any]] = {}
            if name != BASE and (base := tuning_runs(setting, out, BASE, budget)):
                lr = best_of(base)
                runs[lr] = train(name, budget, lr)
            while missing := [lr for lr in (best, 2 * best, best / 2) if lr not in runs]:
                runs[missing[0]] = train(name, budget, missing[0])
                best = best_of(runs)


def run(setting: Setting, out: Path, budgets: list[float], methods: list[str]) -> None:
    """Train every method of the task's plan, seed by seed, so that they share what else the machine does."""
    bench = Bench(setting)
    share = cost_of(setting, out, bench)

    def train(name: str, budget: float, seed: int) -> dict[str, Any]:
        like = tuned_like(name)
        tuned = min(setting.plan[like], key=lambda b: abs(b - budget))
        runs = tuning_runs(setting, out, like, tuned)
        lr = best_of(runs)
        return {"lr": lr, **bench.run(METHODS[name], lr, budget, seed, share)}

    for seed in range(setting.n_seeds):
        for name in methods:
            for budget in sorted(set(budgets) & set(setting.plan.get(name, ()))):
                path = out / setting.name / f"run_{name}_{budget:g}_{seed}.json"
                once(path, lambda n=name, b=budget, s=seed: train(n, b, s))


def choose(setting: Setting, out: Path, budget: float) -> None:
    """Train forms of the preset as long as softmax, with seeds that are not used again; all of dev."""
    bench = Bench(dataclasses.replace(setting, n_dev=None, n_test=100))
    share = cost_of(setting, out, bench)
    lr = best_of(tuning_runs(setting, out, BASE, budget))
    for seed in CHOOSING_SEEDS:
        for name, form in {BASE: METHODS[BASE], **FORMS}.items():
            method = METHODS["fast AS, as long"] | form if name in FORMS else form
            path = out / setting.name / f"choose_{name}_{budget:g}_{seed}.json"
            once(path, lambda m=method, s=seed: {"lr": lr, **bench.run(m, lr, budget, s, share)})


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("tune", "choose", "run", "show", "overhead"), nargs="?")
    parser.add_argument("--quick", action="store_true", help="ten minutes")
    parser.add_argument("--tasks", nargs="*", default=list(SETTINGS), choices=list(SETTINGS))
    parser.add_argument("--budgets", nargs="*", type=float, default=list(BUDGETS))
    parser.add_argument("--methods", nargs="*", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--out", type=Path, default=Path("runs/frontier"))
    parser.add_argument("--results", type=Path, help="folder of tables, JSON and charts")
    options = parser.parse_args(argv)
    if options.what is None and not options.quick:
        parser.error("say tune, choose, run or show, or --quick")
    torch.set_num_threads(1)
    settings = [QUICK] if options.quick else [SETTINGS[name] for name in options.tasks]
    if options.quick:
        options.out, options.budgets = options.out / "quick", [2.0, 4.0]
    tasks: dict[str, Runs] = {}
    for setting in settings:
        folder = options.out / setting.name
        folder.mkdir(parents=True, exist_ok=True)
        made_with = dataclasses.asdict(setting)
        if not options.quick and (n := restore(COMMITTED, setting.name, folder, made_with)):
            print(f"{setting.name}: {n} finished runs taken from {COMMITTED.relative_to(ROOT)}")
        if options.what in (None, "tune"):
            tune(setting, options.out, options.budgets, options.methods)
        if options.what == "choose":
            for budget in options.budgets:
                choose(setting, options.out, budget)
        if options.what == "overhead":
            print(
                setting.name,
                {speed: f"{time:.3f}" for speed, time in Bench(setting).measure_overhead().items()},
            )
        if options.what in (None, "run"):
            run(setting, options.out, options.budgets, options.methods)
        if options.what in (None, "show"):
            about: dict[str, Any] = {**provenance(__file__, argv, 1), "seed": list(range(setting.n_seeds))}
            about |= {"settings": made_with, "forward_share": cost_of(setting, options.out)}
            tasks[setting.name] = show(folder, setting.name, options.budgets, about, options.results)
    if tasks:
        show_all(tasks, options.results)


if __name__ == "__main__":
    main(sys.argv[1:])
