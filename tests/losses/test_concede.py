"""Conceding: rows whose target is too far behind cost nothing, in every form of the losses."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch._dynamo.testing import CompileCounter

import sparring
from sparring import LinearDelta, LinearLoss, RowLosses, WarmupConcede, make_loss
from sparring.losses.kernels import margin_softmax_chunks
from sparring.losses.kernels.rule import SOFTMAX_RULE, logit_rule, probability_rule
from tests import reference
from tests.cases import batch

LOSSES = ["softmax", "as-softmax", "as-logit", "multilabel-softmax", "multilabel-as-softmax"]
CLASS_LOSSES = LOSSES[:3]
every_loss = pytest.mark.parametrize("name", LOSSES)
class_loss = pytest.mark.parametrize("name", CLASS_LOSSES)


def rows_and_gradient(loss: Any, logits: Tensor, target: Tensor) -> tuple[RowLosses, Tensor]:
    logits = logits.clone().requires_grad_()
    rows = loss.rows(logits, target)
    return rows, torch.autograd.grad(rows.sum(), logits)[0]


@every_loss
@pytest.mark.parametrize("concede", [None, 1.0])
def test_without_it_nothing_changes(name: str, concede: float | None) -> None:
    logits, target = batch(name, n_rows=64)
    plain, expected = rows_and_gradient(make_loss(name), logits, target)
    rows, gradient = rows_and_gradient(make_loss(name, concede=concede), logits, target)
    assert torch.equal(rows.value, plain.value)
    assert torch.equal(gradient, expected)
    assert rows.conceded is None


@every_loss
def test_a_row_is_active_won_or_conceded(name: str) -> None:
    logits, target = batch(name, n_rows=200)
    plain = make_loss(name).rows(logits, target)
    rows, gradient = rows_and_gradient(make_loss(name, concede=0.2), logits, target)
    assert rows.conceded is not None
    assert rows.conceded.any()
    assert rows.active.any()
    assert torch.equal(rows.active | rows.won | rows.conceded, rows.valid)
    assert not ((rows.active & rows.conceded) | (rows.active & rows.won) | (rows.won & rows.conceded)).any()
    assert torch.equal(rows.won, plain.won), "conceding takes no win away and adds none"
    assert not gradient[~rows.active].any()
    assert not rows.value[~rows.active].any()
    assert torch.equal(rows.value[rows.active], plain.value[rows.active])
    torch.testing.assert_close(rows.mean(), rows.sum() / rows.valid.sum(), msg="conceded rows count")


@class_loss
@settings(max_examples=60, deadline=None)
@given(o=st.lists(st.integers(-4, 4), min_size=2, max_size=6), concede=st.sampled_from([0.0, 0.25, 0.5]))
def test_twin(name: str, o: list[int], concede: float) -> None:
    logits = [float(x) for x in o]
    rows = make_loss(name, concede=concede).rows(torch.tensor([logits]).double(), torch.tensor([0]))
    p = reference.probabilities(logits)
    if abs(max(p) - p[0] - concede) > 1e-9:  # rounding decides at the bound itself
        assert rows.conceded is not None
        assert rows.conceded.item() == reference.is_conceded(logits, 0, concede)


@pytest.mark.parametrize("rule", [SOFTMAX_RULE, probability_rule(0.3), logit_rule(2.0)])
def test_kernels_agree(rule: Any) -> None:
    """The CPU kernel, the equation on a device, and the traced form."""
    rule = rule._replace(concede=0.4)
    logits, target = batch("softmax", n_rows=300, n_classes=11)
    valid = target != -100
    target = target.clamp(min=0)
    cpu_grad, device_grad = torch.empty_like(logits), torch.empty_like(logits)
    on_cpu = margin_softmax_chunks.margin_softmax_cpu.chunk(logits, target, valid, rule, cpu_grad)
    on_device = margin_softmax_chunks.chunk(logits, target, valid, rule, device_grad)
    *traced, _ = margin_softmax_chunks.equation(logits, target, valid, rule)
    for expected, device, trace in zip(on_cpu, on_device, traced, strict=True):
        torch.testing.assert_close(device, expected)
        torch.testing.assert_close(trace, expected)
    torch.testing.assert_close(device_grad, cpu_grad)
    assert on_cpu[2].any()


@class_loss
def test_chunks(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    logits, target = batch(name, n_rows=64)
    loss = make_loss(name, concede=0.2)
    whole = rows_and_gradient(loss, logits, target)
    monkeypatch.setattr(margin_softmax_chunks, "_rows_per_chunk", lambda *_, **__: 5)
    parts = rows_and_gradient(loss, logits, target)
    assert torch.equal(whole[0].conceded, parts[0].conceded)
    torch.testing.assert_close(parts[1], whole[1])


@every_loss
@pytest.mark.parametrize("compiled", [False, True])
def test_fused_head(name: str, compiled: bool) -> None:
    head = LinearLoss(6, 9, loss=name, concede=0.1, chunk_rows=7)
    head.linear.weight.data.mul_(6)
    features = torch.randn(40, 6, requires_grad=True)
    _, target = batch(name, n_rows=40, n_classes=9)
    rows_of = torch.compile(head.rows, backend="aot_eager") if compiled else head.rows
    rows = rows_of(features, target)
    expected = head.loss.rows(head.logits(features), target)
    assert rows.conceded is not None
    assert rows.conceded.any()
    assert torch.equal(rows.conceded, expected.conceded)
    assert torch.equal(rows.active, expected.active)
    parameters = [features, *head.linear.parameters()]
    gradients = torch.autograd.grad(rows.mean(), parameters)
    torch.testing.assert_close(gradients, torch.autograd.grad(expected.mean(), parameters))
    assert not gradients[0][~rows.active].any()


def test_nan_is_never_conceded_and_a_hopeless_target_is() -> None:
    logits = torch.tensor([[torch.nan, 0.0], [-torch.inf, 0.0], [0.0, 90.0]])
    rows = make_loss("softmax", concede=0.5).rows(logits, torch.zeros(3, dtype=torch.long))
    assert rows.conceded is not None
    assert rows.conceded.tolist() == [False, True, True]
    assert rows.active.tolist() == [True, False, False]


def test_half_precision_decides_in_float32() -> None:
    logits, target = batch("softmax", n_rows=64)
    half = logits.bfloat16()
    rows = make_loss("softmax", concede=0.3).rows(half, target)
    assert torch.equal(rows.conceded, make_loss("softmax", concede=0.3).rows(half.float(), target).conceded)


def test_schedule_is_saved_with_the_loss() -> None:
    loss = make_loss("softmax", concede=WarmupConcede(0.5, total_steps=4, share=0.5))
    logits, target = torch.tensor([[5.0, 0.0]]), torch.tensor([1])
    assert loss.rows(logits, target).conceded is None, "nothing is conceded during the warm-up"
    for _ in range(2):
        loss.concede.step()
    assert loss.rows(logits, target).conceded.item()
    copied = make_loss("softmax", concede=WarmupConcede(0.5, total_steps=4, share=0.5))
    copied.load_state_dict(copy.deepcopy(loss.state_dict()))
    assert copied.concede.value == 0.5


@every_loss
def test_a_schedule_compiles_once_with_and_once_without_conceded_rows(name: str) -> None:
    torch._dynamo.reset()
    counter = CompileCounter()
    loss = make_loss(name, concede=LinearDelta(1.0, 0.0, total_steps=6))
    compiled = torch.compile(loss.rows, backend=counter, fullgraph=True)
    logits, target = batch(name, n_rows=40)
    for _ in range(6):
        rows, expected = compiled(logits, target), loss.rows(logits, target)
        torch.testing.assert_close(rows.value, expected.value)
        assert (rows.conceded is None) == (expected.conceded is None)
        if rows.conceded is not None:
            assert torch.equal(rows.conceded, expected.conceded)
        loss.concede.step()
    assert counter.frame_count <= 2


@class_loss
def test_kappa_zero_concedes_what_would_be_predicted_wrong(name: str) -> None:
    """Also with class weights, which divide by all rows; NaN in an ignored row does not matter."""
    logits, target = batch(name, n_rows=64)
    logits[target == -100] = torch.nan
    weight = torch.rand(7)
    loss = make_loss(name, concede=0.0, weight=weight)
    rows, gradient = rows_and_gradient(loss, logits, target)
    wrong = (logits.argmax(1) != target) & (target != -100)
    assert torch.equal(rows.conceded, wrong)
    assert not gradient[~rows.active].any()
    expected = make_loss(name).rows(logits, target).value * weight[target.clamp(min=0)]
    total = weight[target[target != -100]].sum()
    torch.testing.assert_close(rows.mean(), expected[rows.active].sum() / total)


@every_loss
def test_no_rows_and_a_single_class(name: str) -> None:
    """There is no opponent that could be ahead."""
    loss = make_loss(name, concede=0.0)
    for n_rows, n_classes in ((0, 4), (2, 1)):
        shape = (n_rows, n_classes) if "multilabel" in name else (n_rows,)
        rows = loss.rows(torch.randn(n_rows, n_classes), torch.zeros(shape, dtype=torch.long))
        assert rows.conceded is not None
        assert rows.conceded.tolist() == [False] * n_rows


@every_loss
def test_copies_keep_the_schedule_and_another_loss_refuses_it(name: str) -> None:
    loss = make_loss(name, concede=WarmupConcede(0.5, total_steps=4))
    loss.concede.step()
    for copied in (copy.deepcopy(loss), pickle.loads(pickle.dumps(loss))):
        assert (copied.concede.n_steps, copied.concede.value) == (1, 0.5)
        copied.concede.step()
    assert loss.concede.n_steps == 1
    with pytest.raises(RuntimeError, match=r"Unexpected key.*concede"):
        make_loss(name).load_state_dict(loss.state_dict())


@pytest.mark.parametrize("concede", [-0.1, 1.5, float("nan")])
def test_range(concede: float) -> None:
    with pytest.raises(ValueError, match=r"concede must lie in \[0, 1\].*1 or None concedes nothing"):
        sparring.SoftmaxLoss(concede=concede)
    with pytest.raises(ValueError, match=r"concede must lie in \[0, 1\].*1 concedes nothing"):
        WarmupConcede(concede, total_steps=4)
