"""Products are made over what survives, of what is wanted."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import sparring
from sparring import functional as SF
from sparring.heads import gradients
from tests.heads.cases import STATES, batch


@pytest.mark.parametrize(
    "wanted", [(True, False, False), (False, True, False), (False, False, True), (True, False, True)]
)
def test_frozen_parameters(wanted: tuple[bool, bool, bool]) -> None:
    x, weight, bias, target = batch(60, 6, 50)
    found = []
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


def multiplied(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Rows and classes of every pair of products that is made from now on."""
    made, multiply = [], gradients.Gradients.add

    def spy(self: gradients.Gradients, rows: Tensor, columns: Tensor | None, grad: Tensor) -> None:
        made.append(tuple(grad.shape))
        multiply(self, rows, columns, grad)

    monkeypatch.setattr(gradients.Gradients, "add", spy)
    return made


@pytest.mark.parametrize("state", STATES)
def test_won_rows_are_not_multiplied(monkeypatch: pytest.MonkeyPatch, state: str) -> None:
    made = multiplied(monkeypatch)
    x, weight, bias, target = batch(300, 16, 1001, state)
    rows = sparring.ASSoftmaxLoss().rows(F.linear(x, weight, bias), target)
    SF.linear_as_softmax_loss(x.requires_grad_(), weight, target, linear_bias=bias, chunk_rows=64).backward()
    assert sum(n for n, _ in made) == rows.active.sum()


def test_discarded_classes_are_not_multiplied(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two classes ahead of all others: nothing else survives."""
    made = multiplied(monkeypatch)
    weight = F.normalize(torch.randn(1001, 64, generator=torch.Generator().manual_seed(0)))
    target = torch.arange(100)
    x = 30 * (weight[target] + weight[target + 1])  # each with half of the probability
    SF.linear_as_softmax_loss(x.requires_grad_(), weight, target).backward()
    assert sum(n for n, _ in made) == 100
    assert all(width <= 101 for _, width in made)


def test_small_blocks_wait_for_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    made = multiplied(monkeypatch)
    x, weight, bias, target = batch(640, 16, 200, "all won")
    x[
        [start + 1 if (start + 1) % 5 else start + 2 for start in range(0, 640, 64)]
    ] *= -1  # one valid row a chunk is lost
    SF.linear_as_softmax_loss(x.requires_grad_(), weight, target, linear_bias=bias, chunk_rows=64).backward()
    assert made == [(10, 200)]
