"""Samples of no class, and rare classes: what AS-Softmax changes, against softmax.

    python benchmarks/scope_and_tail.py run       both studies, all methods and seeds; an hour on one core
    python benchmarks/scope_and_tail.py show      tables, also on the page docs/results/scope_and_tail

Both are of clinc_oos, with MiniLM whose last layer is trained. ``scope``: the class "oos" is left out of
training. Test has 4,500 questions of the 150 intents, and 1,000 of none. How well do the largest probability
and the energy (log of the sum of the exponentials of the logits) tell them apart? ``tail``: of the 150
intents the first has 100 training samples, the last two. The learning rate is chosen for softmax on dev in
each study. Runs are kept in --out: finished ones are not repeated, and several processes may share the work.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import random
import sys
from pathlib import Path
from typing import Any

import torch
from frontier_tasks import POOLED
from headlines import with_table
from label_noise import calibration_error
from labels_report import difference, spread
from report import ROOT, file_of, once, provenance, write
from sklearn.metrics import roc_auc_score, roc_curve
from torch import Tensor

from sparring import make_loss
from sparring.files import write_text
from sparring.lab.datasets import get_task
from sparring.lab.models.settings import ModelOptions
from sparring.lab.models.text.frozen import frozen_layers
from sparring.lab.table import Cell, Table
from sparring.lab.task import Data, Sample, Where
from sparring.training.loop import Loop
from sparring.training.optimizers import adamw

NONE = "oos"
N_TRAIN, EPOCHS, BATCH = 6000, 4, 32
IMBALANCE, MOST = 50, 100
STUDIES = ("scope", "tail")
BASE = "softmax"
METHODS: dict[str, dict[str, Any]] = {
    BASE: {},
    "label smoothing": {"loss": "label-smoothing", "epsilon": 0.1},
    "AS-Softmax, δ 0.3": {"loss": "as-softmax", "delta": 0.3},
    "AS-Softmax, δ 0.6": {"loss": "as-softmax", "delta": 0.6},
    "AS-Softmax, δ 0.6, settled": {"loss": "as-softmax", "delta": 0.6, "settle": 0.25},
    "fast": {"speed": "fast"},
}
LRS = (5e-4, 1e-3, 2e-3)
TUNING_SEED, N_SEEDS = 100, 5


def long_tail(samples: list[Sample]) -> list[Sample]:
    """From ``MOST`` samples of one class down to a fiftieth of that, the classes in random order."""
    labels = sorted({sample["label"] for sample in samples})
    order = random.Random(0).sample(labels, len(labels))
    sizes = {
        label: max(2, round(MOST * IMBALANCE ** (-i / (len(order) - 1)))) for i, label in enumerate(order)
    }
    kept: list[Sample] = []
    for sample in samples:
        if sizes[sample["label"]] > 0:
            sizes[sample["label"]] -= 1
            kept.append(sample)
    return kept


class Bench:
    """The samples of a study, encoded once."""

    def __init__(self, study: str) -> None:
        data = get_task("clinc_oos").load(Where.default(None))
        train, dev, test = (
            [sample for sample in split if sample["label"] != NONE]
            for split in (data.train, data.dev, data.test)
        )
        train = long_tail(train) if study == "tail" else random.Random(N_TRAIN).sample(train, N_TRAIN)
        self.data: Data = dataclasses.replace(data, train=train, dev=dev, test=test)
        outside = [sample for sample in data.test if sample["label"] == NONE]
        model = self.build(0)
        self.encoder = self.data.encoder(model.processor, 64)
        label = train[0]["label"]  # of samples of no class, which is not looked at
        self.splits = {
            "train": self.encoder.encode(train),
            "dev": self.encoder.encode(dev),
            "test": self.encoder.encode(test),
            "outside": self.encoder.encode([{**sample, "label": label} for sample in outside]),
        }
        frozen = frozen_layers(model.net)
        assert frozen is not None
        for features in self.splits.values():
            frozen.add_outputs(model.net, self.encoder, features)
        counts = torch.bincount(self.targets("train"), minlength=len(self.data.labels))
        thirds = counts.argsort(descending=True, stable=True).chunk(3)
        self.parts = dict(zip(("head", "middle", "tail"), thirds, strict=True))

    def targets(self, split: str) -> Tensor:
        return torch.tensor([int(feature["labels"]) for feature in self.splits[split]])

    def build(self, seed: int) -> Any:
        torch.manual_seed(seed)
        return self.data.build_model("minilm", ModelOptions(**POOLED))

    def run(self, method: dict[str, Any], lr: float, seed: int) -> dict[str, Any]:
        settings = {"speed": "skip", "loss": "softmax", **method}
        own = {name: settings.pop(name) for name in ("delta", "epsilon") if name in settings}
        name = settings.pop("loss")
        net = self.build(seed).net
        features = self.splits["train"]
        record = Loop(
            net,
            make_loss(name, **own),
            features,
            epochs=EPOCHS,
            batch_size=BATCH,
            optimizer=adamw(net, lr),
            lengths=self.encoder.lengths(features),
            forward=self.encoder.forward,
            collate=self.encoder.collate_for_training,
            seed=seed,
            progress=False,
            **settings,
        ).run()
        logits = {split: self.logits(net, split) for split in ("dev", "test", "outside")}
        right = {split: logits[split].argmax(1) == self.targets(split) for split in ("dev", "test")}
        return {
            "lr": lr,
            "cpu_seconds": record.totals["cpu_seconds"],
            "dev": float(right["dev"].float().mean()),
            "test": float(right["test"].float().mean()),
            "ece": calibration_error(logits["test"].softmax(1), self.targets("test")),
            **self.parts_of(right["test"].float()),
            **separation(logits["test"], logits["outside"]),
        }

    @torch.no_grad()
    def logits(self, net: Any, split: str) -> Tensor:
        net.eval()
        features = self.splits[split]
        batches = (self.encoder.collate(features[i : i + 128]) for i in range(0, len(features), 128))
        return torch.cat([self.encoder.forward(net, batch)[0].float() for batch in batches])

    def parts_of(self, right: Tensor) -> dict[str, float]:
        """Accuracy of the frequent, middle and rare third of the classes, and of the worst class."""
        target = self.targets("test")
        parts = {
            name: float(right[torch.isin(target, classes)].mean()) for name, classes in self.parts.items()
        }
        return {**parts, "worst": min(float(right[target == label].mean()) for label in target.unique())}


def separation(inside: Tensor, outside: Tensor) -> dict[str, float]:
    """AUROC, and the share of outsiders that pass where 95 % of the insiders do."""
    scores = {
        "probability": [logits.softmax(1).amax(1) for logits in (inside, outside)],
        "energy": [logits.logsumexp(1) for logits in (inside, outside)],
    }
    belongs = [1] * len(inside) + [0] * len(outside)
    result = {}
    for name, parts in scores.items():
        score = torch.cat(parts).numpy()
        passes, kept, _ = roc_curve(belongs, score)
        result[f"auroc_{name}"] = float(roc_auc_score(belongs, score))
        result[f"fpr95_{name}"] = float(passes[(kept >= 0.95).argmax()])
    return result


COLUMNS = {
    "scope": {
        "test": "accuracy in scope %",
        "auroc_probability": "AUROC, probability",
        "fpr95_probability": "FPR@95, probability",
        "auroc_energy": "AUROC, energy",
        "fpr95_energy": "FPR@95, energy",
        "ece": "ECE %",
    },
    "tail": {
        "test": "accuracy %",
        "head": "head %",
        "middle": "middle %",
        "tail": "tail %",
        "worst": "worst class %",
        "ece": "ECE %",
    },
}


BEGIN, END = "<!-- tables: benchmarks/scope_and_tail.py show -->\n", "<!-- end of tables -->\n"
TITLES = {"scope": "Samples of no class", "tail": "Rare classes"}


def run(study: str, out: Path, methods: list[str], n_seeds: int) -> None:
    bench = Bench(study)
    folder = out / study
    for lr in LRS:
        once(file_of(folder, "tune", lr), lambda r=lr: bench.run({}, r, TUNING_SEED), wait=True)
    scores = {lr: json.loads(file_of(folder, "tune", lr).read_text())["dev"] for lr in LRS}
    best = max(scores, key=scores.__getitem__)
    for seed in range(n_seeds):
        for name in methods:
            once(file_of(folder, "run", name, seed), lambda n=name, s=seed: bench.run(METHODS[n], best, s))


def table_of(study: str, runs: dict[str, dict[int, dict[str, Any]]]) -> Table:
    """A row for each measure: softmax's value, and how far each method is from it."""
    rows = []
    for column, title in COLUMNS[study].items():
        values = {
            name: {seed: row[column] for seed, row in by_seed.items()} for name, by_seed in runs.items()
        }
        cells: list[Any] = [title, spread(list(values[BASE].values()))]
        cells += [marked(difference(values[name], values[BASE])) for name in runs if name != BASE]
        rows.append(cells)
    seeds = ", ".join(str(len(by_seed)) for by_seed in runs.values())
    note = (
        "softmax: mean and standard deviation over seeds; the others: points above or below it, ± half of "
        f"the 95 % interval, paired over seeds; * where it leaves out 0. Seeds: {seeds}."
    )
    return Table(TITLES[study], ["", *runs], rows, [note])


def marked(cell: Any) -> Any:
    """A difference with a star if its interval leaves out 0."""
    far = isinstance(cell, Cell) and abs(cell.value["mean"]) > cell.value["interval"]
    return Cell(f"{cell.text}*", cell.value) if far else cell


def show(out: Path, n_seeds: int, argv: list[str]) -> None:
    tables, kept = [], {}
    for study in STUDIES:
        runs = {}
        for name in METHODS:
            paths = {seed: file_of(out / study, "run", name, seed) for seed in range(n_seeds)}
            by_seed = {seed: json.loads(path.read_text()) for seed, path in paths.items() if path.exists()}
            if by_seed:
                runs[name] = by_seed
        if BASE in runs:
            tables.append(table_of(study, runs))
            kept[study] = runs
    for table in tables:
        table.print()
    if tables:
        results = ROOT / "docs" / "results" / "scope_and_tail"
        about = {**provenance(__file__, argv, 1), "seed": list(range(n_seeds)), "methods": METHODS}
        write({**about, "runs": kept}, results / "scope_and_tail.json")
        page = results / "README.md"
        text = "\n".join(table.markdown() for table in tables)
        write_text(page, with_table(page.read_text(encoding="utf-8"), f"\n{text}\n", BEGIN, END))


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("run", "show"))
    parser.add_argument("--studies", nargs="*", default=list(STUDIES), choices=STUDIES)
    parser.add_argument("--methods", nargs="*", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--seeds", type=int, default=N_SEEDS, help="how many")
    parser.add_argument("--out", type=Path, default=Path("runs/scope_and_tail"))
    options = parser.parse_args(argv)
    torch.set_num_threads(1)
    if options.what == "show":
        return show(options.out, options.seeds, argv)
    for study in options.studies:
        (options.out / study).mkdir(parents=True, exist_ok=True)
        run(study, options.out, options.methods, options.seeds)
    return None


if __name__ == "__main__":
    main(sys.argv[1:])
