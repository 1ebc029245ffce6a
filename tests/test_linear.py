"""The fused head against the loss of its logits."""

from __future__ import annotations

import copy
import importlib.util
import inspect
import io
import pickle
import re
from typing import Any, ClassVar

import pytest
import torch
import torch._dynamo.testing
import torch.nn.functional as F
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

import sparring
from sparring import functional as SF
from sparring.fused import choose_impl, gradients, kernels, passes
from sparring.fused import head as heads
from sparring.losses import strong, strong_cpu

SHAPES = [(7, 5, 3), (300, 16, 1001), (513, 8, 37), (1, 4, 2), (129, 3, 130)]
STATES = ["none won", "mixed", "all won"]


def batch(n_rows: int, n_features: int, n_classes: int, state: str = "mixed", seed: int = 0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Features, weight, bias and target in float64, some targets ignored; aligned with their class where the row is to be won."""
    torch.manual_seed(seed)
    weight = torch.randn(n_classes, n_features, dtype=torch.float64)
    target = torch.randint(n_classes, (n_rows,))
    weight_t = F.normalize(weight[target], dim=1)
    pull = {"none won": -3.0, "mixed": 0.0, "all won": 200.0}[state] * torch.ones(n_rows, 1, dtype=torch.float64)
    if state == "mixed":
        pull = torch.tensor([-2.0, 2.0, 4.0, 8.0, 60.0], dtype=torch.float64)[torch.randint(5, (n_rows, 1))]
    weight = 3 * F.normalize(weight, dim=1)
    x = 0.1 * torch.randn(n_rows, n_features, dtype=torch.float64) + pull * weight_t
    if n_rows > 1:
        target[::5] = -100
    return x, weight, 0.1 * torch.randn(n_classes, dtype=torch.float64), target


def leaves(*tensors: Tensor | None, dtype: torch.dtype) -> list[Tensor | None]:
    return [None if x is None else x.to(dtype, copy=True).requires_grad_() for x in tensors]


def results(loss: Tensor, upstream: Tensor | None, parameters: list[Tensor | None]) -> list[Tensor]:
    there = [x for x in parameters if x is not None]
    return [loss.detach(), *torch.autograd.grad(loss, there, None if upstream is None else upstream.to(loss.dtype))]


def agree(ours: list[Tensor], theirs: list[Tensor], exact: list[Tensor]) -> None:
    """No further from the truth than the unfused loss, and a hair."""
    for mine, other, true in zip(ours, theirs, exact, strict=True):
        scale = float(true.abs().max()) + 1e-30
        error, reference = (float((x.double() - true).abs().max()) / scale for x in (mine, other))
        assert error <= 2 * reference + 2e-6, (error, reference)


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_equals_the_loss_of_its_logits(shape: tuple[int, int, int], with_bias: bool, weighted: bool, reduction: str, state: str) -> None:
    x, weight, bias, target = batch(*shape, state)
    given = (x, weight, bias if with_bias else None)
    class_weight = torch.rand(shape[2], dtype=torch.float64) + 0.1 if weighted else None
    upstream = torch.linspace(-1, 2, len(target), dtype=torch.float64) if reduction == "none" else None
    found = []
    for dtype, fused in ((torch.float32, True), (torch.float32, False), (torch.float64, False), (torch.float64, True)):
        parameters = leaves(*given, dtype=dtype)
        kwargs = {"weight": None if class_weight is None else class_weight.to(dtype), "reduction": reduction}
        if fused:
            loss = SF.linear_as_softmax_loss(*parameters[:2], target, linear_bias=parameters[2], chunk_rows=64, **kwargs)
        else:
            loss = SF.as_softmax_loss(F.linear(*parameters), target, **kwargs)
        found.append(results(loss, upstream, parameters))
    agree(found[0], found[1], found[2])
    for mine, true in zip(found[3], found[2], strict=True):
        torch.testing.assert_close(mine, true, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("state", STATES)
def test_the_states_are_what_they_say(state: str) -> None:
    x, weight, bias, target = batch(300, 16, 1001, state)
    rows = sparring.ASSoftmaxLoss().rows(F.linear(x, weight, bias), target)
    share = rows.won_share().item()
    assert {"none won": share == 0, "mixed": 0.1 < share < 0.9, "all won": share == 1}[state]


@pytest.mark.parametrize("name", [name for name in sparring.list_losses() if name != "am-softmax"])
@pytest.mark.parametrize("n_classes", [1, 2, 40])
def test_every_loss_can_be_had(name: str, n_classes: int) -> None:
    torch.manual_seed(0)
    head = sparring.LinearLoss(6, n_classes, name, chunk_rows=8).double()
    x = (3 * torch.randn(5, 7, 6, dtype=torch.float64)).requires_grad_()
    target = (torch.rand(5, 7, n_classes) < 0.2).long() if "multilabel" in name else torch.randint(n_classes, (5, 7))
    target[0] = -100
    logits = head.logits(x)
    unfused = head.loss(logits if "multilabel" in name else logits.movedim(-1, 1), target)
    parameters = [x, *head.linear.parameters()]
    for mine, true in zip(results(head(x, target), None, parameters), results(unfused, None, parameters), strict=True):
        torch.testing.assert_close(mine, true)
    rows, plain = head.rows(x, target), head.loss.rows(logits if "multilabel" in name else logits.movedim(-1, 1), target)
    assert rows.active.equal(plain.active)
    assert rows.valid.equal(plain.valid)


@pytest.mark.parametrize("lead", [(), (4,), (2, 3), (2, 1, 3), (0,), (2, 0)])
@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_any_number_of_leading_dimensions(lead: tuple[int, ...], reduction: str) -> None:
    torch.manual_seed(0)
    head = sparring.LinearASSoftmaxLoss(5, 9, reduction=reduction)
    x, target = torch.randn(*lead, 5, requires_grad=True), torch.randint(9, lead)
    loss = head(x, target.int())
    assert loss.shape == (lead if reduction == "none" else ())
    loss.sum().backward()
    assert x.grad is not None
    assert head.linear.weight.grad is not None


def test_a_batch_that_is_all_ignored_has_loss_zero_and_a_graph() -> None:
    head = sparring.LinearASSoftmaxLoss(5, 9)
    loss = head(torch.randn(4, 5), torch.full((4,), -100))
    loss.backward()
    assert loss == 0
    assert head.linear.weight.grad is not None
    assert head.linear.weight.grad.abs().max() == 0


@pytest.mark.parametrize("wanted", [(True, False, False), (False, True, False), (False, False, True), (True, False, True)])
def test_frozen_parameters(wanted: tuple[bool, bool, bool]) -> None:
    x, weight, bias, target = batch(60, 6, 50)
    found = []
    for fused in (True, False):
        parameters = [p.clone().requires_grad_(need) for p, need in zip((x, weight, bias), wanted, strict=True)]
        if fused:
            loss = SF.linear_as_softmax_loss(*parameters[:2], target, linear_bias=parameters[2], chunk_rows=16)
        else:
            loss = SF.as_softmax_loss(F.linear(*parameters), target)
        loss.backward()
        found.append([p.grad for p in parameters])
    for mine, true in zip(*found, strict=True):
        assert (mine is None) == (true is None)
        if mine is not None:
            torch.testing.assert_close(mine, true)


def test_no_gradient_is_made_that_nobody_wants(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("multiplied")

    monkeypatch.setattr(gradients.Gradients, "add", refuse)
    x, weight, _, target = batch(60, 6, 50)
    assert SF.linear_as_softmax_loss(x, weight, target) > 0
    with torch.no_grad():
        assert SF.linear_as_softmax_loss(x.requires_grad_(), weight, target) > 0


def test_a_weight_tied_to_an_embedding() -> None:
    torch.manual_seed(0)
    tokens, target = torch.randint(30, (4, 5)), torch.randint(30, (4, 5))
    found = []
    for fused in (True, False):
        torch.manual_seed(1)
        embedding = nn.Embedding(30, 8)
        head = sparring.LinearASSoftmaxLoss(8, 30, bias=False)
        head.linear.weight = embedding.weight
        hidden = embedding(tokens)
        loss = head(hidden, target) if fused else head.loss(head.logits(hidden).movedim(-1, 1), target)
        loss.backward()
        found.append(embedding.weight.grad)
    torch.testing.assert_close(*found)


def multiplied(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Rows and classes of every pair of products that is made from now on."""
    made, multiply = [], gradients.Gradients.add

    def spy(self: gradients.Gradients, rows: Tensor, columns: Tensor | None, grad: Tensor) -> None:
        made.append(tuple(grad.shape))
        multiply(self, rows, columns, grad)

    monkeypatch.setattr(gradients.Gradients, "add", spy)
    return made


def test_won_rows_and_discarded_classes_are_not_multiplied(monkeypatch: pytest.MonkeyPatch) -> None:
    made = multiplied(monkeypatch)
    for state in STATES:
        x, weight, bias, target = batch(300, 16, 1001, state)
        made.clear()
        rows = sparring.ASSoftmaxLoss().rows(F.linear(x, weight, bias), target)
        SF.linear_as_softmax_loss(x.requires_grad_(), weight, target, linear_bias=bias, chunk_rows=64).backward()
        assert sum(n for n, _ in made) == rows.active.sum()
    x, weight, bias, target = batch(300, 16, 1001, "mixed")
    assert any(width < 1001 for _, width in made + _made(made, x, weight, target))


def _made(made: list[tuple[int, int]], x: Tensor, weight: Tensor, target: Tensor) -> list[tuple[int, int]]:
    """Two classes ahead of all others: nothing else survives."""
    target = target.clamp(min=0)
    rivals = (target + 1) % len(weight)
    x = 3 * (weight[target] + weight[rivals])
    made.clear()
    SF.linear_as_softmax_loss(x.requires_grad_(), weight, target, delta=0.3).backward()
    return list(made)


def test_small_blocks_wait_for_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    made = multiplied(monkeypatch)
    x, weight, bias, target = batch(640, 16, 200, "all won")
    x[[start + 1 if (start + 1) % 5 else start + 2 for start in range(0, 640, 64)]] *= -1  # one valid row a chunk is lost
    SF.linear_as_softmax_loss(x.requires_grad_(), weight, target, linear_bias=bias, chunk_rows=64).backward()
    assert made == [(10, 200)]


def test_a_mean_of_rows_needs_one_pass_and_anything_else_is_right_too(monkeypatch: pytest.MonkeyPatch) -> None:
    passed = []
    solve = passes.solve
    monkeypatch.setattr(passes, "solve", lambda x, *rest: passed.append(len(x)) or solve(x, *rest))
    x, weight, _, target = batch(60, 6, 50)
    class_weight = torch.rand(50, dtype=torch.float64)
    for upstream, n_passes in ((torch.full((60,), 0.3, dtype=torch.float64), 1), (torch.rand(60, dtype=torch.float64), 2)):
        passed.clear()
        ours, theirs = leaves(x, weight, dtype=torch.float64), leaves(x, weight, dtype=torch.float64)
        head = sparring.LinearLoss(6, 50, sparring.ASSoftmaxLoss(weight=class_weight), bias=False)
        head.linear.weight = nn.Parameter(ours[1])
        (head.rows(ours[0], target).weighted() * upstream).sum().backward()
        (head.loss.rows(F.linear(*theirs), target).weighted() * upstream).sum().backward()
        assert len(passed) == n_passes
        torch.testing.assert_close(ours[0].grad, theirs[0].grad)
        torch.testing.assert_close(head.linear.weight.grad, theirs[1].grad)


UPSTREAM = {
    "a mask": [1.0, 0.0, 1.0, 0.0],
    "less than the first": [1.0, 0.5, 0.25, -1.0],
    "uneven by half a percent": [1.0, 1.005, 1.0, 1.0],
    "zero": [0.0, 0.0, 0.0, 0.0],
    "negative": [-2.0, -2.0, -2.0, -2.0],
}


@pytest.mark.parametrize("name", UPSTREAM)
@pytest.mark.parametrize("zero_weight", [False, True])
def test_whatever_comes_from_above(name: str, zero_weight: bool) -> None:
    x, weight, _, _ = batch(40, 6, 50, "none won")
    target, upstream = torch.arange(40), torch.tensor(UPSTREAM[name], dtype=torch.float64).repeat(10)
    class_weight = torch.rand(50, dtype=torch.float64) + 0.5
    if zero_weight:
        class_weight[0] = 0  # of the first active row
    loss = sparring.ASSoftmaxLoss(weight=class_weight)
    ours, theirs = leaves(x, weight, dtype=torch.float64), leaves(x, weight, dtype=torch.float64)
    head = sparring.LinearLoss(6, 50, loss, bias=False, chunk_rows=16).double()
    head.linear.weight = nn.Parameter(ours[1])
    (head.rows(ours[0], target).weighted() * upstream).sum().backward()
    (loss.rows(F.linear(*theirs), target).weighted() * upstream).sum().backward()
    torch.testing.assert_close(ours[0].grad, theirs[0].grad)
    torch.testing.assert_close(head.linear.weight.grad, theirs[1].grad)


def test_row_losses_may_be_changed_in_place() -> None:
    x, weight, _, target = batch(40, 6, 50)
    found = []
    for fused in (True, False):
        parameters = leaves(x, weight, dtype=torch.float64)
        if fused:
            losses = SF.linear_as_softmax_loss(*parameters, target, reduction="none")
        else:
            losses = SF.as_softmax_loss(F.linear(*parameters), target, reduction="none")
        losses *= torch.linspace(0, 1, 40)
        losses[3:9] = 0
        found.append(torch.autograd.grad(losses.sum(), parameters))
    for mine, true in zip(*found, strict=True):
        torch.testing.assert_close(mine, true)


def test_a_second_backward_with_frozen_weights_and_another_scale() -> None:
    x, weight, _, target = batch(40, 6, 50)
    (x,) = leaves(x, dtype=torch.float64)
    loss = SF.linear_as_softmax_loss(x, weight, target, chunk_rows=16)
    first = torch.autograd.grad(3 * loss, x, retain_graph=True)[0].clone()
    torch.testing.assert_close(torch.autograd.grad(loss, x, retain_graph=True)[0], first / 3)
    differentiable = torch.autograd.grad(loss, x, create_graph=True)[0]
    torch.testing.assert_close(differentiable, first / 3)
    torch.testing.assert_close(torch.autograd.grad(loss, x)[0], first / 3)


def test_a_second_derivative_with_frozen_weights() -> None:
    x, weight, bias, target = batch(12, 4, 9)
    found = []
    for fused in (True, False):
        (point,) = leaves(x, dtype=torch.float64)
        if fused:
            loss = SF.linear_as_softmax_loss(point, weight, target, linear_bias=bias, chunk_rows=5)
        else:
            loss = SF.as_softmax_loss(F.linear(point, weight, bias), target)
        (grad,) = torch.autograd.grad(loss, point, create_graph=True)
        again = torch.autograd.grad(loss, point, create_graph=True)[0]
        torch.testing.assert_close(again, grad)
        found.append(torch.autograd.grad(grad.square().sum(), point)[0])
    torch.testing.assert_close(*found)


def test_deterministic_and_the_same_the_second_time() -> None:
    x, weight, bias, target = batch(300, 16, 1001)
    x, weight, bias = leaves(x, weight, bias, dtype=torch.float32)
    loss = SF.linear_as_softmax_loss(x, weight, target, linear_bias=bias, chunk_rows=64)
    again = SF.linear_as_softmax_loss(x, weight, target, linear_bias=bias, chunk_rows=64)
    first = [g.clone() for g in torch.autograd.grad(loss, [x, weight, bias], retain_graph=True)]
    for other in (torch.autograd.grad(loss, [x, weight, bias]), torch.autograd.grad(again, [x, weight, bias])):
        assert all(a.equal(b) for a, b in zip(first, other, strict=True))


def test_derivatives() -> None:
    x, weight, bias, target = batch(12, 4, 9)
    for reduction in ("mean", "none"):

        def loss(x: Tensor, weight: Tensor, bias: Tensor, reduction: str = reduction) -> Tensor:
            return SF.linear_as_softmax_loss(x, weight, target, linear_bias=bias, reduction=reduction, chunk_rows=5)

        parameters = leaves(x, weight, bias, dtype=torch.float64)
        assert torch.autograd.gradcheck(loss, parameters)
        assert torch.autograd.gradgradcheck(loss, parameters)


def test_torch_func() -> None:
    x, weight, bias, target = batch(12, 4, 9)

    def fused(x: Tensor, weight: Tensor, bias: Tensor, target: Tensor) -> Tensor:
        return SF.linear_as_softmax_loss(x, weight, target, linear_bias=bias, chunk_rows=5)

    def unfused(x: Tensor, weight: Tensor, bias: Tensor, target: Tensor) -> Tensor:
        return SF.as_softmax_loss(F.linear(x, weight, bias), target)

    ways = [
        lambda f: torch.func.grad(f, argnums=(0, 1, 2))(x, weight, bias, target),
        lambda f: torch.vmap(torch.func.grad(f, argnums=(0, 1)), in_dims=(0, None, None, 0))(x, weight, bias, target),
        lambda f: torch.func.grad(lambda x: torch.func.grad(f)(x, weight, bias, target).square().sum())(x),
        lambda f: torch.func.jacrev(f)(x, weight, bias, target),
        lambda f: torch.vmap(torch.func.grad(f), in_dims=(1, None, None, 0))(x.T.contiguous(), weight, bias, target),
    ]
    for way in ways:
        torch.testing.assert_close(way(fused), way(unfused))


@pytest.mark.parametrize("loss", ["as-softmax", "softmax", "sparse-softmax", "multilabel-as-softmax"])
@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_torch_compile(loss: str, reduction: str) -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)
    head = sparring.LinearLoss(6, 40, sparring.make_loss(loss, reduction=reduction), chunk_rows=8)
    x = (3 * torch.randn(20, 6)).requires_grad_()
    target = (torch.rand(20, 40) < 0.2).long() if "multilabel" in loss else torch.randint(40, (20,))
    compiled = torch.compile(head, fullgraph=True)
    parameters, upstream = [x, *head.linear.parameters()], torch.rand(20) if reduction == "none" else None
    for mine, true in zip(results(compiled(x, target), upstream, parameters), results(head(x, target), upstream, parameters), strict=True):
        torch.testing.assert_close(mine, true)


def test_torch_compile_with_everything_set() -> None:
    torch._dynamo.reset()
    x, weight, bias, target = batch(40, 6, 50)
    target[target == -100] = 7
    class_weight = torch.rand(50, dtype=torch.float64)
    settings = {
        "linear_bias": bias,
        "weight": class_weight,
        "ignore_index": 7,
        "delta": 0.2,
        "chunk_rows": 16,
    }  # weight and bias are frozen
    compiled = torch.compile(
        lambda x, reduction: SF.linear_as_softmax_loss(x, weight, target, reduction=reduction, **settings), fullgraph=True
    )
    for reduction in ("mean", "none"):
        points = [x.clone().requires_grad_(), x.T.contiguous().T.requires_grad_()]  # the second one's rows do not lie end to end
        expected = SF.as_softmax_loss(F.linear(points[0], weight, bias), target, class_weight, 7, reduction, delta=0.2)
        upstream = torch.rand_like(expected)
        (true,) = torch.autograd.grad(expected, points[0], upstream)
        for point in points:
            loss = compiled(point, reduction)
            torch.testing.assert_close(loss, expected)
            torch.testing.assert_close(torch.autograd.grad(loss, point, upstream)[0], true)


def test_torch_compile_does_not_compile_for_every_batch_size() -> None:
    torch._dynamo.reset()
    counter = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    head = sparring.LinearASSoftmaxLoss(6, 40)
    compiled = torch.compile(head, backend=counter, fullgraph=True)
    for n_rows in (20, 21, 30, 7, 44):
        x, target = torch.randn(n_rows, 6, requires_grad=True), torch.randint(40, (n_rows,))
        compiled(x, target).backward()
        torch.testing.assert_close(x.grad, torch.autograd.grad(head(x, target), x)[0])
    assert counter.frame_count <= 2


def test_a_schedule_under_torch_compile_does_not_compile_at_every_step() -> None:
    torch._dynamo.reset()
    counter = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    head = sparring.LinearASSoftmaxLoss(6, 40, delta=sparring.LinearDelta(0.9, 0.1, total_steps=10))
    compiled, x, target = torch.compile(head, backend=counter, fullgraph=True), torch.randn(20, 6), torch.arange(20)
    for _ in range(6):
        torch.testing.assert_close(compiled(x, target), head(x, target))
        head.delta.step()
    assert counter.frame_count <= 2


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast(dtype: torch.dtype) -> None:
    x, weight, bias, target = batch(60, 8, 50)
    found = []
    for fused in (True, False):
        parameters = leaves(x, weight, bias, dtype=torch.float32)
        with torch.autocast("cpu", dtype=dtype):
            if fused:
                loss = SF.linear_as_softmax_loss(*parameters[:2], target, linear_bias=parameters[2], chunk_rows=16)
            else:
                loss = SF.as_softmax_loss(F.linear(*parameters), target)
        assert loss.dtype == torch.float32
        found.append(results(loss, None, parameters))
    torch.testing.assert_close(found[0][0], found[1][0], rtol=1e-3, atol=1e-4)
    for mine, other in zip(found[0][1:], found[1][1:], strict=True):
        assert mine.dtype == torch.float32
        assert (mine - other).abs().max() <= 4 * torch.finfo(dtype).eps * other.abs().max()


def test_float64_under_autocast_stays() -> None:
    x, weight, bias, target = batch(60, 8, 50)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = SF.linear_as_softmax_loss(x, weight, target, linear_bias=bias)
    torch.testing.assert_close(loss, SF.as_softmax_loss(F.linear(x, weight, bias), target))


def test_class_weights_in_half_precision() -> None:
    x, weight, _, target = batch(60, 8, 50)
    x, weight, class_weight = x.bfloat16(), weight.bfloat16(), torch.rand(50)
    mine = sparring.LinearLoss(8, 50, sparring.ASSoftmaxLoss(weight=class_weight), bias=False)
    mine.linear.weight = nn.Parameter(weight)
    torch.testing.assert_close(mine.rows(x, target).mean(), mine.loss.rows(F.linear(x, weight), target).mean(), rtol=1e-6, atol=1e-7)


def test_half_precision_without_autocast() -> None:
    x, weight, bias, target = batch(60, 8, 50)
    parameters = leaves(x, weight, bias, dtype=torch.bfloat16)
    loss = SF.linear_as_softmax_loss(*parameters[:2], target, linear_bias=parameters[2])
    loss.backward()
    assert loss.dtype == torch.bfloat16
    assert all(p.grad.dtype == torch.bfloat16 for p in parameters)
    torch.testing.assert_close(loss, SF.as_softmax_loss(F.linear(*parameters), target))


def peak_memory(step: object) -> int:
    strong_cpu.forget_workspace()  # it outlives a call; count it to this one
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        step()
    alive = peak = 0
    for event in sorted(record.profiler.kineto_results.events(), key=lambda event: event.start_ns()):
        if event.name() == "[memory]":
            alive += event.nbytes()
            peak = max(peak, alive)
    return peak


@pytest.mark.parametrize("state", STATES)
def test_peak_memory_is_what_the_docstring_says(state: str) -> None:
    n_rows, n_features, n_classes, chunk = 512, 4, 40000, 64
    x, weight, _, target = batch(n_rows, n_features, n_classes, state)
    x, weight = leaves(x, weight, dtype=torch.float32)
    held = peak_memory(lambda: SF.linear_as_softmax_loss(x, weight, target, chunk_rows=chunk).backward())
    gradient_bytes = 4 * (x.numel() + weight.numel())
    assert held <= 4 * (chunk + passes.PART_ROWS) * n_classes + gradient_bytes + 2**19
    unfused = peak_memory(lambda: SF.as_softmax_loss(F.linear(x, weight), target).backward())
    assert unfused > 5 * held


def test_chunks_are_found_from_the_shapes() -> None:
    n_rows, n_features, n_classes = 1024, 4, 20000
    assert passes.chunk_sizes(n_rows, n_classes, None, on_cpu=True) == (230, 52)
    assert passes.chunk_sizes(n_rows, 10, None, on_cpu=True) == (n_rows, n_rows)
    assert passes.chunk_sizes(n_rows, n_classes, 7, on_cpu=True) == (7, 7)
    assert passes.chunk_sizes(n_rows, n_classes, None, on_cpu=False) == (838, 838)
    x, weight = torch.randn(n_rows, n_features, requires_grad=True), torch.randn(n_classes, n_features, requires_grad=True)
    held = peak_memory(lambda: SF.linear_as_softmax_loss(x, weight, torch.arange(n_rows)).backward())
    assert held < 4 * n_rows * n_classes / 3


def test_label_rows_are_not_doubled() -> None:
    x, weight = torch.randn(512, 4, requires_grad=True), torch.randn(4000, 4, requires_grad=True)
    labels = (torch.rand(512, 4000) < 0.01).to(torch.int8)
    held = peak_memory(lambda: SF.linear_multilabel_as_softmax_loss(x, weight, labels, chunk_rows=16).backward())
    assert held < 512 * 4000 * 4


def test_infinite_logits_and_nan() -> None:
    x, weight, _, target = batch(12, 4, 9)
    x, weight = x.float(), weight.float()
    x[2], weight[3] = 1e30 * weight[3].sign(), 1e10 * weight[3]  # a logit of inf
    assert (x @ weight.T)[2, 3] == torch.inf
    mine, true = SF.linear_as_softmax_loss(x, weight, target, reduction="none"), SF.as_softmax_loss(x @ weight.T, target, reduction="none")
    torch.testing.assert_close(mine, true)
    x[1, 0] = torch.nan
    assert SF.linear_as_softmax_loss(x, weight, target, reduction="none").isnan().tolist() == [i == 1 for i in range(12)]


class Marked(Tensor):
    """A tensor that is not a plain one: its operations have to be seen."""

    seen: ClassVar[list[str]] = []

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        cls.seen.append(getattr(function, "__name__", ""))
        return super().__torch_function__(function, types, args, kwargs or {})


def test_tensor_subclasses_see_every_operation() -> None:
    x, weight, _, target = batch(12, 4, 9)
    loss = SF.linear_as_softmax_loss(x.as_subclass(Marked), weight, target)
    assert "linear" in Marked.seen
    torch.testing.assert_close(loss.as_subclass(Tensor), SF.linear_as_softmax_loss(x, weight, target))


def test_a_layer_or_loss_of_its_own_is_called_as_it_is() -> None:
    class Doubled(nn.Linear):
        def forward(self, input: Tensor) -> Tensor:
            return 2 * super().forward(input)

    class Halved(sparring.ASSoftmaxLoss):
        def forward(self, input: Tensor, target: Tensor) -> Tensor:
            return super().forward(input, target) / 2

    x, target = torch.randn(2, 3, 8), torch.randint(30, (2, 3))
    flat, plain = (x.reshape(6, 8), target.reshape(6)), nn.Linear(8, 30)
    head = sparring.LinearASSoftmaxLoss(8, 30)
    hooked, parametrized = nn.Linear(8, 30), nn.utils.parametrizations.weight_norm(nn.Linear(8, 30))
    hooked.register_forward_hook(lambda _, args, output: output + args[0].sum())
    for layer, fused in ((plain, True), (parametrized, True), (Doubled(8, 30), False), (hooked, False)):
        head.linear = layer
        assert head.fused == fused
        torch.testing.assert_close(head(x, target), head.loss(layer(flat[0]), flat[1]))
        torch.testing.assert_close(head.rows(x, target).value, head.loss.rows(layer(flat[0]), flat[1]).value)
    own = sparring.LinearLoss(8, 30, Halved(reduction="none"))
    assert not own.fused
    assert own(x, target).shape == (2, 3)
    torch.testing.assert_close(own(x, target).flatten(), own.loss(own.logits(flat[0]), flat[1]))


def test_why_triton_cannot_run(monkeypatch: pytest.MonkeyPatch) -> None:
    why = heads._why_no_triton.__wrapped__
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (7, 5))
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: object())
    assert "compute capability 7.5" in why("cuda:1")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))
    assert why("cuda:1") is None
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    assert "needs a CUDA device" in why("cpu")
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    assert "not installed" in why("cuda:0")


def test_the_path_of_other_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    """No GPU here: what a GPU would run in torch operations, run on CPU."""

    def elsewhere(*args: object, **kwargs: object) -> kernels.Outcome:
        return kernels._on_device(*args, **kwargs, chunk=strong.chunk)

    for delta in (0.3, 1.0):
        x, weight, bias, target = batch(100, 8, 60)
        ours, theirs = leaves(x, weight, bias, dtype=torch.float64), leaves(x, weight, bias, dtype=torch.float64)
        with monkeypatch.context() as patch:
            patch.setattr(kernels, "_on_cpu", elsewhere)
            mine = results(SF.linear_as_softmax_loss(*ours[:2], target, linear_bias=ours[2], delta=delta, chunk_rows=16), None, ours)
        true = results(SF.as_softmax_loss(F.linear(*theirs), target, delta=delta), None, theirs)
        for a, b in zip(mine, true, strict=True):
            torch.testing.assert_close(a, b)


def test_training_through_it_is_training_through_the_unfused_loss() -> None:
    x, _, _, target = batch(64, 8, 40)
    heads = []
    for fused in (True, False):
        torch.manual_seed(0)
        head = sparring.LinearASSoftmaxLoss(8, 40, delta=sparring.LinearDelta(1.0, 0.2, total_steps=20), chunk_rows=16).double()
        optimizer = torch.optim.Adam(head.parameters(), lr=0.05)
        for _ in range(20):
            optimizer.zero_grad()
            (head(x, target) if fused else head.loss(head.logits(x), target)).backward()
            optimizer.step()
            head.delta.step()
        heads.append(head)
    torch.testing.assert_close(heads[0].linear.weight, heads[1].linear.weight)


def test_saved_copied_and_shown() -> None:
    head = sparring.LinearASSoftmaxLoss(4, 6, delta=sparring.AdaptiveDelta(0.2), weight=torch.ones(6))
    head.delta.step(1.0)
    x, target = torch.randn(3, 4), torch.tensor([0, 1, 2])
    other = sparring.LinearASSoftmaxLoss(4, 6, delta=sparring.AdaptiveDelta(0.2), weight=torch.zeros(6))
    other.load_state_dict(head.state_dict())
    assert other.delta.value == head.delta.value
    for twin in (other, copy.deepcopy(head), pickle.loads(pickle.dumps(head))):
        assert twin(x, target) == head(x, target)
    buffer = io.BytesIO()
    torch.save(head.state_dict(), buffer)
    assert "LinearASSoftmaxLoss" in repr(head)
    assert "in_features=4, out_features=6" in repr(head)
    assert head.reduction == "mean"
    assert head.ignore_index == -100


@pytest.mark.parametrize(
    ("module", "function"),
    [
        (sparring.LinearSoftmaxLoss, SF.linear_softmax_loss),
        (sparring.LinearASSoftmaxLoss, SF.linear_as_softmax_loss),
        (sparring.LinearSparseSoftmaxLoss, SF.linear_sparse_softmax_loss),
        (sparring.LinearMultilabelASSoftmaxLoss, SF.linear_multilabel_as_softmax_loss),
    ],
)
def test_module_and_function_share_settings_and_defaults(module: type[nn.Module], function: object) -> None:
    of_module, of_function = inspect.signature(module).parameters, inspect.signature(function).parameters
    shared = [name for name in of_module if name in of_function]
    assert {"ignore_index", "reduction"} <= set(shared)
    assert all(of_module[name].default == of_function[name].default for name in shared)
    torch.manual_seed(0)
    head = module(4, 6)
    x = torch.randn(3, 4)
    target = torch.eye(6)[:3] if "Multilabel" in module.__name__ else torch.arange(3)
    assert head(x, target) == function(x, head.linear.weight, target, linear_bias=head.linear.bias)


def test_softmax_is_torch_s() -> None:
    x, weight, bias, target = batch(60, 6, 50)
    ours = SF.linear_softmax_loss(x, weight, target, linear_bias=bias)
    torch.testing.assert_close(ours, F.cross_entropy(F.linear(x, weight, bias), target))
    torch.testing.assert_close(SF.linear_as_softmax_loss(x, weight, target, linear_bias=bias, delta=1.0), ours)


X, W, T = torch.randn(4, 5), torch.randn(9, 5), torch.tensor([0, 1, 2, -100])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: SF.linear_as_softmax_loss(X, W.T, T), "expected (…, 9) features"),
        (lambda: SF.linear_as_softmax_loss(X, W[0], T), "linear_weight must be a (num_classes, in_features) Tensor"),
        (lambda: SF.linear_as_softmax_loss(X, W, T[:3]), "target has shape (3,), expected (4,)"),
        (lambda: SF.linear_as_softmax_loss(X, W, T.float()), "expected integer class indices"),
        (lambda: SF.linear_as_softmax_loss(X, W, T + 9), "out of range for 9 classes"),
        (lambda: SF.linear_as_softmax_loss(X, W, T, linear_bias=torch.zeros(8)), "linear_bias has shape (8,), expected (9,)"),
        (lambda: SF.linear_as_softmax_loss(X, W, T, weight=torch.ones(8)), "weight has shape (8,), expected (9,)"),
        (lambda: SF.linear_as_softmax_loss(X, W, T, linear_bias=True), "linear_bias must be a Tensor with one number per class, got bool"),
        (lambda: SF.linear_as_softmax_loss(X, W, T, weight=[1.0] * 9), "weight must be a Tensor with one number per class, got list"),
        (lambda: SF.linear_as_softmax_loss(X.double(), W, T), "input is float64 and linear_weight float32"),
        (lambda: SF.linear_as_softmax_loss(X.long(), W, T), "input must be floating-point features"),
        (lambda: SF.linear_as_softmax_loss(X, W, T, delta=2.0), "delta must lie in [0, 1]"),
        (lambda: SF.linear_as_softmax_loss(X, W, T, reduction="average"), "reduction must be one of"),
        (lambda: SF.linear_as_softmax_loss(X, W, T, chunk_rows=0), "chunk_rows must be a whole number"),
        (lambda: SF.linear_as_softmax_loss(X, W, T, impl="cuda"), "impl must be one of auto, torch, triton"),
        (lambda: SF.linear_as_softmax_loss(X, W, T, impl="triton"), 'impl="triton" cannot run here'),
        (lambda: SF.linear_sparse_softmax_loss(X, W, T, impl="triton"), "softmax, AS-Softmax and the logit-margin variant only"),
        (lambda: SF.linear_multilabel_as_softmax_loss(X, W, T), "one 0/1 label per class"),
        (lambda: sparring.LinearLoss(5, 9, "am-softmax"), "am-softmax takes cosines"),
        (lambda: sparring.LinearLoss(5, 9, "as_softmax"), 'did you mean "as-softmax"'),
        (lambda: sparring.LinearLoss(5, 9, nn.CrossEntropyLoss()), "a loss of ours, got CrossEntropyLoss"),
        (lambda: sparring.LinearASSoftmaxLoss(5, 9, weight=torch.ones(8)), "weight has shape (8,), expected (9,)"),
        (lambda: sparring.LinearASSoftmaxLoss(0, 9), "in_features must be a whole number"),
        (lambda: sparring.LinearASSoftmaxLoss(5, 9, impl="cuda"), "impl must be one of"),
    ],
)
def test_errors_say_what_to_do(call: object, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        call()


@pytest.mark.parametrize(
    ("impl", "device", "dtype", "has_rule", "why_not", "chosen"),
    [
        ("auto", "cpu", torch.float32, True, None, "torch"),
        ("auto", "cuda", torch.float32, True, None, "triton"),
        ("auto", "cuda", torch.bfloat16, True, None, "triton"),
        ("auto", "cuda", torch.float32, True, "not installed", "torch"),
        ("auto", "cuda", torch.float64, True, None, "torch"),
        ("auto", "cuda", torch.float32, False, None, "torch"),
        ("auto", "mps", torch.float32, True, None, "torch"),
        ("torch", "cuda", torch.float32, True, None, "torch"),
        ("triton", "cuda", torch.float32, True, None, "triton"),
        ("triton", "cpu", torch.float32, True, None, "triton"),
        ("triton", "cuda", torch.float32, True, "not installed", None),
        ("triton", "cuda", torch.float64, True, None, None),
        ("triton", "cuda", torch.float32, False, None, None),
    ],
)
def test_who_does_the_work(impl: str, device: str, dtype: torch.dtype, has_rule: bool, why_not: str | None, chosen: str | None) -> None:
    def choice() -> str:
        return choose_impl(impl, device=device, dtype=dtype, has_rule=has_rule, why_not=why_not)

    if chosen is None:
        with pytest.raises(ValueError, match="cannot run here"):
            choice()
    else:
        assert choice() == chosen
