from __future__ import annotations

import pytest
import torch

import sparring
from tests import reference


def test_margin_decides_which_rows_are_won() -> None:
    logits, target = torch.randn(60, 7) * 2, torch.randint(7, (60,))
    margin = sparring.margins(logits, target)
    for o, t, m in zip(logits.tolist(), target.tolist(), margin.tolist(), strict=True):
        p = reference.probabilities(o)
        assert m == pytest.approx(p[t] - max(x for i, x in enumerate(p) if i != t), abs=1e-6)
    assert torch.equal(margin > 0, logits.argmax(1) == target)
    assert torch.equal(margin > 0.3, sparring.ASSoftmaxLoss(0.3).rows(logits, target).won)


def test_kept_classes_are_the_twins() -> None:
    logits, target = torch.randn(60, 7), torch.randint(7, (60,))
    target[4] = -100
    n_kept = sparring.kept_classes(logits, target, 0.1)
    for o, t, k in zip(logits.tolist(), target.tolist(), n_kept.tolist(), strict=True):
        assert k == (0 if t == -100 else len(reference.as_softmax_kept(o, t, 0.1)))
    assert torch.equal(n_kept == 1, sparring.ASSoftmaxLoss(0.1).rows(logits, target).won)


def test_multilabel() -> None:
    logits, target = torch.randn(60, 7) * 2, (torch.rand(60, 7) < 0.3).long()
    target[0], target[1], target[2] = 0, 1, -100
    target[3, 1] = -100
    margin, n_kept = sparring.margins(logits, target), sparring.kept_classes(logits, target, 0.1)
    rows = sparring.MultilabelASSoftmaxLoss(0.1).rows(logits, target)
    assert margin[:3].isnan().all(), "no margin without a positive or without a negative"
    assert torch.equal(rows.won, margin > 0.1)
    for o, labels, k in zip(logits.tolist(), target.tolist(), n_kept.tolist(), strict=True):
        assert k == sum(map(len, reference.multilabel_as_softmax_kept(o, labels, 0.1)))


def test_shapes() -> None:
    images, target = torch.randn(2, 5, 3, 4), torch.randint(5, (2, 3, 4))
    assert sparring.margins(images, target).shape == sparring.kept_classes(images, target).shape == (2, 3, 4)
    assert (
        sparring.margins(torch.randn(5), torch.tensor(2)).shape
        == sparring.kept_classes(torch.randn(5), torch.tensor(2)).shape
        == ()
    )
    ignored = sparring.margins(torch.randn(2, 5), torch.tensor([1, -100]))
    assert ignored.isnan().tolist() == [False, True]
    assert not sparring.margins(torch.randn(2, 5, requires_grad=True), torch.tensor([1, 2])).requires_grad


def test_nan_and_overflow_are_no_margin_and_keep_every_class() -> None:
    logits = torch.tensor(
        [[5.0, 0.0, 0.0], [torch.nan, 0.0, 0.0], [torch.inf, 0.0, 0.0], [5.0, -torch.inf, 0.0]]
    )
    target = torch.zeros(4, dtype=torch.long)
    assert sparring.margins(logits, target).isnan().tolist() == [False, True, True, False]
    assert sparring.kept_classes(logits, target).tolist() == [1, 3, 3, 1]
