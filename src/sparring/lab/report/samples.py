"""What runs predicted for the test samples, laid side by side: a test of the difference, gains and losses by class, the hardest samples."""

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
MOST_RIVALS = 6


@dataclass
class Seen:
    """A run's test samples as its best model sees them."""

    digest: str  # of the samples
    samples: list[Sample]
    predicted: list[Any]
    margins: list[float | None]
    right: list[bool]
    pictures: dict[int, str] = field(
        default_factory=dict
    )  # of the hardest, where there is something to look at

    @classmethod
    def of(cls, run: RunFolder, kind: Kind) -> Seen | None:
        rows = run.lines("predictions", kind.name)
        if not rows:
            return None
        predicted, margins = [row.pop("predicted") for row in rows], [row.pop("margin", None) for row in rows]
        pictures = {i: row.pop("picture") for i, row in enumerate(rows) if "picture" in row}
        digest = hashlib.sha256(json.dumps(rows, sort_keys=True).encode()).hexdigest()
        right = [not kind.mistakes(row, guess) for guess, row in zip(predicted, rows, strict=True)]
        return cls(digest, rows, predicted, margins, right, pictures)


class Predictions:
    """Of all runs of a section that were tested on the same samples as the first of them."""

    def __init__(self, section: Section) -> None:
        self.kind = get_kind(section.facts["kind"])
        self.runs: dict[str, dict[int, Seen]] = {}
        self.samples: list[Sample] = []
        digest = None
        for contestant in section.contestants:
            for seed, run in contestant.runs.items():
                seen = Seen.of(run, self.kind)
                if seen is None or digest not in (None, seen.digest):
                    continue
                digest, self.samples = seen.digest, self.samples or seen.samples
                seen.samples = self.samples  # one copy
                self.runs.setdefault(contestant.name, {})[seed] = seen

    def pairs(self, one: str, other: str) -> list[tuple[Seen, Seen]]:
        """The runs of two contestants with the same seeds."""
        mine, theirs = self.runs.get(one, {}), self.runs.get(other, {})
        return [(mine[seed], theirs[seed]) for seed in mine if seed in theirs]


# ------------------------------------------------------------ tests


def significance(section: Section, seen: Predictions) -> list[dict[str, Any]]:
    """Each contestant against the first: a paired t-test over the seeds both have, a sign test over the test samples."""
    first, *others = section.contestants
    return [
        {
            "contestant": each.name,
            **over_seeds(first, each, section),
            **over_samples(first.name, each.name, seen),
        }
        for each in others
    ]


def over_seeds(first: Contestant, other: Contestant, section: Section) -> dict[str, Any]:
    """The mean difference and its 95 % interval; none of these with fewer than three seeds, or where all differences are the same."""
    gap = difference(*(each.figures(section.part, section.metric) for each in (other, first)))
    n_seeds, mean, low, high, p = gap or (0, None, None, None, None)
    return {"n_seeds": n_seeds, "difference": mean, "low": low, "high": high, "p_seeds": p}


def over_samples(first: str, other: str, seen: Predictions) -> dict[str, Any]:
    """Samples that the other has right more often than the first, and less often. With one seed it is McNemar's exact test; with several
    every sample still counts once, since its seeds are not independent."""
    pairs = seen.pairs(other, first)
    if not pairs:
        return {"n_samples": 0, "better": None, "worse": None, "p_samples": None}
    leads = [sum(mine.right[i] - theirs.right[i] for mine, theirs in pairs) for i in range(len(seen.samples))]
    better, worse = sum(lead > 0 for lead in leads), sum(lead < 0 for lead in leads)
    from scipy.stats import binomtest

    p = float(binomtest(better, better + worse).pvalue) if better + worse else 1.0
    return {"n_samples": len(leads), "better": better, "worse": worse, "p_samples": p}


# ------------------------------------------------------------ classes


def by_class(section: Section, seen: Predictions, most: int = 10) -> list[dict[str, Any]]:
    """F1 of every class against the first contestant's, over the seeds both have: the ``most`` largest gains and losses of each."""
    first, *others = section.names
    rows: list[dict[str, Any]] = []
    for name in others:
        pairs = seen.pairs(name, first)
        mine, theirs = (_scores(seen, [pair[side] for pair in pairs]) for side in (0, 1))
        found: list[dict[str, Any]] = [
            {
                "contestant": name,
                "class": label,
                "samples": n,
                "before": theirs[label][1],
                "after": f1,
                "difference": f1 - theirs[label][1],
            }
            for label, (n, f1) in mine.items()
            if label in theirs  # of spellings, one may touch a character that the other leaves alone
        ]
        ordered = sorted((row for row in found if row["difference"]), key=lambda row: -row["difference"])
        rows += [
            row
            for i, row in enumerate(ordered)
            if (i < most and row["difference"] > 0) or (i >= len(ordered) - most and row["difference"] < 0)
        ]
    return rows


def _scores(seen: Predictions, runs: Sequence[Seen]) -> dict[str, tuple[int, float]]:
    """Of each class that is there: its count in the test set, and F1 over the runs together."""
    true, guessed, hit = Counter[str](), Counter[str](), Counter[str]()
    for run in runs:
        for sample, guess in zip(seen.samples, run.predicted, strict=True):
            for t, p in seen.kind.class_pairs(sample, guess):
                true.update([t] if t is not None else [])
                guessed.update([p] if p is not None else [])
                hit.update([t] if t is not None and t == p else [])
    return {label: (n // len(runs), 2 * hit[label] / (n + guessed[label])) for label, n in true.items()}


# ------------------------------------------------------------ samples


def hardest(seen: Predictions, most: int = 20) -> list[dict[str, Any]]:
    """The samples with the lowest p_margin on the mean over all runs, and the rivals that took them."""
    runs = [run for by_seed in seen.runs.values() for run in by_seed.values()]
    means = [(_mean([run.margins[i] for run in runs]), i) for i in range(len(seen.samples))]
    rows = []
    for margin, i in sorted((mean, i) for mean, i in means if mean is not None)[:most]:
        text, gold = seen.kind.show(seen.samples[i], i)
        taken = Counter(
            rival for run in runs for rival in seen.kind.mistakes(seen.samples[i], run.predicted[i])
        )
        right = sum(run.right[i] for run in runs)
        rows.append(
            {
                "sample": text,
                "picture": next((run.pictures[i] for run in runs if i in run.pictures), None),
                "gold": gold,
                "rivals": dict(taken.most_common(MOST_RIVALS)),
                "margin": margin,
                "right": right,
                "runs": len(runs),
            }
        )
    return rows


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None and math.isfinite(value)]
    return statistics.mean(known) if known else None
