"""Figures of quality, from libraries people trust (scikit-learn, seqeval, scipy, sacrebleu, rouge-score); and sentence-level correction."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any

from seqeval.metrics import f1_score as span_f1
from seqeval.metrics import precision_score as span_precision
from seqeval.metrics import recall_score as span_recall
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef
from sklearn.preprocessing import MultiLabelBinarizer

from sparring.lab.task import Sample, UserError, has_spans

TARGETS = {
    "token": "tags",
    "spelling": "target",
    "generation": "target",
    "multi-label": "labels",
}  # "label" everywhere else
METRICS = {
    "multi-class": ("accuracy", "macro_f1", "matthews"),
    "pair": ("accuracy", "macro_f1", "matthews"),
    "image": ("accuracy", "macro_f1", "matthews"),
    "audio": ("accuracy", "macro_f1", "matthews"),
    "token": ("f1", "precision", "recall", "accuracy"),  # accuracy and macro_f1 where tags mark no spans
    "spelling": ("correction_f1", "correction_precision", "correction_recall", "detection_f1"),
    "multi-label": ("micro_f1", "macro_f1"),
    "generation": ("bleu_4", "bleu_3", "bleu_2", "bleu_1", "rouge_l", "rouge_1", "rouge_2"),
}


def metrics_of(kind: str, labels: Sequence[str]) -> tuple[str, ...]:
    """The figures a task has."""
    return ("accuracy", "macro_f1") if kind == "token" and not has_spans(labels) else METRICS[kind]


def score(
    kind: str, samples: Sequence[Sample], predicted: Sequence[Any], labels: Sequence[str]
) -> dict[str, float]:
    """All figures of a kind, each between 0 and 1 (Matthews: -1 and 1)."""
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # scikit-learn's and seqeval's, for classes that are not there or that nobody predicted
        return _score(kind, samples, predicted, labels)


def _score(
    kind: str, samples: Sequence[Sample], predicted: Sequence[Any], labels: Sequence[str]
) -> dict[str, float]:
    gold = [sample[TARGETS.get(kind, "label")] for sample in samples]
    if kind == "token":
        return tag_figures(gold, predicted, labels)
    if kind == "spelling":
        return correction_figures([sample["source"] for sample in samples], gold, predicted)
    if kind == "multi-label":
        return label_figures(gold, predicted, labels)
    if kind == "generation":
        return text_figures(gold, predicted)
    macro = f1_score(gold, predicted, average="macro", zero_division=0)
    return {
        "accuracy": float(accuracy_score(gold, predicted)),
        "macro_f1": float(macro),
        "matthews": float(matthews_corrcoef(gold, predicted)),
    }


def tag_figures(
    gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]], labels: Sequence[str]
) -> dict[str, float]:
    """Span F1 where the task's tags mark spans (seqeval, as conlleval counts), else macro F1; per-token accuracy always."""
    flat, guessed = [tag for tags in gold for tag in tags], [tag for tags in predicted for tag in tags]
    accuracy = float(accuracy_score(flat, guessed))
    if not has_spans(labels):
        return {
            "accuracy": accuracy,
            "macro_f1": float(f1_score(flat, guessed, labels=labels, average="macro", zero_division=0)),
        }
    rows = [[[_iobes(tag) for tag in tags] for tags in part] for part in (gold, predicted)]
    return {
        **{name: float(of(*rows, zero_division=0)) for name, of in SPAN_FIGURES.items()},
        "accuracy": accuracy,
    }


def _iobes(tag: str) -> str:
    """BILOU's last and unit are IOBES's end and single, which seqeval knows."""
    return {"L": "E", "U": "S"}.get(tag[0], tag[0]) + tag[1:]


SPAN_FIGURES = {"f1": span_f1, "precision": span_precision, "recall": span_recall}


def label_figures(
    gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]], labels: Sequence[str]
) -> dict[str, float]:
    table = MultiLabelBinarizer(classes=list(labels))
    truth, guess = table.fit_transform(gold), table.transform(predicted)
    return {
        f"{average}_f1": float(f1_score(truth, guess, average=average, zero_division=0))
        for average in ("micro", "macro")
    }


def correction_figures(
    source: Sequence[str], target: Sequence[str], predicted: Sequence[str]
) -> dict[str, float]:
    """Spelling, by sentences (Cheng et al. 2020): of those that were changed, how many came out right; of those with errors, how many.

    Correction wants the right sentence, detection only the right places.
    """
    wrong = [s != t for s, t in zip(source, target, strict=True)]
    changed = [s != p for s, p in zip(source, predicted, strict=True)]
    right = [e and p == t for e, p, t in zip(wrong, predicted, target, strict=True)]
    found = [
        e and _places(s, t) == _places(s, p)
        for e, s, t, p in zip(wrong, source, target, predicted, strict=True)
    ]
    figures: dict[str, float] = {}
    for name, hits in (("correction", right), ("detection", found)):
        precision, recall = sum(hits) / max(sum(changed), 1), sum(hits) / max(sum(wrong), 1)
        f1 = 2 * precision * recall / (precision + recall) if precision + recall else 0.0
        figures |= {f"{name}_f1": f1, f"{name}_precision": precision, f"{name}_recall": recall}
    return figures


def _places(one: str, other: str) -> list[int]:
    return [i for i, (a, b) in enumerate(zip(one, other, strict=True)) if a != b]


def text_figures(gold: Sequence[str], predicted: Sequence[str]) -> dict[str, float]:
    """BLEU-1 to BLEU-4 of the corpus (sacrebleu with its own tokens and smoothing; BLEU-n counts runs of up to n words), and the mean F1 of
    ROUGE-1, -2 and -L (rouge-score, words by their stems)."""
    try:
        from rouge_score.rouge_scorer import RougeScorer
        from sacrebleu.metrics.bleu import BLEU
    except ImportError:
        raise UserError(
            "BLEU and ROUGE need sacrebleu and rouge-score: pip install sacrebleu rouge-score"
        ) from None
    found = BLEU().corpus_score(list(predicted), [list(gold)])
    same = {
        "sys_len": found.sys_len,
        "ref_len": found.ref_len,
        "smooth_method": "exp",
    }  # as it came to BLEU-4
    runs = {
        n: BLEU.compute_bleu(found.counts[:n], found.totals[:n], **same, max_ngram_order=n).score / 100
        for n in (4, 3, 2, 1)
    }
    scorer = RougeScorer(["rouge1", "rouge2", "rougeL"], use_stemmer=True)
    rows = [scorer.score(*pair) for pair in zip(gold, predicted, strict=True)]
    means = {
        name: sum(row[f"rouge{name}"].fmeasure for row in rows) / max(len(rows), 1)
        for name in ("L", "1", "2")
    }
    return {
        **{f"bleu_{n}": min(float(value), 1.0) for n, value in runs.items()},
        **{f"rouge_{n.lower()}": float(v) for n, v in means.items()},
    }


def pearson(x: Sequence[float], y: Sequence[float]) -> float | None:
    """Correlation of dev loss and metric over a run (Table 4); None where it is not defined: fewer than three points, or a constant."""
    if len(x) < 3 or not all(map(math.isfinite, [*x, *y])) or min(max(x) - min(x), max(y) - min(y)) < 1e-12:
        return None
    from scipy.stats import pearsonr

    return float(pearsonr(x, y).statistic)
