"""Training on wrong labels: what conceding and other losses keep of the accuracy, against softmax.

    python benchmarks/labels.py tune             choose each method's setting on a noisy dev set: 20 minutes
    python benchmarks/labels.py run              all methods, noise rates and seeds: five hours on one core
    python benchmarks/labels.py show             tables from the runs, and docs/results/labels/accuracy.json

One layer of MiniLM is fine-tuned on 3,000 samples of clinc_oos, on one thread. A share of the labels of
train and dev is wrong; those of test are right. Every setting is chosen on the noisy dev set, at a noise of
20 % and with a seed that is not used again. Two results of each run are kept: after the last epoch, and at
the epoch that was best on the noisy dev set (early stopping). Runs are kept in --out: finished ones are not
repeated, and several processes may share the work.
"""

from __future__ import annotations

import argparse
import copy
import json
import random
import sys
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from label_noise import calibration_error, with_noise
from labels_report import show
from report import file_of, once, provenance
from sklearn.metrics import average_precision_score
from torch import Tensor, nn

from sparring import make_loss
from sparring.lab.datasets import get_task
from sparring.lab.models.settings import ModelOptions
from sparring.lab.task import Where
from sparring.training.history import SCORES, MarginHistory
from sparring.training.loop import Loop
from sparring.training.optimizers import adamw

N_TRAIN, N_DEV, EPOCHS, BATCH = 3000, 600, 10, 32
TUNING_SEED = 100
GRID: dict[str, list[dict[str, Any]]] = {
    "softmax": [{"lr": lr} for lr in (5e-4, 1e-3, 2e-3)],
    "label smoothing": [{"loss": "label-smoothing", "epsilon": 0.1}],
    "GCE": [{"loss": "gce", "q": 0.3}, {"loss": "gce", "q": 0.7}, {"loss": "gce", "q": 0.7, "lr": 1e-3}],
    "AS-Softmax": [{"loss": "as-softmax", "delta": delta} for delta in (0.3, 0.6)],
    "softmax, concede": [{"concede": 0.5}, {"concede": 0.7}, {"concede": 0.5, "lr": 1e-3}],
    "AS-Softmax, concede": [
        {"loss": "as-softmax", "delta": 0.6, "concede": 0.5},
        {"loss": "as-softmax", "delta": 0.6, "concede": 0.5, "lr": 1e-3},
    ],
}
CONTROLS = {
    "softmax, twice the learning rate": {"lr": 1e-3},
    "softmax, half of the epochs": {"epochs": EPOCHS // 2},
    "softmax, 0.3 of the epochs": {"epochs": round(0.3 * EPOCHS)},
}
DROPPED = "softmax, suspects dropped"
RATES = (0.2, 0.0, 0.4, 0.05)  # most wanted first
SEEDS = range(5)


class Samples:
    """A fixed part of clinc_oos, encoded once."""

    def __init__(self) -> None:
        self.data = get_task("clinc_oos").load(Where.default(None))
        self.n_classes = len(self.data.labels)
        self.options = ModelOptions(layers=1, pooling="mean", freeze_embeddings=True)
        self.model = self.build(0)
        self.encoder = self.data.encoder(self.model.processor, 64)
        cut = random.Random(N_TRAIN).sample
        splits = {
            "train": cut(self.data.train, N_TRAIN),
            "dev": cut(self.data.dev, N_DEV),
            "test": self.data.test,
        }
        self.features = {split: self.encoder.encode(samples) for split, samples in splits.items()}
        self.labels = {
            split: torch.tensor([feature["labels"] for feature in features])
            for split, features in self.features.items()
        }

    def build(self, seed: int) -> Any:
        torch.manual_seed(seed)
        return self.data.build_model("minilm", self.options)

    @torch.no_grad()
    def logits(self, net: nn.Module, split: str, chosen: Tensor | None = None) -> Tensor:
        features = self.features[split]
        indices = list(range(len(features))) if chosen is None else chosen.tolist()
        order = sorted(range(len(indices)), key=lambda i: len(features[indices[i]]["input_ids"]))
        out = torch.empty(len(indices), self.n_classes)
        net.eval()
        for start in range(0, len(order), 128):
            part = order[start : start + 128]
            batch = self.encoder.collate([features[indices[i]] for i in part])
            out[part] = self.encoder.forward(net, batch)[0].float()
        return out


def quality(logits: Tensor, target: Tensor) -> dict[str, float]:
    probabilities = logits.softmax(1)
    return {
        "accuracy": float((logits.argmax(1) == target).float().mean()),
        "ece": calibration_error(probabilities, target),
        "nll": float(F.cross_entropy(logits, target)),
    }


def train(
    samples: Samples, method: dict[str, Any], noise: str, rate: float, seed: int
) -> tuple[dict[str, Any], MarginHistory]:
    """Train once, and measure the last and the best network.

    With ``drop`` in the method, its settings train first, and the samples that then look wrong are left out.
    """
    settings = {"loss": "softmax", "lr": 1e-3, "epochs": EPOCHS, **method}
    first = settings.pop("drop", None)
    kept = torch.arange(N_TRAIN)
    seconds = 0.0
    if first is not None:
        result, history = train(samples, first, noise, rate, seed)
        is_kept = torch.ones(N_TRAIN, dtype=torch.bool)
        is_kept[history.suspects()] = False
        kept = is_kept.nonzero().squeeze(1)
        seconds = result["cpu_seconds"]
    lr, epochs, name = (settings.pop(key) for key in ("lr", "epochs", "loss"))
    truth = samples.labels["train"]
    labels = with_noise(truth, samples.n_classes, noise, rate, seed) if rate else truth
    truth, labels = truth[kept], labels[kept]
    noisy_dev = samples.labels["dev"]
    if rate:
        noisy_dev = with_noise(noisy_dev, samples.n_classes, noise, rate, seed + 1000)
    features = [
        {**feature, "labels": int(label)}
        for feature, label in zip((samples.features["train"][i] for i in kept), labels, strict=True)
    ]
    net = samples.build(seed).net
    best: dict[str, Any] = {"accuracy": -1.0}
    curve = []

    def evaluate(model: nn.Module) -> float:
        accuracy = float((samples.logits(model, "dev").argmax(1) == noisy_dev).float().mean())
        curve.append(accuracy)
        if accuracy > best["accuracy"]:
            best.update(accuracy=accuracy, weights=copy.deepcopy(model.state_dict()), epoch=len(curve))
        return accuracy

    history = MarginHistory(len(features))
    record = Loop(
        net,
        make_loss(name, **settings),
        features,
        batch_size=BATCH,
        epochs=epochs,
        optimizer=adamw(net, lr),
        lengths=samples.encoder.lengths(features),
        forward=samples.encoder.forward,
        collate=samples.encoder.collate,
        history=history,
        evaluate=evaluate,
        seed=seed,
        progress=False,
    ).run()
    wrong = (labels != truth).nonzero().squeeze(1)
    result: dict[str, Any] = {
        "dev": curve,
        "cpu_seconds": seconds + record.totals["cpu_seconds"],
        "n_samples": len(kept),
        "n_backward": record.totals["n_backward"],
        "conceded": [entry["conceded_share"] for entry in record.epochs],
        "n_wrong": len(wrong),
        "last": quality(samples.logits(net, "test"), samples.labels["test"]),
    }
    if len(wrong):
        fitted = samples.logits(net, "train", kept[wrong]).argmax(1)
        result["memorised"] = float((fitted == labels[wrong]).float().mean())
        is_wrong = (labels != truth).numpy()
        result["average_precision"] = {
            score: float(average_precision_score(is_wrong, history.scores(score).nan_to_num(0).numpy()))
            for score in SCORES
        }
    net.load_state_dict(best["weights"])
    result["best"] = {**quality(samples.logits(net, "test"), samples.labels["test"]), "epoch": best["epoch"]}
    return result, history


def tuned(out: Path) -> dict[str, dict[str, Any]]:
    """The best setting of each method on the noisy dev set, after the last epoch."""
    chosen: dict[str, dict[str, Any]] = {}
    for name, grid in GRID.items():
        results = [json.loads(file_of(out, "tune", name, i).read_text()) for i in range(len(grid))]
        best = max(range(len(grid)), key=lambda i: results[i]["dev"][-1])
        chosen[name] = {**chosen.get("softmax", {}), **grid[best]}
    controls = {name: {**chosen["softmax"], **setting} for name, setting in CONTROLS.items()}
    controls[DROPPED] = {**chosen["softmax"], "drop": chosen["softmax, concede"]}
    return chosen | controls


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("tune", "run", "show"))
    parser.add_argument("--out", type=Path, default=Path("runs/labels"))
    parser.add_argument("--rates", type=float, nargs="*", default=RATES)
    parser.add_argument("--methods", nargs="*", help="only these, for run")
    options = parser.parse_args(argv)
    options.out.mkdir(parents=True, exist_ok=True)
    if options.what == "show":
        show(options.out, tuned(options.out), options.rates, SEEDS, provenance(__file__, ["run"], 1))
        return
    torch.set_num_threads(1)
    samples = Samples()
    if options.what == "tune":
        lr: dict[str, Any] = {}
        for name, grid in GRID.items():
            for i, setting in enumerate(grid):
                path = file_of(options.out, "tune", name, i)
                method = {**lr, **setting}
                once(path, lambda method=method: train(samples, method, "symmetric", 0.2, TUNING_SEED)[0])
            if name == "softmax":
                results = [
                    json.loads(file_of(options.out, "tune", name, i).read_text()) for i in range(len(grid))
                ]
                lr = grid[max(range(len(grid)), key=lambda i: results[i]["dev"][-1])]
        return
    methods = tuned(options.out)
    for rate in options.rates:
        for seed in SEEDS:
            for name, method in methods.items():
                if name not in (options.methods or methods):
                    continue
                path = file_of(options.out, "run", name, rate, seed)
                once(path, lambda m=method, r=rate, s=seed: train(samples, m, "symmetric", r, s)[0])


if __name__ == "__main__":
    main(sys.argv[1:])
