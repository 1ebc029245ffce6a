"""Few classes on CPU: the head stores the logits, which is quicker, and nothing else changes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import sparring
from sparring import functional as SF
from sparring.heads import chunked, fused

DELTA = 0.3


def batch(n_rows: int = 40, n_features: int = 6, n_classes: int = 9) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    weight = torch.randn(n_classes, n_features)
    target = torch.randint(n_classes, (n_rows,))
    features = torch.randn(n_rows, n_features) + (torch.arange(n_rows) % 3)[:, None] * weight[target]
    return features, weight, torch.randn(n_classes), target


def gradients(loss: Tensor, *leaves: Tensor) -> tuple[Tensor, ...]:
    return torch.autograd.grad(loss, leaves)


@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_it_is_the_loss_on_the_logits(
    monkeypatch: pytest.MonkeyPatch, with_bias: bool, reduction: str
) -> None:
    features, weight, bias, target = (x.requires_grad_(x.is_floating_point()) for x in batch())
    leaves = (features, weight, bias) if with_bias else (features, weight)
    linear_bias = bias if with_bias else None
    monkeypatch.setattr(chunked, "solve", None)  # no chunks here
    loss = SF.linear_as_softmax_loss(
        features, weight, target, linear_bias=linear_bias, delta=DELTA, reduction=reduction
    )
    logits = F.linear(features, weight, linear_bias)
    expected = SF.as_softmax_loss(logits, target, delta=DELTA, reduction=reduction)
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(gradients(loss, *leaves), gradients(expected, *leaves))
    module = sparring.LinearASSoftmaxLoss(6, 9, delta=DELTA, reduction=reduction)
    with torch.no_grad():
        module.linear.weight.copy_(weight)
        module.linear.bias.copy_(bias)
    torch.testing.assert_close(
        module(features, target),
        SF.as_softmax_loss(F.linear(features, weight, bias), target, delta=DELTA, reduction=reduction),
    )


def test_nan_in_an_ignored_row_reaches_no_gradient() -> None:
    features, weight, bias, target = batch()
    features[3] = torch.nan
    target[3] = -100
    leaves = [x.requires_grad_() for x in (features, weight, bias)]
    loss = SF.linear_as_softmax_loss(features, weight, target, linear_bias=bias)
    assert all(grad.isfinite().all() for grad in gradients(loss, *leaves))


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"target": torch.full((40,), 9)}, ValueError, "target 9 is out of range for 9 classes"),
        ({"target": torch.full((40,), -7)}, ValueError, "target -7 is out of range"),
        ({"target": torch.zeros(39, dtype=torch.long)}, ValueError, r"target has shape \(39,\)"),
        ({"input": torch.zeros(40, 5)}, ValueError, r"expected \(…, 6\) features"),
        ({"linear_bias": torch.zeros(4)}, ValueError, "linear_bias has shape"),
        ({"impl": "cuda"}, ValueError, "impl must be one of"),
        ({"delta": 1.5}, ValueError, "delta must lie in"),
        ({"chunk_rows": 0}, ValueError, "chunk_rows"),
        ({"weight": torch.ones(4)}, ValueError, "one weight per class"),
    ],
)
def test_errors_are_those_of_the_checks(change: dict[str, Any], error: type[Exception], message: str) -> None:
    features, weight, bias, target = batch()
    arguments: dict[str, Any] = {"input": features, "linear_weight": weight, "target": target}
    arguments |= {"linear_bias": bias, **change}
    with pytest.raises(error, match=message):
        SF.linear_as_softmax_loss(**arguments)


def test_what_is_not_small_goes_by_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    solve = chunked.solve
    monkeypatch.setattr(chunked, "solve", lambda *args: calls.append(1) or solve(*args))
    features, weight, _, target = batch()
    SF.linear_as_softmax_loss(features, weight, target)
    assert not calls
    SF.linear_as_softmax_loss(features, weight, target, chunk_rows=8)
    monkeypatch.setattr(fused, "MAX_SIZE", 9 * 40 - 1)
    SF.linear_as_softmax_loss(features, weight, target)
    assert len(calls) == 2


def test_torch_func_and_forward_mode() -> None:
    features, weight, _, target = (x.double() if x.is_floating_point() else x for x in batch())

    def loss(x: Tensor) -> Tensor:
        return SF.linear_as_softmax_loss(x, weight, target, delta=DELTA)

    x = features.clone().requires_grad_()
    (expected,) = gradients(loss(x), x)
    torch.testing.assert_close(torch.func.grad(loss)(features), expected)
    torch.testing.assert_close(torch.func.jacfwd(loss)(features), expected)
    stacked = torch.vmap(loss)(torch.stack([features, 2 * features]))
    torch.testing.assert_close(stacked, torch.stack([loss(features), loss(2 * features)]))
