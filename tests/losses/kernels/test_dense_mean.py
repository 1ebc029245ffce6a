"""The mean in one autograd node: as the mean of the rows, whatever comes before and after it."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import sparring
from sparring import functional as SF
from sparring.losses.kernels import dense_mean, multilabel_mean
from sparring.losses.kernels.rule import probability_rule
from tests.losses.kernels.test_margin_softmax import mixed

LOSSES = {
    "as-softmax": sparring.ASSoftmaxLoss(0.3),
    "delta-0": sparring.ASSoftmaxLoss(0.0),
    "as-logit": sparring.ASLogitLoss(2.0),
    "softmax": sparring.SoftmaxLoss(),
    "label-smoothing": sparring.LabelSmoothingLoss(0.2),
    "sparse-softmax": sparring.SparseSoftmaxLoss(3),
    "sparse-softmax-1": sparring.SparseSoftmaxLoss(1),
}
MULTILABEL = {
    "multilabel-softmax": sparring.MultilabelSoftmaxLoss(),
    "multilabel-as-softmax": sparring.MultilabelASSoftmaxLoss(0.3),
    "multilabel-delta-0": sparring.MultilabelASSoftmaxLoss(0.0),
    "multilabel-delta-1": sparring.MultilabelASSoftmaxLoss(1.0),
}
every_loss = pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES.keys())


def value_and_gradient(loss: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    return loss.detach(), torch.autograd.grad(loss, x)[0]


@every_loss
@pytest.mark.parametrize("ignored", [False, True])
@pytest.mark.parametrize(("n_rows", "n_classes"), [(1, 2), (256, 5), (70, 151)])
def test_it_is_the_mean_of_the_rows(loss: sparring.Loss, n_rows: int, n_classes: int, ignored: bool) -> None:
    logits, target = mixed(n_rows, n_classes)
    if not ignored:
        target = target.clamp(min=0)
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        x = logits.to(dtype).requires_grad_()
        result = value_and_gradient(loss(x, target), x)
        expected = value_and_gradient(loss.rows(x, target).mean().to(dtype), x)
        torch.testing.assert_close(result, expected)


def label_rows(n_rows: int, n_classes: int) -> tuple[Tensor, Tensor]:
    """Rows of all kinds: with one positive label, with several and with none, some of them won."""
    logits, target = mixed(n_rows, n_classes)
    target = target.clamp(min=0)
    labels = torch.zeros_like(logits).scatter_(1, target[:, None], 1)
    labels[1::4] = (torch.arange(n_classes) % 3 == 0).to(labels.dtype)
    labels[2::4] = 0
    return logits, labels


@pytest.mark.parametrize("loss", MULTILABEL.values(), ids=MULTILABEL.keys())
@pytest.mark.parametrize(("n_rows", "n_classes"), [(4, 2), (256, 5), (70, 151)])
def test_multilabel_mean_is_that_of_the_rows(
    loss: sparring.Loss, n_rows: int, n_classes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = []
    compute = multilabel_mean.mean_of
    monkeypatch.setattr(multilabel_mean, "mean_of", lambda *a, **k: nodes.append(1) or compute(*a, **k))
    logits, labels = label_rows(n_rows, n_classes)
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        for kind in (dtype, torch.bool, torch.int8):
            x = logits.to(dtype).requires_grad_()
            result = value_and_gradient(loss(x, labels.to(kind)), x)
            expected = value_and_gradient(loss.rows(x, labels.to(kind)).mean().to(dtype), x)
            torch.testing.assert_close(result, expected)
    assert len(nodes) == 9


@pytest.mark.parametrize("loss", MULTILABEL.values(), ids=MULTILABEL.keys())
def test_multilabel_mean_at_the_edges(loss: sparring.Loss) -> None:
    logits, labels = label_rows(8, 5)
    edges = [labels.clone() for _ in range(3)]
    edges[0][0] = 1  # no negative label
    edges[1][3, 2] = -100
    for value in (torch.nan, torch.inf, -torch.inf, 200.0, -200.0):
        for index in (0, 3):
            for target in edges:
                x = logits.clone()
                x[0, index] = value
                x.requires_grad_()
                result = value_and_gradient(loss(x, target), x)
                expected = value_and_gradient(loss.rows(x, target).mean(), x)
                torch.testing.assert_close(result, expected, equal_nan=True)
    for wrong in (0.5, torch.inf, 2.0):
        with pytest.raises(ValueError, match="expected labels 0, 1"):
            loss(logits, labels.index_fill(1, torch.tensor(1), wrong))


def test_multilabel_margins_that_are_met_exactly_stay() -> None:
    p = torch.tensor([[0.5, 0.25, 0.25], [0.75, 0.125, 0.125]])
    labels = torch.tensor([[1, 0, 0], [1, 0, 0]])
    for delta, n_won in ((0.25, 1), (0.2499, 2), (0.625, 0)):
        loss = sparring.MultilabelASSoftmaxLoss(delta)
        x = p.log().requires_grad_()
        assert int(loss.rows(x, labels).won.sum()) == n_won
        assert int(torch.autograd.grad(loss(x, labels), x)[0].eq(0).all(1).sum()) == n_won


def test_the_short_way_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the tests above would compare the rows with themselves."""
    calls = []
    real = dense_mean.dense_sums
    monkeypatch.setattr(dense_mean, "dense_sums", lambda *args: calls.append(1) or real(*args))
    logits, target = mixed(40, 5)
    for labels in (target, target.clamp(min=0)):
        LOSSES["as-softmax"](logits.requires_grad_(), labels)
    assert len(calls) == 2


def test_out_of_range_numbers_go_by_rows() -> None:
    rule = probability_rule(0.3)
    target = torch.zeros(3, dtype=torch.long)
    for n_classes in (3, 60):
        for value in (torch.nan, torch.inf, 1e4):
            logits = torch.zeros(3, n_classes)
            logits[1, 1] = value
            assert dense_mean.dense_mean(logits, target, rule, -100) is None
            x = logits.requires_grad_()
            result = value_and_gradient(LOSSES["as-softmax"](x, target), x)
            expected = value_and_gradient(LOSSES["as-softmax"].rows(x, target).mean(), x)
            torch.testing.assert_close(result, expected, equal_nan=True)


def test_backward_twice_and_of_higher_order() -> None:
    logits, target = mixed(12, 4, torch.float64)
    x = logits.requires_grad_()
    loss = LOSSES["as-softmax"](x, target)
    first = torch.autograd.grad(loss, x, retain_graph=True)[0].clone()
    second = torch.autograd.grad(3 * loss, x, retain_graph=True)[0]
    torch.testing.assert_close(second, 3 * first)
    (batched,) = torch.autograd.grad(loss, x, torch.tensor([1.0, 2.0]).double(), is_grads_batched=True)
    torch.testing.assert_close(batched, torch.stack([first, 2 * first]))
    assert torch.autograd.gradgradcheck(lambda y: LOSSES["as-softmax"](y, target), x)


@pytest.mark.parametrize("name", ["sparse-softmax", *MULTILABEL])
def test_second_derivatives_of_other_losses(name: str) -> None:
    logits, labels = label_rows(8, 4)
    if name in LOSSES:
        labels = labels.argmax(1)
    loss = (LOSSES | MULTILABEL)[name]
    assert torch.autograd.gradgradcheck(lambda y: loss(y, labels), logits.double().requires_grad_())


@pytest.mark.parametrize("upstream", [torch.nan, torch.inf])
def test_won_and_ignored_rows_stay_zero(upstream: float) -> None:
    logits = torch.tensor([[9.0, 0, 0], [0.1, 0, 0], [0, 0, 0]], requires_grad=True)
    target = torch.tensor([0, 0, -100])
    SF.as_softmax_loss(logits, target, delta=0.3).backward(torch.tensor(upstream))
    assert logits.grad is not None
    assert logits.grad[0].eq(0).all()
    assert logits.grad[2].eq(0).all()
    assert not logits.grad[1].isfinite().all()


def test_delta_1_is_cross_entropy_to_the_bit() -> None:
    logits, target = mixed(300, 7)
    target = target.clamp(min=0)
    x = logits.requires_grad_()
    ours = value_and_gradient(SF.as_softmax_loss(x, target, delta=1.0), x)
    theirs = value_and_gradient(F.cross_entropy(x, target), x)
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


@every_loss
def test_a_wrong_target_is_refused(loss: sparring.Loss) -> None:
    for wrong in (5, -3):
        with pytest.raises(ValueError, match=f"target {wrong} is out of range for 5 classes"):
            loss(torch.randn(4, 5), torch.tensor([0, 1, wrong, 2]))


def test_row_losses_may_be_changed_in_place() -> None:
    logits, target = mixed(40, 5)
    factors = torch.linspace(0, 1, 40)
    results = []
    for in_place in (True, False):
        x = logits.clone().requires_grad_()
        losses = SF.as_softmax_loss(x, target, reduction="none")
        losses = losses.mul_(factors) if in_place else losses * factors
        results.append(value_and_gradient(losses.sum(), x))
    torch.testing.assert_close(*results)
