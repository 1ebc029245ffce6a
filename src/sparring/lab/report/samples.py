"""What runs predicted for the test samples, laid side by side: a test of the difference, gains and losses by class, the hardest samples."""

from __future__ import annotations

import hashlib
import json
import math
import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from sparring.lab.report.gather import Contestant, Section
from sparring.lab.runs.records import RunFolder
from sparring.lab.runs.summaries import difference

Sample = dict[str, Any]
LONGEST = 280  # letters of a sample that are shown
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
    def of(cls, run: RunFolder, kind: str) -> Seen | None:
        rows = run.lines("predictions", kind)
        if not rows:
            return None
        predicted, margins = [row.pop("predicted") for row in rows], [row.pop("margin", None) for row in rows]
        pictures = {i: row.pop("picture") for i, row in enumerate(rows) if "picture" in row}
        digest = hashlib.sha256(json.dumps(rows, sort_keys=True).encode()).hexdigest()
        right = [not rivals(kind, row, guess) for guess, row in zip(predicted, rows, strict=True)]
        return cls(digest, rows, predicted, margins, right, pictures)


class Predictions:
    """Of all runs of a section that were tested on the same samples as the first of them."""

    def __init__(self, section: Section) -> None:
        self.kind: str = section.facts["kind"]
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


# ------------------------------------------------------------ kinds


def gold_of(kind: str, sample: Sample) -> Any:
    """What a prediction should be."""
    return sample[
        {"token": "tags", "spelling": "target", "generation": "target", "multi-label": "labels"}.get(
            kind, "label"
        )
    ]


def atoms(kind: str, sample: Sample, guess: Any) -> Iterator[tuple[str | None, str | None]]:
    """Pairs of the true and the predicted class: one, one a token, one a label; of spellings where something was or should be changed."""
    gold = gold_of(kind, sample)
    if kind == "token":
        yield from zip(gold, guess, strict=False)
    elif kind == "spelling":
        yield from ((t, p) for s, t, p in zip(sample["source"], gold, guess, strict=False) if not s == t == p)
    elif kind == "multi-label":
        yield from (
            (label if label in gold else None, label if label in guess else None)
            for label in sorted({*gold, *guess})
        )
    else:
        yield gold, guess


def rivals(kind: str, sample: Sample, guess: Any) -> list[str]:
    """The classes that took a sample: what was predicted in the place of what."""
    if kind == "token":
        return [
            f"{w}: {t} → {p}"
            for w, t, p in zip(sample["tokens"], gold_of(kind, sample), guess, strict=False)
            if t != p
        ]
    wrong = [(t, p) for t, p in atoms(kind, sample, guess) if t != p]
    if kind == "spelling":
        return [f"{t} → {p}" for t, p in wrong]
    if kind == "generation":
        return [_cut(str(p)) for _, p in wrong]
    return (
        [f"+{p}" if t is None else f"−{t}" for t, p in wrong]
        if kind == "multi-label"
        else [str(p) for _, p in wrong]
    )


def words(kind: str, sample: Sample, index: int) -> tuple[str, str]:
    """A sample and its true class, to read."""
    gold = gold_of(kind, sample)
    if kind == "token":
        tagged = [f"{token}/{tag}" for token, tag in zip(sample["tokens"], gold, strict=True) if tag != "O"]
        return _cut(" ".join(sample["tokens"])), _cut(" ".join(tagged))
    if kind in ("image", "audio"):
        return str(sample.get("name") or f"test {'image' if kind == 'image' else 'sound'} {index + 1}"), str(
            gold
        )
    text = sample.get("source") or sample.get("text", "")
    text = f"{text} | {sample['text_b']}" if sample.get("text_b") else text
    return _cut(text), _cut(", ".join(gold) if isinstance(gold, list) else str(gold))


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else text[: LONGEST - 1].rstrip() + "…"


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
    """F1 of every class against the first contestant's, over the seeds both have: the ``most`` largest gains and losses of each.
    None of generated texts: no two are alike."""
    if seen.kind == "generation":
        return []
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
            for t, p in atoms(seen.kind, sample, guess):
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
        text, gold = words(seen.kind, seen.samples[i], i)
        taken = Counter(
            rival for run in runs for rival in rivals(seen.kind, seen.samples[i], run.predicted[i])
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
