"""Matrix products run over active rows and kept classes, for the gradients that are needed."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import sparring
from sparring import ClassParallelHead, LinearLoss
from sparring import functional as SF
from sparring.heads import gradients
from tests.heads.cases import STATES, batch


@pytest.mark.parametrize(
    "wanted", [(True, False, False), (False, True, False), (False, False, True), (True, False, True)]
)
def test_frozen_parameters(wanted: tuple[bool, bool, bool]) -> None:
    x, weight, bias, target = batch(60, 6, 50)
    outputs = []
    for fused in (True, False):
        parameters = [
            p.clone().requires_grad_(need) for p, need in zip((x, weight, bias), wanted, strict=True)
        ]
        if fused:
            loss = SF.linear_as_softmax_loss(
                *parameters[:2], target, linear_bias=parameters[2], chunk_rows=16
            )
        else:
            loss = SF.as_softmax_loss(F.linear(*parameters), target)
        loss.backward()
        outputs.append([p.grad for p in parameters])
    for mine, true in zip(*outputs, strict=True):
        assert (mine is None) == (true is None)
        if mine is not None:
            torch.testing.assert_close(mine, true)


def test_no_products_without_a_needed_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("multiplied")

    monkeypatch.setattr(gradients.GradientAccumulator, "add", refuse)
    x, weight, _, target = batch(60, 6, 50)
    assert SF.linear_as_softmax_loss(x, weight, target) > 0
    with torch.no_grad():
        assert SF.linear_as_softmax_loss(x.requires_grad_(), weight, target) > 0


def multiplied(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The shapes of all blocks that are multiplied from now on."""
    shapes, add = [], gradients.GradientAccumulator.add

    def spy(self: gradients.GradientAccumulator, rows: Tensor, columns: Tensor | None, grad: Tensor) -> None:
        shapes.append(tuple(grad.shape))
        add(self, rows, columns, grad)

    monkeypatch.setattr(gradients.GradientAccumulator, "add", spy)
    return shapes


@pytest.mark.parametrize("state", STATES)
def test_won_rows_are_not_multiplied(monkeypatch: pytest.MonkeyPatch, state: str) -> None:
    shapes = multiplied(monkeypatch)
    x, weight, bias, target = batch(300, 16, 1001, state)
    rows = sparring.ASSoftmaxLoss().rows(F.linear(x, weight, bias), target)
    SF.linear_as_softmax_loss(x.requires_grad_(), weight, target, linear_bias=bias, chunk_rows=64).backward()
    assert sum(n for n, _ in shapes) == rows.active.sum()


def test_discarded_classes_are_not_multiplied(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two classes ahead of all others: nothing else survives."""
    shapes = multiplied(monkeypatch)
    weight = F.normalize(torch.randn(1001, 64, generator=torch.Generator().manual_seed(0)))
    target = torch.arange(100)
    x = 30 * (weight[target] + weight[target + 1])  # each with half of the probability
    SF.linear_as_softmax_loss(x.requires_grad_(), weight, target).backward()
    assert sum(n for n, _ in shapes) == 100
    assert all(width <= 101 for _, width in shapes)


def test_small_blocks_wait_for_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    shapes = multiplied(monkeypatch)
    x, weight, bias, target = batch(640, 16, 200, "all won")
    lost = [start + 1 if (start + 1) % 5 else start + 2 for start in range(0, 640, 64)]
    x[lost] *= -1  # one valid row of each chunk is lost
    SF.linear_as_softmax_loss(x.requires_grad_(), weight, target, linear_bias=bias, chunk_rows=64).backward()
    assert shapes == [(10, 200)]


class LargeTensors(TorchDispatchMode):
    """Records the shapes of the tensors that are made, from a number of elements on."""

    def __init__(self, n_elements: int) -> None:
        super().__init__()
        self.n_elements = n_elements
        self.shapes: list[tuple[int, ...]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        known = {x.untyped_storage().data_ptr() for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)}
        result = func(*args, **(kwargs or {}))
        for x in tree_leaves(result):
            is_large = isinstance(x, Tensor) and x.numel() >= self.n_elements
            if is_large and x.untyped_storage().data_ptr() not in known:
                self.shapes.append(tuple(x.shape))
        return result


@pytest.mark.parametrize("make", [LinearLoss, ClassParallelHead])
@pytest.mark.parametrize("name", ["as-softmax", "sparse-softmax"])
def test_a_frozen_head_has_no_weight_gradient(make: Any, name: str) -> None:
    """Neither pass makes a tensor of the size of the weights, and the features get their gradient."""
    head = make(32, 2000, loss=name, chunk_rows=8)
    for trained in (True, False):
        head.requires_grad_(trained)
        features = torch.randn(16, 32, requires_grad=True)
        with LargeTensors(2000 * 32) as large:
            head(features, torch.arange(16)).backward()
        assert bool(large.shapes) == trained
        assert features.grad is not None
        assert bool(features.grad.any())
    assert all(parameter.grad is not None for parameter in head.parameters()), "of the first of both"
