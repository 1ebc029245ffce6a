"""Predictions of several runs on the same samples: significance, F1 by class, and the hardest samples."""

from __future__ import annotations

import hashlib
import json
import math
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sparring.lab.kinds import Kind, get_kind
from sparring.lab.kinds.encoder import Sample
from sparring.lab.report.gather import Contestant, Section
from sparring.lab.runs.records import RunFolder
from sparring.lab.runs.summaries import difference

MOST_RIVALS = 6  # wrong predictions that are listed per sample


@dataclass
class RunPredictions:
    """What the best model of a run predicts for the test samples."""

    digest: str  # of the samples, to recognise runs on the same ones
    samples: list[Sample]
    predicted: list[Any]
    margins: list[float | None]  # p_margin
    right: list[bool]
    pictures: dict[int, str] = field(default_factory=dict)  # of the hardest samples

    @classmethod
    def of(cls, run: RunFolder, kind: Kind) -> RunPredictions | None:
        """Read them from a run folder; None if it has none."""
        rows = run.lines("predictions", kind.name)
        if not rows:
            return None
        predicted = [row.pop("predicted") for row in rows]
        margins = [row.pop("margin", None) for row in rows]
        pictures = {i: row.pop("picture") for i, row in enumerate(rows) if "picture" in row}
        digest = hashlib.sha256(json.dumps(rows, sort_keys=True).encode()).hexdigest()
        right = [not kind.mistakes(row, prediction) for row, prediction in zip(rows, predicted, strict=True)]
        return cls(digest, rows, predicted, margins, right, pictures)


class Predictions:
    """Predictions of all runs of a section that were tested on the same samples as the first one."""

    def __init__(self, section: Section) -> None:
        self.kind = get_kind(section.facts["kind"])
        self.runs: dict[str, dict[int, RunPredictions]] = {}  # by contestant and seed
        self.samples: list[Sample] = []
        digest = None
        for contestant in section.contestants:
            for seed, run in contestant.runs.items():
                predictions = RunPredictions.of(run, self.kind)
                if predictions is None or digest not in (None, predictions.digest):
                    continue
                digest = predictions.digest
                self.samples = self.samples or predictions.samples
                predictions.samples = self.samples  # keep one copy
                self.runs.setdefault(contestant.name, {})[seed] = predictions

    def pairs(self, first: str, second: str) -> list[tuple[RunPredictions, RunPredictions]]:
        """The runs of two contestants with the same seeds."""
        by_seed, others = self.runs.get(first, {}), self.runs.get(second, {})
        return [(run, others[seed]) for seed, run in by_seed.items() if seed in others]


# ------------------------------------------------------------ significance


def significance(section: Section, predictions: Predictions) -> list[dict[str, Any]]:
    """Compare each contestant with the first: a paired t-test over seeds, and a sign test over samples."""
    baseline, *others = section.contestants
    return [
        {
            "contestant": other.name,
            **over_seeds(baseline, other, section),
            **over_samples(baseline.name, other.name, predictions),
        }
        for other in others
    ]


def over_seeds(baseline: Contestant, other: Contestant, section: Section) -> dict[str, Any]:
    """Mean difference, its 95 % interval and p, over the seeds that both have.

    All are None with fewer than three seeds; interval and p also if all differences are equal.
    """
    figures = [contestant.figures(section.part, section.metric) for contestant in (other, baseline)]
    n_seeds, mean, low, high, p = difference(*figures) or (0, None, None, None, None)
    return {"n_seeds": n_seeds, "difference": mean, "low": low, "high": high, "p_seeds": p}


def over_samples(baseline: str, other: str, predictions: Predictions) -> dict[str, Any]:
    """How many samples the other contestant predicts right more often, how many less often, and p.

    With one seed this is McNemar's exact test. With several seeds, a sample still counts once, because
    predictions of the same sample are not independent.
    """
    pairs = predictions.pairs(other, baseline)
    if not pairs:
        return {"n_samples": 0, "better": None, "worse": None, "p_samples": None}
    from scipy.stats import binomtest

    n_samples = len(predictions.samples)
    leads = [sum(run.right[i] - base.right[i] for run, base in pairs) for i in range(n_samples)]
    better = sum(lead > 0 for lead in leads)
    worse = sum(lead < 0 for lead in leads)
    p = float(binomtest(better, better + worse).pvalue) if better + worse else 1.0
    return {"n_samples": n_samples, "better": better, "worse": worse, "p_samples": p}


# ------------------------------------------------------------ classes


def by_class(section: Section, predictions: Predictions, most: int = 10) -> list[dict[str, Any]]:
    """The ``most`` largest gains and losses in F1 of a class, for each contestant against the first one."""
    baseline, *others = section.names
    rows: list[dict[str, Any]] = []
    for name in others:
        pairs = predictions.pairs(name, baseline)
        before = _class_f1(predictions, [base for _, base in pairs])
        after = _class_f1(predictions, [run for run, _ in pairs])
        changes: list[dict[str, Any]] = [
            {
                "contestant": name,
                "class": label,
                "samples": n,
                "before": before[label][1],
                "after": f1,
                "difference": f1 - before[label][1],
            }
            for label, (n, f1) in after.items()
            if label in before
            and f1 != before[label][1]  # spelling: a character may be changed by one run only
        ]
        changes.sort(key=lambda row: -row["difference"])
        gains = [row for row in changes[:most] if row["difference"] > 0]
        losses = [row for row in changes[-most:] if row["difference"] < 0]
        rows += gains + losses
    return rows


def _class_f1(predictions: Predictions, runs: Sequence[RunPredictions]) -> dict[str, tuple[int, float]]:
    """For each true class: how often it occurs in the test set, and its F1 over all runs together."""
    true, predicted, hits = Counter[str](), Counter[str](), Counter[str]()
    for run in runs:
        for sample, prediction in zip(predictions.samples, run.predicted, strict=True):
            for target, guess in predictions.kind.class_pairs(sample, prediction):
                if target is not None:
                    true[target] += 1
                if guess is not None:
                    predicted[guess] += 1
                if target is not None and target == guess:
                    hits[target] += 1
    return {label: (n // len(runs), 2 * hits[label] / (n + predicted[label])) for label, n in true.items()}


# ------------------------------------------------------------ samples


def hardest(predictions: Predictions, most: int = 20) -> list[dict[str, Any]]:
    """The samples with the lowest mean p_margin over all runs, and what was predicted in their place."""
    kind = predictions.kind
    runs = [run for by_seed in predictions.runs.values() for run in by_seed.values()]
    means = [(_mean([run.margins[i] for run in runs]), i) for i in range(len(predictions.samples))]
    rows = []
    for margin, i in sorted((mean, i) for mean, i in means if mean is not None)[:most]:
        sample = predictions.samples[i]
        text, target = kind.show(sample, i)
        rivals = Counter(mistake for run in runs for mistake in kind.mistakes(sample, run.predicted[i]))
        rows.append(
            {
                "sample": text,
                "picture": next((run.pictures[i] for run in runs if i in run.pictures), None),
                "gold": target,
                "rivals": dict(rivals.most_common(MOST_RIVALS)),
                "margin": margin,
                "right": sum(run.right[i] for run in runs),
                "runs": len(runs),
            }
        )
    return rows


def _mean(values: Sequence[float | None]) -> float | None:
    """The mean of the finite values; None if there are none."""
    finite = [value for value in values if value is not None and math.isfinite(value)]
    return statistics.mean(finite) if finite else None
