"""NaN and infinities: an overflow never passes for a won row, and an ignored row affects nothing."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import sparring
from tests.cases import CASES, IDS, NAMES, SETTINGS, batch, is_multilabel, largest, make

every_case = pytest.mark.parametrize(("name", "settings"), CASES, ids=IDS)
NAN, INF = torch.nan, torch.inf


def run(loss: sparring.Loss, logits: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    x = logits.clone().requires_grad_()
    value = loss(x, target)
    (grad,) = torch.autograd.grad(value.sum(), x)
    return value.detach(), grad


@every_case
@pytest.mark.parametrize("poison", [NAN, INF], ids=["nan", "inf"])
def test_nan_and_overflow_are_loud_wherever_they_stand(
    name: str, settings: dict[str, Any], poison: float
) -> None:
    logits, target = batch(name, n_rows=40)
    loss = make(name, settings, reduction="none")
    clean_value, clean_grad = run(loss, logits, target)
    for row, column in ((0, 0), (3, 4), (4, 1), (5, 6), (7, int(target[7]) if target.dim() == 1 else 0)):
        if is_multilabel(name) and target[row, column] == -100:
            continue
        bad = logits.clone()
        bad[row, column] = poison
        rows = loss.rows(bad, target)
        assert rows.active[row]
        assert rows.value[row].isnan()
        value, grad = run(loss, bad, target)
        assert grad[row].isnan().any()
        others = torch.arange(40) != row
        torch.testing.assert_close(value[others], clean_value[others])
        torch.testing.assert_close(grad[others], clean_grad[others])


@every_case
@pytest.mark.parametrize("poison", [NAN, INF, -INF], ids=["nan", "inf", "-inf"])
def test_a_single_class_is_no_exception(name: str, settings: dict[str, Any], poison: float) -> None:
    target = torch.ones(1, 1) if is_multilabel(name) else torch.zeros(1, dtype=torch.long)
    rows = make(name, settings).rows(torch.tensor([[poison]]), target)
    assert rows.value.isnan()
    assert rows.active


def test_sparse_softmax_with_k_1_and_nan_at_the_target() -> None:
    logits = torch.tensor([[NAN, 0.0, 1.0], [2.0, 0.0, 1.0]])
    rows = sparring.SparseSoftmaxLoss(k=1).rows(logits, torch.tensor([0, 0]))
    assert rows.value[0].isnan()
    assert rows.won.tolist() == [False, True]


@pytest.mark.parametrize("name", ["softmax", "as-softmax", "as-logit", "sparse-softmax"])
def test_infinities_are_those_of_cross_entropy(name: str) -> None:
    settings = {
        "softmax": {},
        "as-softmax": {"delta": 1.0},
        "as-logit": {"margin": INF},
        "sparse-softmax": {"k": 3},
    }
    values = torch.tensor([0.0, 2.0, INF, -INF, NAN])
    logits = torch.cartesian_prod(values, values, values).repeat_interleave(3, 0)
    target = torch.arange(3).repeat(len(values) ** 3)
    value, grad = run(make(name, settings[name], reduction="none"), logits, target)
    x = logits.clone().requires_grad_()
    expected = F.cross_entropy(x, target, reduction="none")
    (expected_grad,) = torch.autograd.grad(expected.sum(), x)
    torch.testing.assert_close(value, expected.detach(), equal_nan=True)
    torch.testing.assert_close(grad, expected_grad, equal_nan=True)


@every_case
def test_a_masked_class_has_no_effect(name: str, settings: dict[str, Any]) -> None:
    if name == "label-smoothing" and settings["epsilon"] > 0:
        pytest.skip("gives every class its share of the label: the loss is inf, as in torch")
    logits, target = batch(name, n_rows=40)
    if is_multilabel(name):
        target[:, 3] = 0
        target[2] = -100
    else:
        target[target == 3] = 0
    masked = logits.clone()
    masked[:, 3] = -INF
    loss = make(name, settings, reduction="none")
    value, grad = run(loss, masked, target)
    assert (grad[:, 3] == 0).all()
    masked[:, 3] = -1e4
    far_value, far_grad = run(loss, masked, target)
    torch.testing.assert_close(value, far_value)
    torch.testing.assert_close(grad, far_grad)


def test_label_smoothing_with_a_masked_class_is_torchs() -> None:
    logits = torch.tensor([[1.0, -INF, 0.5]])
    target = torch.tensor([0])
    value, grad = run(sparring.LabelSmoothingLoss(0.2), logits, target)
    x = logits.clone().requires_grad_()
    expected = F.cross_entropy(x, target, label_smoothing=0.3)  # torch spreads ε over all three classes
    assert value == expected == INF
    torch.testing.assert_close(grad, torch.autograd.grad(expected, x)[0])


@every_case
def test_a_masked_target_costs_the_most(name: str, settings: dict[str, Any]) -> None:
    if is_multilabel(name):
        value, _ = run(make(name, settings), torch.tensor([[-INF, 0.0]]), torch.tensor([[1, 0]]))
        assert value.isnan()
        return
    value, grad = run(make(name, settings), torch.tensor([[-INF, 0.0, 1.0]]), torch.tensor([0]))
    expected = 0.0 if "concede" in settings else largest(name, settings)
    torch.testing.assert_close(value.abs(), torch.tensor(expected))
    assert grad.isfinite().all()
    assert grad[0, 0] < 0 if value == INF else not grad.any(), (
        "a bounded loss gives such a row up, and so does conceding"
    )


@every_case
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_an_ignored_row_reaches_nothing(name: str, settings: dict[str, Any], reduction: str) -> None:
    logits, target = batch(name, n_rows=8, n_classes=5, dtype=torch.float64)
    loss = make(name, settings, reduction=reduction)

    def f(x: Tensor) -> Tensor:
        return loss(x, target)

    def derivatives(logits: Tensor) -> list[Tensor]:
        x = logits.clone().requires_grad_()
        value = f(x)
        (grad,) = torch.autograd.grad(value.sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(grad.square().sum(), x)
        tangents = torch.ones_like(logits)
        _, forward = torch.func.jvp(f, (logits,), (tangents,))
        (batched,) = torch.autograd.grad(f(x).sum(), x, torch.ones(2), is_grads_batched=True)
        assert not grad[2].any()
        assert not second[2].any()
        assert not batched[:, 2].any()
        return [value, grad, second, forward, batched, torch.func.jacfwd(f)(logits)]

    expected = derivatives(logits)
    for poison in (torch.tensor([NAN, INF, -INF, 0.0, 1.0]), torch.tensor([INF, -INF, 0.0, 0.0, 0.0])):
        logits[2] = poison
        for derivative, clean in zip(derivatives(logits), expected, strict=True):
            torch.testing.assert_close(derivative, clean)


@pytest.mark.parametrize("name", [name for name in NAMES if is_multilabel(name)])
def test_an_ignored_label_of_a_valid_row_reaches_nothing(name: str) -> None:
    logits, target = batch(name)
    settings = SETTINGS[name][0]
    expected = run(make(name, settings), logits, target)
    assert target[3, 0] == -100
    logits[3, 0] = NAN
    torch.testing.assert_close(run(make(name, settings), logits, target), expected)


@pytest.mark.parametrize("weight", [NAN, INF])
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_the_weight_of_another_class_does_not_reach_an_ignored_row(weight: float, reduction: str) -> None:
    weights = torch.tensor([weight, 1.0, 2.0])  # ignored rows are looked up as class 0
    logits, target = torch.randn(4, 3), torch.tensor([1, -100, 2, 1])
    loss = sparring.ASSoftmaxLoss(delta=1.0, weight=weights, reduction=reduction)
    reference = torch.nn.CrossEntropyLoss(weights, reduction=reduction)
    torch.testing.assert_close(loss(logits, target), reference(logits, target))


@every_case
def test_an_upstream_nan_does_not_reach_a_row_without_a_loss(name: str, settings: dict[str, Any]) -> None:
    logits, target = batch(name, n_rows=40)
    x = logits.requires_grad_()
    loss = make(name, settings, reduction="none")
    inactive = ~loss.rows(logits, target).active
    upstream = torch.ones(40).masked_fill(inactive, NAN)
    (grad,) = torch.autograd.grad(loss(x, target), x, upstream)
    assert not grad[inactive].any()
    assert grad.isfinite().all()
