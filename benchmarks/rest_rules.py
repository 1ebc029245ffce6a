"""What decides that a sample may rest, for how long, and how it returns: a study on frozen features.

    python benchmarks/rest_rules.py run          all rules, budgets and seeds; half an hour on one core
    python benchmarks/rest_rules.py show         tables, and docs/results/frontier/rest_rules.json

One hidden layer is trained on frozen features, so a run takes seconds. Every rule has the same budget, in
epochs of softmax; a forward pass counts 0.4 of both passes. The learning rate is chosen for softmax on dev at
each budget, with a seed that is not used again. Runs are kept in --out, and several processes may share them.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import torch
from frontier_report import show
from frontier_tasks import follow
from label_noise import calibration_error
from report import ROOT, file_of, once, provenance
from rivals import RIVALS
from suspects import features_of
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from sparring import ASSoftmaxLoss, SoftmaxLoss
from sparring.training import Scorecard, WeightedScorecard
from sparring.training.loop import Loop

TASKS = ("clinc_oos", "cifar100", "sst5")
BUDGETS = (1.0, 2.0, 4.0)
LRS = (5e-4, 1e-3, 2e-3, 4e-3, 8e-3)
N_SEEDS, TUNING_SEED = 3, 100
BATCH, HIDDEN, FORWARD_SHARE = 64, 256, 0.4
PRESET: dict[str, Any] = {"delta": 0.6, "card": {"max_rest": 2, "narrow": 2}, "settle": 0.25}  # any win rests
RULES: dict[str, dict[str, Any]] = {
    "softmax": {},
    "weighted, margin from 0.6": {"weighted": {}},
    "weighted, margin from 0": {"weighted": {"margin_from": 0.0}},
    "weighted, margin from 0.8": {"weighted": {"margin_from": 0.8}},
    "weighted, rest up to 2": {"weighted": {"max_rest": 2}},
    "δ 0.6, rest 2, settle 0.25": PRESET,
    "δ 0.3": {**PRESET, "delta": 0.3},
    "δ 0.9": {**PRESET, "delta": 0.9},
    "δ 0.97": {**PRESET, "delta": 0.97},
    "no rest": {**PRESET, "card": None},
    "rest 1": {**PRESET, "card": {"max_rest": 1, "narrow": 1}},
    "rest 4": {**PRESET, "card": {"max_rest": 4, "narrow": 4}},
    "rest grows to 4": {**PRESET, "card": {"max_rest": 4, "narrow": 1, "spare": 0.05}},
    "rest after two wins": {**PRESET, "card": {"max_rest": 2, "earn": 2, "spare": 0.0}},
    "rest after a clear win": {**PRESET, "card": {"max_rest": 2, "spare": 0.3}},
    "watched": {**PRESET, "card": {**PRESET["card"], "watch": True}},
    "checks": {**PRESET, "card": {**PRESET["card"], "check": True}},
    "no settling": {**PRESET, "settle": 0.0},
    "settle 0.1": {**PRESET, "settle": 0.1},
    "settle 0.4": {**PRESET, "settle": 0.4},
    "concede 0.5": {**PRESET, "concede": 0.5},
    "no rest, no settling": {"delta": 0.6},
    "no rest, no settling, δ 0.3": {"delta": 0.3},
    **{name: {"rival": name} for name in RIVALS},
}


class Features:
    """Features and labels of a task, computed once and kept in a file."""

    def __init__(self, task: str, out: Path) -> None:
        path = out / f"features_{task}.pt"
        if not path.exists():
            splits = {split: features_of(task, split, None) for split in ("train", "dev", "test")}
            torch.save({split: (x, y, n) for split, (x, y, n) in splits.items()}, path)
        self.splits: dict[str, tuple[Tensor, Tensor]] = {}
        mean = std = None
        for split, (x, y, n_classes) in torch.load(path, weights_only=True).items():
            if mean is None:
                mean, std = x.mean(0), x.std(0).clamp(min=1e-6)
            self.splits[split] = ((x - mean) / std, y)
            self.n_classes = n_classes

    def run(self, rule: dict[str, Any], lr: float, budget: float, seed: int) -> dict[str, Any]:
        x, y = self.splits["train"]
        torch.manual_seed(seed)
        net = nn.Sequential(
            nn.Linear(x.shape[1], HIDDEN), nn.GELU(), nn.Dropout(0.1), nn.Linear(HIDDEN, self.n_classes)
        )
        concede = rule.get("concede")
        delta = rule.get("delta")
        loss = SoftmaxLoss(concede=concede) if delta is None else ASSoftmaxLoss(delta, concede=concede)
        card = RIVALS[rule["rival"]](len(x), seed) if "rival" in rule else None
        if "weighted" in rule:
            card = WeightedScorecard(len(x), seed=seed, **rule["weighted"])
        if rule.get("card"):
            card = Scorecard(len(x), **rule["card"])
        loop = Loop(
            net,
            loss,
            range(len(x)),
            batch_size=BATCH,
            budget=budget,
            forward_share=FORWARD_SHARE,
            lr=lr,
            settle=rule.get("settle"),
            scorecard=card,
            collate=lambda indices: (x[torch.tensor(indices)], y[torch.tensor(indices)]),
            seed=seed,
            progress=False,
        )
        if "rival" in rule:
            follow(loop, card)
        record = loop.run()
        names = ("n_forward", "n_backward", "cpu_seconds")
        result: dict[str, Any] = {name: record.totals[name] for name in names}
        return {**result, "lr": lr, "epochs": len(record.epochs)} | {
            split: self.measure(net, split) for split in ("dev", "test")
        }

    @torch.no_grad()
    def measure(self, net: nn.Module, split: str) -> dict[str, float]:
        x, y = self.splits[split]
        logits = net.eval()(x)
        right = (logits.argmax(1) == y).float()
        return {
            "metric": float(right.mean()),
            "nll": float(cross_entropy(logits, y)),
            "ece": calibration_error(logits.softmax(1), y),
            "worst_class": min(float(right[y == label].mean()) for label in y.unique()),
        }


def run(task: str, out: Path, rules: list[str], budgets: list[float]) -> None:
    """Rules on a task, seed by seed."""
    folder = out / task
    features = Features(task, out)
    for budget in budgets:
        for lr in LRS:
            path = file_of(folder, "tune", f"{budget:g}", lr)
            once(path, lambda b=budget, r=lr: features.run({}, r, b, TUNING_SEED))
    for seed in range(N_SEEDS):
        for budget in budgets:
            scores = {
                lr: json.loads(file_of(folder, "tune", f"{budget:g}", lr).read_text())["dev"]["metric"]
                for lr in LRS
            }
            lr = max(scores, key=scores.__getitem__)
            for name in rules:
                path = folder / f"run_{name}_{budget:g}_{seed}.json"
                once(path, lambda f=RULES[name], r=lr, b=budget, s=seed: features.run(f, r, b, s))


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("run", "show"))
    parser.add_argument("--out", type=Path, default=Path("runs/rest_rules"))
    parser.add_argument("--tasks", nargs="*", default=list(TASKS), choices=TASKS)
    parser.add_argument("--rules", nargs="*", default=list(RULES), choices=list(RULES), metavar="RULE")
    parser.add_argument("--budgets", nargs="*", type=float, default=list(BUDGETS))
    options = parser.parse_args(argv)
    torch.set_num_threads(1)
    for task in options.tasks:
        (options.out / task).mkdir(parents=True, exist_ok=True)
        if options.what == "run":
            run(task, options.out, options.rules, options.budgets)
            continue
        about = {**provenance(__file__, argv, 1), "seed": list(range(N_SEEDS)), "rules": RULES}
        results = ROOT / "docs" / "results" / "frontier" / "rest_rules"
        show(options.out / task, task, options.budgets, about, results, list(RULES))


if __name__ == "__main__":
    main(sys.argv[1:])
