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

from sparring.lab.kinds import Kind, get_kind
from sparring.lab.report.gather import Contestant, Section
from sparring.lab.runs.records import RunFolder
from sparring.lab.runs.summaries import difference

Sample = dict[str, Any]
Row = dict[str, Any]
MOST_RIVALS = 6


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
    n_seeds, mean, low, high, p = gap or (0, None, None, None, None)
    return {"n_seeds": n_seeds, "difference": mean, "low": low, "high": high, "p_seeds": p}


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


def by_class(section: Section, predictions: Predictions, most: int = 10) -> list[Row]:
    """F1 of every class against the first contestant's on the common seeds: the largest gains and losses."""
    first, *others = section.names
    rows: list[Row] = []
    for name in others:
        pairs = predictions.pairs(name, first)
        scores, base = (_f1_scores(predictions, [pair[side] for pair in pairs]) for side in (0, 1))
        changes: list[Row] = []
        for label, (n, f1) in scores.items():
            before = base.get(label, (0, f1))[
                1
            ]  # of spellings, one may touch a character that the other leaves
            values = {"before": before, "after": f1, "difference": f1 - before}
            changes.append({"contestant": name, "class": label, "samples": n, **values})
        changes.sort(key=lambda row: -row["difference"])
        rows += [row for row in changes[:most] if row["difference"] > 0]
        rows += [row for row in changes[-most:] if row["difference"] < 0]
    return rows


def _f1_scores(predictions: Predictions, runs: Sequence[TestedRun]) -> dict[str, tuple[int, float]]:
    """For each class its number of test samples, and F1 over all runs together."""
    expected: Counter[str] = Counter()
    predicted: Counter[str] = Counter()
    correct: Counter[str] = Counter()
    for run in runs:
        for sample, guess in zip(predictions.samples, run.predicted, strict=True):
            for target, label in predictions.kind.class_pairs(sample, guess):
                expected.update([target] if target is not None else [])
                predicted.update([label] if label is not None else [])
                correct.update([target] if target is not None and target == label else [])
    return {
        label: (n // len(runs), 2 * correct[label] / (n + predicted[label])) for label, n in expected.items()
    }


def suspects(section: Section, most: int = 20) -> list[Row]:
    """The training samples whose labels look wrong, over all runs that named suspects."""
    named: dict[int, list[Row]] = {}
    n_runs = 0
    for contestant in section.contestants:
        for folder in contestant.runs.values():
            lines = folder.lines("suspects")
            n_runs += bool(lines)
            for line in lines:
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
    """The samples with the lowest mean p_margin over all runs, and the rivals that took them."""
    kind = predictions.kind
    runs = [run for by_seed in predictions.runs.values() for run in by_seed.values()]
    means = []
    for i in range(len(predictions.samples)):
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
