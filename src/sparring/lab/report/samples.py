"""Predictions of runs compared sample by sample: significance, gains by class, the hardest samples."""

from __future__ import annotations

import hashlib
import json
import math
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sparring.lab.differences import difference
from sparring.lab.kinds import Kind, get_kind
from sparring.lab.report.gather import Contestant, Section
from sparring.lab.runs.records import RunFolder

Sample = dict[str, Any]
Row = dict[str, Any]
MOST_RIVALS = 6
LEAST_SAMPLES = 10  # of a class in test, for its F1 to be compared
RESAMPLES = 400  # of a bootstrap
MOST_CONFUSIONS = 10
MOST_CLASSES = 12  # of a confusion matrix


@dataclass
class TestedRun:
    """The test samples of a run with the predictions of its best model."""

    __test__ = False  # not a class of tests

    digest: str  # of the samples
    samples: list[Sample]
    predicted: list[Any]
    margins: list[float | None]
    correct: list[bool]
    pictures: dict[int, str] = field(default_factory=dict)  # of the hardest samples, if the kind has pictures

    @classmethod
    def read(cls, run: RunFolder, kind: Kind) -> TestedRun | None:
        """A run's predictions; None if it was not tested."""
        rows = run.lines("predictions", kind.name)
        if not rows:
            return None
        predicted = [row.pop("predicted") for row in rows]
        margins = [row.pop("margin", None) for row in rows]
        pictures = {i: row.pop("picture") for i, row in enumerate(rows) if "picture" in row}
        digest = hashlib.sha256(json.dumps(rows, sort_keys=True).encode()).hexdigest()
        correct = [not kind.mistakes(row, guess) for guess, row in zip(predicted, rows, strict=True)]
        return cls(digest, rows, predicted, margins, correct, pictures)


class Predictions:
    """The runs of a section that were tested on the same samples as the first of them."""

    def __init__(self, section: Section) -> None:
        self.kind = get_kind(section.facts["kind"])
        self.runs: dict[str, dict[int, TestedRun]] = {}  # by contestant and seed
        self.samples: list[Sample] = []
        digest = None
        for contestant in section.contestants:
            for seed, folder in contestant.runs.items():
                run = TestedRun.read(folder, self.kind)
                if run is None or digest not in (None, run.digest):
                    continue
                digest = run.digest
                self.samples = self.samples or run.samples
                run.samples = self.samples  # keep one copy
                self.runs.setdefault(contestant.name, {})[seed] = run

    def pairs(self, contestant: str, other: str) -> list[tuple[TestedRun, TestedRun]]:
        """The runs of two contestants on their common seeds."""
        runs, others = self.runs.get(contestant, {}), self.runs.get(other, {})
        return [(runs[seed], others[seed]) for seed in runs if seed in others]


def significance(section: Section, predictions: Predictions) -> list[Row]:
    """Each contestant against the first: a paired t-test over seeds and a sign test over test samples."""
    first, *others = section.contestants
    return [
        {
            "contestant": other.name,
            **over_seeds(first, other, section),
            **over_samples(first.name, other.name, predictions),
        }
        for other in others
    ]


def over_seeds(first: Contestant, other: Contestant, section: Section) -> Row:
    """The mean difference over the common seeds, its 95 % interval and p, see `summaries.difference`."""
    gap = difference(*(contestant.scores(section.part, section.metric) for contestant in (other, first)))
    n_seeds, mean, low, high, p, smallest = gap or (0, None, None, None, None, None)
    found = {"n_seeds": n_seeds, "difference": mean, "low": low, "high": high, "p_seeds": p}
    return {**found, "detectable": smallest}


def over_samples(first: str, other: str, predictions: Predictions) -> Row:
    """How many samples the other has right more often than the first, and less often, with a sign test.

    With one seed it is McNemar's exact test. With several each sample still counts once, since its seeds are
    not independent.
    """
    pairs = predictions.pairs(other, first)
    if not pairs:
        return {"n_samples": 0, "better": None, "worse": None, "p_samples": None}
    indices = range(len(predictions.samples))
    leads = [sum(run.correct[i] - base.correct[i] for run, base in pairs) for i in indices]
    better = sum(lead > 0 for lead in leads)
    worse = sum(lead < 0 for lead in leads)
    from scipy.stats import binomtest

    p = float(binomtest(better, better + worse).pvalue) if better + worse else 1.0
    return {"n_samples": len(leads), "better": better, "worse": worse, "p_samples": p}


def by_class(
    section: Section, predictions: Predictions, most: int = 10, least: int = LEAST_SAMPLES
) -> list[Row]:
    """F1 of classes against the first contestant's on the common seeds: the largest gains and losses.

    Each difference has a 95 % interval. Classes with fewer than ``least`` test samples are left out.
    """
    first, *others = section.names
    rows: list[Row] = []
    for name in others:
        pairs = predictions.pairs(name, first)
        ours, base = (ClassCounts(predictions, [pair[side] for pair in pairs]) for side in (0, 1))
        changes: list[Row] = []
        for label, n in ours.n_expected.items():
            if n < least or label not in base.n_expected:  # one may touch a character that the other leaves
                continue
            after, before = ours.f1(label), base.f1(label)
            low, high = _interval(ours.by_sample[label], base.by_sample[label])
            values = {
                "before": before,
                "after": after,
                "difference": after - before,
                "low": low,
                "high": high,
            }
            changes.append({"contestant": name, "class": label, "samples": n, **values})
        changes.sort(key=lambda row: -row["difference"])
        rows += [row for row in changes[:most] if row["difference"] > 0]
        rows += [row for row in changes[-most:] if row["difference"] < 0]
    return rows


class ClassCounts:
    """What F1 is made of, by class: over all runs, and by sample."""

    def __init__(self, predictions: Predictions, runs: Sequence[TestedRun]) -> None:
        self.n_expected: Counter[str] = Counter()  # test rows of a class
        self.by_sample: dict[str, dict[int, list[int]]] = {}  # twice the hits, expected + predicted
        for run in runs:
            for i, (sample, guess) in enumerate(zip(predictions.samples, run.predicted, strict=True)):
                for target, label in predictions.kind.class_pairs(sample, guess):
                    for name in (target, label):
                        if name is not None:
                            counts = self.by_sample.setdefault(name, {}).setdefault(i, [0, 0])
                            counts[0] += target == label
                            counts[1] += 1
                    self.n_expected.update([target] if target is not None else [])
        self.n_expected = Counter({label: n // len(runs) for label, n in self.n_expected.items()})

    def f1(self, label: str) -> float:
        hits, total = (sum(column) for column in zip(*self.by_sample[label].values(), strict=True))
        return float(hits / total)


def _interval(ours: dict[int, list[int]], base: dict[int, list[int]]) -> tuple[float, float]:
    """The 95 % interval of a difference in F1: a Poisson bootstrap over the samples of both."""
    import numpy as np

    indices = sorted(ours.keys() | base.keys())
    weights = np.random.default_rng(0).poisson(1.0, (RESAMPLES, len(indices)))
    scores = []
    for counts in (ours, base):
        hits, total = (weights @ np.array([counts.get(i, (0, 0)) for i in indices])).T
        scores.append(np.divide(hits, total, out=np.zeros(RESAMPLES), where=total > 0))
    low, high = np.quantile(scores[0] - scores[1], [0.025, 0.975])
    return float(low), float(high)


def confusions(section: Section, predictions: Predictions) -> Row:
    """Which classes are taken for which: the largest confusions, and the matrix of the classes in them."""
    names = [name for name in section.names if predictions.runs.get(name)]
    counts = {name: _pair_counts(predictions, list(predictions.runs[name].values())) for name in names}
    totals = {name: Counter[str]() for name in names}
    for name in names:
        for (true, _), n in counts[name].items():
            totals[name][true] += n
    over_all = sum((counts[name] for name in names), Counter[tuple[str, str]]())
    wrong = [pair for pair, _ in over_all.most_common() if pair[0] != pair[1]][:MOST_CONFUSIONS]
    shown = list(dict.fromkeys(label for pair in wrong for label in pair))[:MOST_CLASSES]
    classes = sorted(shown)

    def share(name: str, true: str, predicted: str) -> float | None:
        total = totals[name][true]
        return counts[name][true, predicted] / total if total else None

    n_runs = {name: len(predictions.runs[name]) for name in names}
    return {
        "classes": classes,
        "cells": [
            {"contestant": name, "true": true, "predicted": label, "share": round(100 * value, 2)}
            for name in names
            for true in classes
            for label in classes
            if (value := share(name, true, label)) is not None
        ],
        "largest": [
            {
                "true": true,
                "predicted": label,
                "samples": max(totals[name][true] // n_runs[name] for name in names),
                **{name: share(name, true, label) if name in names else None for name in section.names},
            }
            for true, label in wrong
        ],
    }


def _pair_counts(predictions: Predictions, runs: Sequence[TestedRun]) -> Counter[tuple[str, str]]:
    """How often a class is predicted for a true one, where both are classes."""
    return Counter(
        (true, label)
        for run in runs
        for sample, guess in zip(predictions.samples, run.predicted, strict=True)
        for true, label in predictions.kind.class_pairs(sample, guess)
        if true is not None and label is not None
    )


def mistakes(predictions: Predictions) -> Row:
    """How many test samples are wrong in some run, and in all of them."""
    runs = [run for by_seed in predictions.runs.values() for run in by_seed.values()]
    rights = [sum(run.correct[i] for run in runs) for i in range(len(predictions.samples))]
    counts = {"ever": sum(n < len(runs) for n in rights), "always": sum(n == 0 for n in rights)}
    return {"samples": len(rights), "runs": len(runs), **counts}


def suspects(section: Section, most: int = 20) -> list[Row]:
    """The training samples whose labels look wrong, over all runs that looked for them."""
    named: dict[int, list[Row]] = {}
    n_runs = 0
    for contestant in section.contestants:
        for folder in contestant.runs.values():
            n_runs += (folder.path / "suspects.jsonl").exists()
            for line in folder.lines("suspects"):
                named.setdefault(line["index"], []).append(line)
    order = sorted(named.values(), key=lambda lines: -sum(line["score"] for line in lines))
    return [
        {
            **{name: lines[0].get(name) for name in ("index", "sample", "picture", "given")},
            "proposed": Counter(line["proposed"] for line in lines).most_common(1)[0][0],
            "score": statistics.mean(line["score"] for line in lines),
            "runs": len(lines),
            "n_runs": n_runs,
        }
        for lines in order[:most]
    ]


def hardest(predictions: Predictions, most: int = 20) -> list[Row]:
    """The samples with the lowest mean p_margin among those that some run has wrong, and their rivals."""
    kind = predictions.kind
    runs = [run for by_seed in predictions.runs.values() for run in by_seed.values()]
    means = []
    for i in range(len(predictions.samples)):
        if all(run.correct[i] for run in runs):
            continue
        margins = [margin for run in runs if (margin := run.margins[i]) is not None and math.isfinite(margin)]
        means += [(statistics.mean(margins), i)] if margins else []
    rows = []
    for margin, i in sorted(means)[:most]:
        sample = predictions.samples[i]
        text, target = kind.show(sample, i)
        rivals = Counter(rival for run in runs for rival in kind.mistakes(sample, run.predicted[i]))
        rows.append(
            {
                "sample": text,
                "picture": next((run.pictures[i] for run in runs if i in run.pictures), None),
                "gold": target,
                "rivals": dict(rivals.most_common(MOST_RIVALS)),
                "margin": margin,
                "right": sum(run.correct[i] for run in runs),
                "runs": len(runs),
            }
        )
    return rows
