"""Every loss under every way to differentiate: batched gradients, forward mode, nested, fake tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd.functional import hessian, jacobian

import sparring
from tests.cases import CASES, IDS, batch, make

every_case = pytest.mark.parametrize(("name", "settings"), CASES, ids=IDS)
Function = Callable[[Tensor], Tensor]


def batched(f: Function, x: Tensor) -> Tensor:
    """The Jacobian by `is_grads_batched`."""
    x = x.clone().requires_grad_()
    y = f(x)
    every_output = torch.eye(y.numel(), dtype=y.dtype).reshape(-1, *y.shape)
    (rows,) = torch.autograd.grad(y, x, every_output, is_grads_batched=True)
    return rows.reshape(*y.shape, *x.shape)


def vmapped(f: Function, x: Tensor) -> Tensor:
    """The Jacobian by torch.func.vmap around torch.autograd.grad."""
    x = x.clone().requires_grad_()
    y = f(x)
    every_output = torch.eye(y.numel(), dtype=y.dtype).reshape(-1, *y.shape)
    rows = torch.func.vmap(lambda v: torch.autograd.grad(y, x, v, retain_graph=True)[0])(every_output)
    return rows.reshape(*y.shape, *x.shape)


JACOBIANS: dict[str, Callable[[Function, Tensor], Tensor]] = {
    "vectorize": lambda f, x: jacobian(f, x, vectorize=True),
    "vectorize-forward": lambda f, x: jacobian(f, x, vectorize=True, strategy="forward-mode"),
    "is_grads_batched": batched,
    "vmap-of-grad": vmapped,
    "jacrev": lambda f, x: torch.func.jacrev(f)(x),
    "jacfwd": lambda f, x: torch.func.jacfwd(f)(x),
}
HESSIANS: dict[str, Callable[[Function, Tensor], Tensor]] = {
    "vectorize": lambda f, x: hessian(f, x, vectorize=True),
    "vectorize-forward": lambda f, x: hessian(f, x, vectorize=True, outer_jacobian_strategy="forward-mode"),
    "forward-over-reverse": lambda f, x: torch.func.hessian(f)(x),
    "reverse-over-forward": lambda f, x: torch.func.jacrev(torch.func.jacfwd(f))(x),
    "forward-over-forward": lambda f, x: torch.func.jacfwd(torch.func.jacfwd(f))(x),
}


@every_case
@pytest.mark.parametrize("reduction", ["none", "mean"])
def test_every_jacobian_is_the_plain_one(name: str, settings: dict[str, Any], reduction: str) -> None:
    logits, target = batch(name, n_rows=6, n_classes=5, dtype=torch.float64)
    loss = make(name, settings, reduction=reduction)

    def f(x: Tensor) -> Tensor:
        return loss(x, target)

    expected = jacobian(f, logits)
    for way, transform in JACOBIANS.items():
        torch.testing.assert_close(transform(f, logits), expected, msg=lambda text, way=way: f"{way}: {text}")


@every_case
def test_every_hessian_is_the_plain_one(name: str, settings: dict[str, Any]) -> None:
    logits, target = batch(name, n_rows=6, n_classes=5, dtype=torch.float64)
    loss = make(name, settings)

    def f(x: Tensor) -> Tensor:
        return loss(x, target)

    expected = hessian(f, logits)
    for way, transform in HESSIANS.items():
        torch.testing.assert_close(transform(f, logits), expected, msg=lambda text, way=way: f"{way}: {text}")


@every_case
def test_a_batch_of_gradients_does_not_change_the_graph(name: str, settings: dict[str, Any]) -> None:
    logits, target = batch(name)
    x = logits.requires_grad_()
    value = make(name, settings)(x, target)
    scales = torch.tensor([1.0, 2.0, -3.0])
    (many,) = torch.autograd.grad(value, x, scales, is_grads_batched=True, retain_graph=True)
    (single,) = torch.autograd.grad(value, x, retain_graph=True)
    torch.testing.assert_close(many, scales[:, None, None] * single)
    (again,) = torch.autograd.grad(value, x, scales, is_grads_batched=True)
    assert torch.equal(many, again)


@every_case
def test_fake_tensors(name: str, settings: dict[str, Any]) -> None:
    logits, target = batch(name)
    mode = FakeTensorMode()
    x, labels = mode.from_tensor(logits).requires_grad_(), mode.from_tensor(target)
    with mode:
        rows = make(name, settings).rows(x, labels)
        rows.mean().backward()
    assert rows.value.shape == rows.active.shape == (12,)
    assert x.grad is not None
    assert x.grad.shape == logits.shape


@pytest.mark.parametrize("name", ["sparsemax", "entmax15"])
def test_the_tangent_is_the_dot_product_with_p_minus_onehot(name: str) -> None:
    logits, target = batch(name, dtype=torch.float64)
    loss = sparring.make_loss(name, reduction="none")
    x = logits.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(loss(x, target).sum(), x)
    direction = torch.randn_like(logits)
    _, tangent = torch.func.jvp(lambda x: loss(x, target), (logits,), (direction,))
    torch.testing.assert_close(tangent, (gradient * direction).sum(1))
