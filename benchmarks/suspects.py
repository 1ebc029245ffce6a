"""Which score finds wrong labels: the margins of one training run, against cleanlab's five folds.

    python benchmarks/suspects.py run            four data sets, three kinds of noise, three rates: 40 minutes
    python benchmarks/suspects.py cost           the share of training that recording takes: a minute
    python benchmarks/suspects.py show           tables from the runs, and docs/results/labels/suspects.json

The network is one hidden layer on frozen features of a pre-trained encoder, so that cleanlab's out-of-fold
probabilities, which need five more trainings, can be had for every setting. Scores come from `MarginHistory`,
recorded by the same training loop that users call. `average precision` is that of the ranking, `precision` is
that of as many samples as there are wrong labels. Seconds are processor seconds on one thread.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from label_noise import NOISES, with_noise
from labels import Samples
from report import file_of, once, provenance
from sklearn.metrics import average_precision_score
from suspects_report import show
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from sparring import make_loss
from sparring.lab.datasets import get_task
from sparring.lab.models.settings import ModelOptions
from sparring.lab.task import Where
from sparring.training.history import SCORES, MarginHistory
from sparring.training.loop import Loop
from sparring.training.optimizers import adamw

N_SAMPLES = 3000  # at most
EPOCHS, BATCH, LR, HIDDEN, FOLDS = 15, 64, 2e-3, 256, 5
ENCODERS: dict[str, tuple[str, ModelOptions, int]] = {
    "clinc_oos": ("minilm", ModelOptions(pooling="mean"), 64),
    "sst5": ("minilm", ModelOptions(pooling="mean"), 64),
    "iflytek": ("m3e-small", ModelOptions(pooling="mean"), 128),
    "cifar100": ("efficientnet-lite0", ModelOptions(), 0),
}
LOSSES = {
    "softmax": {},
    "softmax, concede 0.5": {"concede": 0.5},
    "AS-Softmax 0.3": {"loss": "as-softmax", "delta": 0.3},
    "AS-Softmax 0.6, concede 0.5": {"loss": "as-softmax", "delta": 0.6, "concede": 0.5},
}
SEEDS = {0.2: 1, 0.05: 1, 0.4: 1}  # by noise rate
CLEANLAB = ("self_confidence", "normalized_margin")


@torch.no_grad()
def features_of(
    task: str, split: str = "train", n_samples: int | None = N_SAMPLES
) -> tuple[Tensor, Tensor, int]:
    """Inputs of the classifier for samples of a split, their labels, and the number of classes."""
    data = get_task(task).load(Where.default(None))
    model_name, options, max_length = ENCODERS[task]
    torch.manual_seed(0)
    model = data.build_model(model_name, options)
    encoder = data.encoder(model.processor, max_length or None)
    samples = getattr(data, split)
    if n_samples is not None and len(samples) > n_samples:
        samples = random.Random(0).sample(samples, n_samples)
    features = encoder.encode(samples)
    n_classes = len(data.labels)
    layers = [m for m in model.net.modules() if isinstance(m, nn.Linear) and m.out_features == n_classes]
    inputs: list[Tensor] = []
    layers[-1].register_forward_pre_hook(lambda _, args: inputs.append(args[0].clone()))
    model.net.eval()
    lengths = encoder.lengths(features) or [0] * len(features)
    order = sorted(range(len(features)), key=lengths.__getitem__)
    for start in range(0, len(order), 64):
        model.net(**encoder.collate_inputs([features[i] for i in order[start : start + 64]]))
    x = torch.cat(inputs)[torch.tensor(order).argsort()]
    return x, torch.tensor([feature["labels"] for feature in features]), n_classes


def fit(
    x: Tensor, y: Tensor, n_classes: int, settings: dict[str, Any], seed: int, history: MarginHistory | None
) -> tuple[nn.Module, float]:
    """Train a network, and return it with the processor seconds."""
    settings = {"loss": "softmax", **settings}
    torch.manual_seed(seed)
    net = nn.Sequential(
        nn.Linear(x.shape[1], HIDDEN), nn.GELU(), nn.Dropout(0.1), nn.Linear(HIDDEN, n_classes)
    )
    loss = make_loss(settings.pop("loss"), **settings)
    start = time.process_time()
    Loop(
        net,
        loss,
        TensorDataset(x, y),
        batch_size=BATCH,
        epochs=EPOCHS,
        lr=LR,
        skip="off",
        history=history,
        seed=seed,
        progress=False,
    ).run()
    return net.eval(), time.process_time() - start


@torch.no_grad()
def out_of_fold(x: Tensor, y: Tensor, n_classes: int, seed: int) -> tuple[np.ndarray, float]:
    """Probabilities of each sample by a network that was trained on the other folds."""
    fold = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed)) % FOLDS
    probabilities = torch.zeros(len(x), n_classes)
    seconds = 0.0
    for i in range(FOLDS):
        with torch.enable_grad():
            net, cost = fit(x[fold != i], y[fold != i], n_classes, {}, seed, None)
        probabilities[fold == i] = net(x[fold == i]).softmax(1)
        seconds += cost
    return probabilities.double().numpy(), seconds


def figures(is_wrong: np.ndarray, score: np.ndarray) -> dict[str, float]:
    order = np.argsort(-score, kind="stable")
    return {
        "average_precision": float(average_precision_score(is_wrong, score)),
        "precision": float(is_wrong[order[: is_wrong.sum()]].mean()),
    }


def compare(x: Tensor, truth: Tensor, n_classes: int, noise: str, rate: float, seed: int) -> dict[str, Any]:
    """All scores of all losses, and cleanlab's, on one noisy version of the labels."""
    from cleanlab.rank import get_label_quality_scores

    labels = with_noise(truth, n_classes, noise, rate, seed)
    is_wrong = (labels != truth).numpy()
    result: dict[str, Any] = {"n_wrong": int(is_wrong.sum()), "n_samples": len(labels), "scores": {}}
    for name, settings in LOSSES.items():
        history = MarginHistory(len(labels))
        _, seconds = fit(x, labels, n_classes, settings, seed, history)
        start = time.process_time()
        entry = {score: figures(is_wrong, history.scores(score).nan_to_num(0).numpy()) for score in SCORES}
        cost = {"training": seconds, "scoring": time.process_time() - start}
        result["scores"][name] = {**entry, "seconds": cost}
    probabilities, seconds = out_of_fold(x, labels, n_classes, seed)
    start = time.process_time()
    entry = {
        method: figures(is_wrong, 1 - get_label_quality_scores(labels.numpy(), probabilities, method=method))
        for method in CLEANLAB
    }
    cost = {"training": seconds, "scoring": time.process_time() - start}
    result["scores"]["cleanlab, five folds"] = {**entry, "seconds": cost}
    return result


class TimedHistory(MarginHistory):
    """Counts the processor seconds that it takes."""

    seconds = 0.0

    depth = 0

    def note(self, *args: Any, **keywords: Any) -> None:
        self._timed(super().note, *args, **keywords)

    def _flush(self) -> None:
        self._timed(super()._flush)

    def _timed(self, function: Callable[..., None], *args: Any, **keywords: Any) -> None:
        start = time.process_time()
        self.depth += 1
        function(*args, **keywords)
        self.depth -= 1
        if not self.depth:  # a flush inside of a note is part of it
            self.seconds += time.process_time() - start


def cost() -> dict[str, Any]:
    """The share of the time that recording takes while one layer of MiniLM is fine-tuned on clinc_oos."""
    samples = Samples()
    features = samples.features["train"][:1000]
    net = samples.build(0).net
    history = TimedHistory(len(features))
    record = Loop(
        net,
        make_loss("softmax", concede=0.5),
        features,
        epochs=2,
        optimizer=adamw(net, 5e-4),
        lengths=samples.encoder.lengths(features),
        forward=samples.encoder.forward,
        collate=samples.encoder.collate,
        history=history,
        progress=False,
    ).run()
    history.state  # noqa: B018  the last looks are written when they are read
    seconds = record.totals["cpu_seconds"]
    return {"cpu_seconds": seconds, "recording": history.seconds, "share": history.seconds / seconds}


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("run", "cost", "show"))
    parser.add_argument("--out", type=Path, default=Path("runs/suspects"))
    parser.add_argument("--tasks", nargs="*", default=list(ENCODERS))
    options = parser.parse_args(argv)
    options.out.mkdir(parents=True, exist_ok=True)
    if options.what == "show":
        show(options.out, options.tasks, SEEDS, provenance(__file__, ["run"], 1))
        return
    torch.set_num_threads(1)
    if options.what == "cost":
        once(options.out / "cost.json", cost)
        return
    inputs = {}
    for task in options.tasks:
        x, y, n_classes = features_of(task)
        inputs[task] = ((x - x.mean(0)) / x.std(0).clamp(min=1e-6), y, n_classes)
    for rate, n_seeds in SEEDS.items():
        for seed in range(n_seeds):
            for noise in NOISES:
                for task, (x, y, n_classes) in inputs.items():
                    path = file_of(options.out, task, noise, rate, seed)
                    arguments = (x, y, n_classes, noise, rate, seed)
                    once(path, lambda arguments=arguments: compare(*arguments))


if __name__ == "__main__":
    main(sys.argv[1:])
