"""Properties of AS-Softmax that the paper states."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import assume, given
from hypothesis import strategies as st

import sparring
from tests import reference

CASE_A = torch.tensor([[0.4, 0.15, 0.15, 0.15, 0.15]]).log()  # right, and by a margin
CASE_B = torch.tensor([[0.49, 0.5, 0.004, 0.003, 0.003]]).log()  # wrong: one strong opponent
TARGET = torch.tensor([0])


def test_the_motivating_example() -> None:
    # softmax pushes case A harder, although it is won, than case B, which is lost
    assert F.cross_entropy(CASE_A, TARGET) > F.cross_entropy(CASE_B, TARGET)
    # AS-Softmax leaves A alone and keeps B's one strong opponent
    loss = sparring.ASSoftmaxLoss(delta=0.2)
    assert loss(CASE_A, TARGET) == 0
    assert loss.rows(CASE_A, TARGET).won.item()
    assert loss(CASE_B, TARGET).item() == pytest.approx(math.log(0.99 / 0.49), abs=1e-6)
    assert sparring.kept_classes(CASE_B, TARGET, 0.2).item() == 2


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("p", "delta"),
    [([0.75, 0.25], 0.5), ([0.5, 0.2, 0.3], 0.3), ([0.65, 0.35], 0.3), ([0.4, 0.1, 0.25, 0.25], 0.3)],
)
def test_margin_is_strict(p: list[float], delta: float, dtype: torch.dtype) -> None:
    # class 1 is behind by exactly δ and stays; a hair less and it goes
    logits = torch.tensor([p], dtype=torch.float64).log().to(dtype)
    with_tie = sparring.kept_classes(logits, TARGET, delta).item()
    assert with_tie == len(p)
    assert sparring.kept_classes(logits, TARGET, delta - 2e-6).item() == len(p) - 1
    for margin, classes in ((delta, len(p)), (delta - 2e-6, len(p) - 1)):
        rows = sparring.ASSoftmaxLoss(margin).rows(logits, TARGET)
        assert rows.active.item() == (classes > 1)
    gap = (logits[0, 0] - logits[0, 1]).item()
    assert sparring.ASLogitLoss(gap, reduction="none").rows(logits, TARGET).active.item()


@pytest.mark.parametrize("scale", [1.0, 37.0, 1e4])
def test_level_opponents_stay_at_any_size(scale: float) -> None:
    logits = torch.tensor([[1.7, 1.7, -3.0]]) * scale
    assert sparring.ASSoftmaxLoss(delta=0.0)(logits, TARGET).item() == pytest.approx(math.log(2), abs=1e-6)
    assert sparring.ASLogitLoss(margin=0.0)(logits, TARGET).item() == pytest.approx(math.log(2), abs=1e-6)


@given(o=st.lists(st.floats(-10, 10), min_size=2, max_size=12), delta=st.floats(0.01, 0.95))
def test_bound_of_equation_9(o: list[float], delta: float) -> None:
    t = max(range(len(o)), key=o.__getitem__)
    rows = sparring.ASSoftmaxLoss(delta).rows(torch.tensor([o], dtype=torch.float64), torch.tensor([t]))
    assume(not rows.active.item())
    assert o[t] - min(o) >= math.log(len(o) * delta + 1) - 1e-9


def test_mean_counts_won_rows() -> None:
    logits, target = torch.cat([CASE_A, CASE_B]), torch.tensor([0, 0])
    loss = sparring.ASSoftmaxLoss(delta=0.2)
    torch.testing.assert_close(loss(logits, target), loss(CASE_B, TARGET) / 2)


def test_weighted_mean_divides_by_the_weights_of_all_valid_rows() -> None:
    logits = torch.cat([CASE_A, CASE_B, CASE_B])
    target = torch.tensor([0, 1, -100])
    weight = torch.tensor([2.0, 3.0, 1.0, 1.0, 1.0])
    rows = sparring.ASSoftmaxLoss(0.2, weight=weight).rows(logits, target)
    assert rows.weight is not None
    assert rows.weight.tolist() == [2.0, 3.0, 0.0]
    torch.testing.assert_close(rows.mean(), 3 * rows.value[1] / 5)
    assert sparring.ASSoftmaxLoss(0.2, weight=torch.zeros(5))(logits, target).item() == 0


def test_probabilities_of_equation_7() -> None:
    logits = torch.randn(6, 5, requires_grad=True)
    target = torch.tensor([0, 1, 2, 3, 4, -100])
    p = sparring.as_softmax(logits, target, 0.1)
    torch.testing.assert_close(p.sum(1), torch.ones(6))
    for o, t, row in zip(logits.tolist()[:5], target.tolist(), p, strict=False):
        classes = reference.as_softmax_kept(o, t, 0.1)
        expected = reference.probabilities([o[i] for i in classes])
        torch.testing.assert_close(row[classes], torch.tensor(expected))
        assert row.count_nonzero() == len(classes)
    torch.testing.assert_close(p[5], logits[5].softmax(0), msg="an ignored row keeps its softmax")
    value = -p[range(5), target[:5]].log()
    torch.testing.assert_close(value, sparring.ASSoftmaxLoss(0.1, reduction="none")(logits, target)[:5])
    torch.testing.assert_close(
        torch.autograd.grad(value.sum(), logits)[0],
        torch.autograd.grad(sparring.ASSoftmaxLoss(0.1, reduction="sum")(logits, target), logits)[0],
    )
    assert sparring.as_softmax(torch.randn(2, 5, 3, 4), torch.zeros(2, 3, 4, dtype=torch.long)).shape == (
        2,
        5,
        3,
        4,
    )
    assert sparring.as_softmax(torch.randn(5), torch.tensor(1)).shape == (5,)


def test_compiled_loss_with_a_schedule_recompiles_once() -> None:
    from torch._dynamo.testing import CompileCounter

    torch._dynamo.reset()
    counter = CompileCounter()
    loss = sparring.ASSoftmaxLoss(sparring.LinearDelta(1.0, 0.0, total_steps=10))
    compiled = torch.compile(loss, backend=counter, fullgraph=True)
    logits, target = torch.randn(40, 7) * 3, torch.randint(7, (40,))
    for _ in range(10):
        torch.testing.assert_close(compiled(logits, target), loss(logits, target))
        loss.delta.step()
    assert counter.frame_count <= 2
    torch._dynamo.reset()


def test_training_to_the_end_wins_everything() -> None:
    torch.manual_seed(1)
    inputs, target = torch.randn(15, 20), torch.randint(4, (15,))
    layer = torch.nn.Linear(20, 4)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.5)
    loss = sparring.ASSoftmaxLoss(delta=0.3)
    for _ in range(3000):
        rows = loss.rows(layer(inputs), target)
        if not rows.active.any():
            break
        optimizer.zero_grad()
        rows.mean().backward()
        optimizer.step()
    assert rows.won_share() == 1, "softmax would go on for ever; here training ends"
    assert rows.mean() == 0
    optimizer.zero_grad()
    rows.mean().backward()
    assert layer.weight.grad is not None
    assert not layer.weight.grad.any()
