"""Hooks of every kind torch has, put on before, in and after the forward: a compacted model calls them as often as a plain one,
with the same gradients, and ends with the same gradients."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor
from torch.autograd.graph import register_multi_grad_hook
from torch.nn.modules.module import register_module_full_backward_hook

from sparring.backward import skipper as skip
from tests.hostile.hooked import (
    MOMENTS,
    SHARES,
    VARIANTS,
    Calls,
    N,
    Net,
    loss_of,
    module_hook,
    node_prehook,
    nothing,
    run,
    same,
    tensor_hook,
)


@pytest.mark.filterwarnings(
    "ignore:Full backward hook is firing"
)  # torch says so where no input requires a gradient
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(("kind", "moment"), MOMENTS)
def test_called_as_often_and_with_the_same(kind: str, moment: str, variant: str) -> None:
    for won in SHARES:
        net = Net(variant)
        plain = run(copy.deepcopy(net), kind, moment, won)
        skip.compact(net)
        same(plain, run(net, kind, moment, won))
        if moment == "before":
            assert plain[0], "the hook was never called: this case shows nothing"


def multi(tensors: list[Tensor], calls: Calls) -> None:
    register_multi_grad_hook(
        tensors, lambda grads: calls.append(("multi", [g if g is None else g.clone() for g in grads]))
    )


@pytest.mark.parametrize("won", SHARES)
def test_a_hook_of_several_tensors(won: float) -> None:
    """In the forward it is torch's own business; after it, it cannot be right, so it is refused."""
    results = []
    for compacted in (False, True):
        net, calls = Net("plain"), []
        if compacted:
            skip.compact(net)
        net.during = lambda net, calls=calls: multi([net.h, net.first.weight], calls)
        loss_of(net(torch.linspace(-1, 1, N * 6).view(N, 6)), net, won).backward()
        results.append((calls, [p.grad for p in net.parameters()]))
    same(*results)
    net.during = nothing
    output = net(torch.randn(N, 6))
    multi([net.h, output], [])
    with pytest.raises(RuntimeError, match="inside forward"):
        loss_of(output, net, won).backward()


@pytest.mark.parametrize("won", SHARES)
@pytest.mark.parametrize("variant", ["plain", "batch norm", "returns both"])
@pytest.mark.parametrize(
    "on", ["logits", "states", "retained logits", "retained states", "node", "node, before"]
)
def test_on_outputs(on: str, variant: str, won: float) -> None:
    results = []
    for compacted in (False, True):
        net, calls = Net(variant), []
        if compacted:
            skip.compact(net)
        output = net(torch.linspace(-1, 1, N * 6).view(N, 6))
        logits, states = output if isinstance(output, tuple) else (output, output)
        tensor = states if "states" in on else logits
        if on.startswith("retained"):
            tensor.retain_grad()
        elif on == "node":
            logits.grad_fn.register_hook(lambda *_, calls=calls: calls.append(("node", [])))
        elif on == "node, before":
            logits.grad_fn.register_prehook(node_prehook(calls, "prehook"))
        else:
            tensor.register_hook(tensor_hook(calls, on))
        loss_of(output, net, won).backward()
        results.append(
            (calls, [tensor.grad if tensor.retains_grad else None, *(p.grad for p in net.parameters())])
        )
    assert on.startswith("retained") or results[0][0]
    same(*results)


@pytest.mark.parametrize("won", SHARES)
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("on", ["leaf", "activation", "retained activation"])
def test_on_inputs(on: str, moment: str, variant: str, won: float) -> None:
    results = []
    for compacted in (False, True):
        net, calls = Net(variant), []
        if compacted:
            skip.compact(net)
        leaf = torch.linspace(-1, 1, N * 6).view(N, 6).requires_grad_()
        x = leaf * 2

        def put(x: Tensor = x, leaf: Tensor = leaf, calls: Calls = calls) -> None:
            if on == "retained activation":
                x.retain_grad()
            else:
                (leaf if on == "leaf" else x).register_hook(tensor_hook(calls, on))

        if moment == "before":
            put()
        output = net(x)
        if moment == "after":
            put()
        (
            loss_of(output, net, won) + x.square().sum()
        ).backward()  # the input gets gradient from elsewhere too
        results.append(
            (calls, [x.grad if x.retains_grad else None, leaf.grad, *(p.grad for p in net.parameters())])
        )
    same(*results)


@pytest.mark.filterwarnings("ignore:Full backward hook is firing")
def test_of_all_modules() -> None:
    calls: Calls = []
    handle = register_module_full_backward_hook(module_hook(calls, "all"))
    try:
        plain = run(Net("plain"), "leaf", "never", 0.5)
        n_calls = len(calls)
        net = Net("plain")
        skip.compact(net)
        same(plain, run(net, "leaf", "never", 0.5))
    finally:
        handle.remove()
    assert len(calls) == 2 * n_calls > 0
