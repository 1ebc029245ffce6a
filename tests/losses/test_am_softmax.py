"""Eq. 21, and the original cosine form against pytorch-metric-learning's CosFace."""

from __future__ import annotations

import pytest
import torch
from pytorch_metric_learning.losses import CosFaceLoss

import sparring


def test_cosine_form_is_cosface() -> None:
    features, target = torch.randn(20, 16, requires_grad=True), torch.randint(7, (20,))
    head = sparring.CosineLinear(16, 7)
    cosface = CosFaceLoss(num_classes=7, embedding_size=16, margin=0.35, scale=64)
    cosface.W.data = head.weight.data.t().clone()
    value = sparring.AMSoftmaxLoss(scale=64, margin=0.35)(head(features), target)
    expected = cosface(features, target)
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(*(torch.autograd.grad(x, features)[0] for x in (value, expected)))


def test_no_margin_is_softmax_at_a_temperature() -> None:
    logits, target = torch.randn(20, 7), torch.randint(7, (20,))
    torch.testing.assert_close(
        sparring.AMSoftmaxLoss(scale=4, margin=0)(logits, target), sparring.TSoftmaxLoss(0.25)(logits, target)
    )


def test_cosine_linear() -> None:
    head = sparring.CosineLinear(16, 7, dtype=torch.float64)
    cosines = head(torch.randn(2, 3, 16, dtype=torch.float64) * 100)
    assert cosines.shape == (2, 3, 7)
    assert cosines.abs().max() <= 1 + 1e-12
    assert "in_features=16, num_classes=7" in repr(head)
    with pytest.raises(ValueError, match="num_classes must be a whole number of at least 1, got 0"):
        sparring.CosineLinear(16, 0)
