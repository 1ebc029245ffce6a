"""Metrics, from libraries that people trust: scikit-learn, seqeval, scipy, sacrebleu and rouge-score.

All lie between 0 and 1, Matthews' correlation between -1 and 1. Libraries are imported when a metric is
computed.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from sparring.lab.errors import UserError


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence warnings about classes that do not occur or are never predicted."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def label_metrics(targets: Sequence[str], predicted: Sequence[str]) -> dict[str, float]:
    """Accuracy, macro F1 and Matthews' correlation of one label per sample."""
    from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef

    with _quiet():
        return {
            "accuracy": float(accuracy_score(targets, predicted)),
            "macro_f1": float(f1_score(targets, predicted, average="macro", zero_division=0)),
            "matthews": float(matthews_corrcoef(targets, predicted)),
        }


def tag_metrics(
    targets: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]], labels: Sequence[str]
) -> dict[str, float]:
    """Accuracy and macro F1 over all tokens."""
    from sklearn.metrics import accuracy_score, f1_score

    flat_targets = [tag for tags in targets for tag in tags]
    flat_predicted = [tag for tags in predicted for tag in tags]
    with _quiet():
        macro = f1_score(flat_targets, flat_predicted, labels=labels, average="macro", zero_division=0)
        return {"accuracy": float(accuracy_score(flat_targets, flat_predicted)), "macro_f1": float(macro)}


def span_metrics(targets: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> dict[str, float]:
    """F1, precision and recall of spans (seqeval, as conlleval counts), and accuracy over all tokens."""
    from seqeval.metrics import accuracy_score, f1_score, precision_score, recall_score

    spans = {"f1": f1_score, "precision": precision_score, "recall": recall_score}
    rows = [[[_iobes(tag) for tag in tags] for tags in split] for split in (targets, predicted)]
    with _quiet():
        scores = {name: float(function(*rows, zero_division=0)) for name, function in spans.items()}
        return {**scores, "accuracy": float(accuracy_score(targets, predicted))}


def _iobes(tag: str) -> str:
    """BILOU's last and unit are IOBES's end and single, which seqeval knows."""
    return {"L": "E", "U": "S"}.get(tag[0], tag[0]) + tag[1:]


def multilabel_metrics(
    targets: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]], labels: Sequence[str]
) -> dict[str, float]:
    """Micro and macro F1 of any number of labels per sample."""
    from sklearn.metrics import f1_score
    from sklearn.preprocessing import MultiLabelBinarizer

    binarizer = MultiLabelBinarizer(classes=list(labels))
    with _quiet():
        rows = binarizer.fit_transform(targets), binarizer.transform(predicted)
        return {
            f"{average}_f1": float(f1_score(*rows, average=average, zero_division=0))
            for average in ("micro", "macro")
        }


def correction_metrics(
    sources: Sequence[str], targets: Sequence[str], predicted: Sequence[str]
) -> dict[str, float]:
    """Sentence-level spelling correction and detection (Cheng et al. 2020).

    Precision is over the sentences that were changed, recall over those with errors. Correction requires
    the right sentence, detection only the right positions.
    """
    rows = list(zip(sources, targets, predicted, strict=True))
    n_changed = sum(source != prediction for source, _, prediction in rows)
    wrong = [row for row in rows if row[0] != row[1]]
    n_corrected = sum(prediction == target for _, target, prediction in wrong)
    n_detected = sum(
        _changes(source, target) == _changes(source, prediction) for source, target, prediction in wrong
    )
    metrics: dict[str, float] = {}
    for name, n_right in (("correction", n_corrected), ("detection", n_detected)):
        precision = n_right / max(n_changed, 1)
        recall = n_right / max(len(wrong), 1)
        f1 = 2 * precision * recall / (precision + recall) if precision + recall else 0.0
        metrics |= {f"{name}_f1": f1, f"{name}_precision": precision, f"{name}_recall": recall}
    return metrics


def _changes(before: str, after: str) -> list[int]:
    """Positions of the characters that differ."""
    return [i for i, (old, new) in enumerate(zip(before, after, strict=True)) if old != new]


def text_metrics(targets: Sequence[str], predicted: Sequence[str]) -> dict[str, float]:
    """Corpus BLEU-1 to BLEU-4 (sacrebleu, with its tokenization and smoothing), and mean F1 of ROUGE-1, -2
    and -L (rouge-score, with stemming)."""
    try:
        from rouge_score.rouge_scorer import RougeScorer
        from sacrebleu.metrics.bleu import BLEU
    except ImportError:
        raise UserError(
            "BLEU and ROUGE need sacrebleu and rouge-score: pip install sacrebleu rouge-score"
        ) from None
    corpus = BLEU().corpus_score(list(predicted), [list(targets)])
    settings = {"sys_len": corpus.sys_len, "ref_len": corpus.ref_len, "smooth_method": "exp"}
    metrics: dict[str, float] = {}
    for n in (4, 3, 2, 1):
        bleu = BLEU.compute_bleu(corpus.counts[:n], corpus.totals[:n], **settings, max_ngram_order=n)
        metrics[f"bleu_{n}"] = min(float(bleu.score / 100), 1.0)
    scorer = RougeScorer(["rouge1", "rouge2", "rougeL"], use_stemmer=True)
    rows = [scorer.score(*pair) for pair in zip(targets, predicted, strict=True)]
    for n_gram in ("L", "1", "2"):
        total = sum(row[f"rouge{n_gram}"].fmeasure for row in rows)
        metrics[f"rouge_{n_gram.lower()}"] = float(total / max(len(rows), 1))
    return metrics


def pearson(x: Sequence[float], y: Sequence[float]) -> float | None:
    """Pearson correlation; None for fewer than three points, a constant, or values that are not finite."""
    if len(x) < 3 or not all(map(math.isfinite, [*x, *y])) or min(max(x) - min(x), max(y) - min(y)) < 1e-12:
        return None
    from scipy.stats import pearsonr

    return float(pearsonr(x, y).statistic)
