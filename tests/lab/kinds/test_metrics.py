"""Figures against the libraries they come from and against examples counted by hand."""

from __future__ import annotations

import random

import numpy as np
import pytest
from sacrebleu.metrics.bleu import BLEU
from seqeval.metrics import classification_report
from sklearn import metrics as sklearn_metrics

from sparring.lab.kinds import get_kind, list_kinds, metrics
from sparring.lab.kinds.token import has_spans
from tests.lab.data import samples

GOLD = ["where is the old city hall ?", "who wrote it ?", "what is the capital of france ?"]
GUESS = ["where is the city hall ?", "who wrote the book ?", "what is the name of the capital ?"]
LABELS = ["B-LOC", "B-ORG", "B-PER", "I-LOC", "I-PER", "O"]


def tag_figures(gold: list[list[str]], predicted: list[list[str]], labels: list[str]) -> dict[str, float]:
    rows = [{"tokens": tags, "tags": tags} for tags in gold]
    return get_kind("token").score(rows, predicted, labels)


def test_span_f1_is_seqevals() -> None:
    draw = random.Random(0)
    tags = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]
    gold = [[draw.choice(tags) for _ in range(12)] for _ in range(40)]
    guess = [[tag if draw.random() < 0.7 else draw.choice(tags) for tag in row] for row in gold]
    found = tag_figures(gold, guess, LABELS)
    report = classification_report(gold, guess, output_dict=True, zero_division=0)["micro avg"]
    assert found["f1"] == pytest.approx(report["f1-score"])
    assert (found["precision"], found["recall"]) == pytest.approx((report["precision"], report["recall"]))


def test_a_span_counts_only_whole_and_with_its_type() -> None:
    gold = [["B-PER", "I-PER", "O", "B-LOC"], ["O", "B-ORG"]]
    guess = [["B-PER", "O", "O", "B-LOC"], ["O", "B-LOC"]]  # 3 spans each, one right
    assert tag_figures(gold, guess, LABELS) == pytest.approx(
        {"f1": 1 / 3, "precision": 1 / 3, "recall": 1 / 3, "accuracy": 4 / 6}
    )


def test_plain_tags_have_no_spans() -> None:
    assert (
        tag_figures([["de", "fr"], ["fr", "it"]], [["de", "fr"], ["de", "it"]], ["de", "fr", "it"])[
            "accuracy"
        ]
        == 0.75
    )
    cut_off = tag_figures([["de", "fr"]], [["de", "O"]], ["de", "fr"])  # O is no class here
    assert cut_off == {"accuracy": 0.5, "macro_f1": 0.5}
    assert has_spans(["B-PER", "O"])
    assert not has_spans(["de", "fr"])
    assert not has_spans(["O", "de"])
    assert not has_spans(["O"])


def test_spans_are_the_tasks_matter_not_the_parts() -> None:
    """A part without any entity still has a span F1."""
    assert tag_figures([["O", "O"]], [["O", "B-PER"]], LABELS) == {
        "f1": 0.0,
        "precision": 0.0,
        "recall": 0.0,
        "accuracy": 0.5,
    }
    assert get_kind("token").metrics(LABELS)[0] == "f1"
    assert get_kind("token").metrics(["de", "fr"]) == ("accuracy", "macro_f1")


def test_bilou_is_read_as_iobes() -> None:
    """Two units of which one was found: precision 1, recall 1/2. A span of three, whole."""
    gold, guess = [["U-PER", "U-PER", "O"]], [["U-PER", "O", "O"]]
    assert tag_figures(gold, guess, ["U-PER", "O"])["f1"] == pytest.approx(2 / 3)
    whole = [["B-LOC", "I-LOC", "L-LOC"]]
    assert tag_figures(whole, whole, ["B-LOC", "I-LOC", "L-LOC", "O"])["f1"] == 1.0


def test_correction_of_a_hand_checked_example() -> None:
    """Five sentences: right, half right, wrongly changed, missed, rightly left alone.

    Changed: 1, 2, 3, so precision 1/3; with errors: 1, 2, 4, so recall 1/3. Sentence 2 has its two places found: detection 2/3.
    """
    source = ["我门走", "他门座下", "天气很好", "我和水", "你好吗"]
    target = ["我们走", "他们坐下", "天气很好", "我喝水", "你好吗"]
    predicted = ["我们走", "他们做下", "天汽很好", "我和水", "你好吗"]
    found = metrics.correction_metrics(source, target, predicted)
    assert found["correction_precision"] == found["correction_recall"] == pytest.approx(1 / 3)
    assert found["correction_f1"] == pytest.approx(1 / 3)
    assert found["detection_f1"] == pytest.approx(2 / 3)


def test_correction_where_nothing_is_changed_or_wrong() -> None:
    assert metrics.correction_metrics(["好"], ["好"], ["好"])["correction_f1"] == 0
    assert metrics.correction_metrics(["好"], ["好"], ["妈"])["correction_precision"] == 0


def test_precision_and_recall_differ_where_they_should() -> None:
    """One of two errors corrected, three sentences changed: 1/3 and 1/2, F1 2/5."""
    found = metrics.correction_metrics(["a", "b", "c", "d"], ["x", "y", "c", "d"], ["x", "b", "z", "z"])
    assert (
        found["correction_precision"],
        found["correction_recall"],
        found["correction_f1"],
    ) == pytest.approx((1 / 3, 1 / 2, 2 / 5))


def test_matthews_and_accuracy_are_sklearns() -> None:
    draw = np.random.default_rng(0)
    gold, guess = draw.integers(0, 2, 200).astype(str), draw.integers(0, 2, 200).astype(str)
    rows = [{"text": "", "label": label} for label in gold]
    found = get_kind("multi-class").score(rows, list(guess), ["0", "1"])
    assert found["matthews"] == pytest.approx(sklearn_metrics.matthews_corrcoef(gold, guess))
    assert found["accuracy"] == pytest.approx((gold == guess).mean())
    assert found["macro_f1"] == pytest.approx(sklearn_metrics.f1_score(gold, guess, average="macro"))


def test_multilabel_f1_by_hand() -> None:
    """Of 4 pairs 3 were found, with 1 too many: micro 6/8. By label: a 1, b 2/3, c 0, d (nowhere) 0."""
    found = metrics.multilabel_metrics(
        [["a", "b"], ["b"], ["a"]], [["a", "b"], ["c"], ["a"]], ["a", "b", "c", "d"]
    )
    assert found["micro_f1"] == pytest.approx(6 / 8)
    assert found["macro_f1"] == pytest.approx((1 + 2 / 3 + 0 + 0) / 4)


@pytest.mark.parametrize("kind", [kind.name for kind in list_kinds()])
def test_perfect_predictions_have_perfect_figures(kind: str) -> None:
    rows = samples(kind, 20)
    gold = get_kind(kind).targets(rows)
    labels = sorted({label for one in gold for label in ([one] if isinstance(one, str) else one)})
    found = get_kind(kind).score(rows, gold, labels)
    assert set(get_kind(kind).metrics(labels)) <= set(found)
    assert set(found.values()) == {1.0}


def test_pearson() -> None:
    assert metrics.pearson([3.0, 2.0, 1.0], [0.1, 0.2, 0.3]) == pytest.approx(-1)
    x, y = np.random.default_rng(0).normal(size=(2, 30))
    assert metrics.pearson(list(x), list(y)) == pytest.approx(np.corrcoef(x, y)[0, 1])
    assert metrics.pearson([1.0, 2.0], [1.0, 2.0]) is None
    assert metrics.pearson([1.0, 1.0, 1.0], [1.0, 2.0, 3.0]) is None
    assert metrics.pearson([1.0, float("nan"), 1.5], [1.0, 2.0, 3.0]) is None


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_bleu_is_sacrebleus_of_the_whole_corpus(n: int) -> None:
    expected = BLEU(max_ngram_order=n).corpus_score(GUESS, [GOLD]).score / 100
    assert 0 < expected < 1
    assert metrics.text_metrics(GOLD, GUESS)[f"bleu_{n}"] == pytest.approx(expected)


def test_bleu_and_rouge_by_hand() -> None:
    """Four words of five are right, and both are as long: BLEU-1 4/5; pairs 3/4, so BLEU-2 is √(4/5 · 3/4). ROUGE forgets the ending."""
    found = metrics.text_metrics(["one two three four five"], ["one two three four six"])
    assert found["bleu_1"] == pytest.approx(4 / 5)
    assert found["bleu_2"] == pytest.approx((4 / 5 * 3 / 4) ** 0.5)
    assert (found["rouge_1"], found["rouge_2"], found["rouge_l"]) == pytest.approx((4 / 5, 3 / 4, 4 / 5))
    assert metrics.text_metrics(["two old cities"], ["cities , old ones"])["rouge_l"] == pytest.approx(1 / 3)
    assert metrics.text_metrics(["the city"], [""])["bleu_4"] == 0
