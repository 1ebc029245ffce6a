"""All kinds of hooks that torch has, registered before, in and after the forward.

A compacted model calls them as often as a plain model, with the same gradients, and has the same gradients.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest
import torch
from torch import Tensor
from torch.autograd.graph import register_multi_grad_hook
from torch.nn.modules.module import register_module_full_backward_hook

from sparring.backward.compact import compact
from tests.hostile.hooked import (
    MOMENTS,
    ON_MODULES,
    SHARES,
    VARIANTS,
    Calls,
    N,
    Net,
    Result,
    assert_same,
    clones,
    inputs,
    loss_of,
    node_hook,
    node_prehook,
    nothing,
    run,
    tensor_hook,
)

pytestmark = pytest.mark.filterwarnings("ignore:Full backward hook is firing")  # no input requires a gradient


def compacted_net(variant: str = "plain") -> Net:
    net = Net(variant)
    compact(net)
    return net


@cache
def expected(variant: str, kind: str, moment: str, won: float) -> Result:
    return run(Net(variant), kind, moment, won)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(("kind", "moment"), MOMENTS)
def test_called_as_often_and_with_the_same(kind: str, moment: str, variant: str) -> None:
    for won in SHARES:
        # a plain model does not depend on the thread, nor on the moment unless the hook is a module's
        same_as = moment if kind in ON_MODULES and moment != "in another thread" else "after"
        plain = expected(variant, kind, same_as, won)
        assert_same(plain, run(compacted_net(variant), kind, moment, won))
        assert plain[0] or kind == "retain_grad" or (kind in ON_MODULES and moment != "before")


def compare(program: Callable[[Net, Calls], list[Tensor | None]], variant: str = "plain") -> Calls:
    """Run a program with a plain and a compacted network. Returns its calls of hooks."""
    results = []
    for net in (Net(variant), compacted_net(variant)):
        calls: Calls = []
        grads = program(net, calls)
        results.append((calls, [*grads, *(p.grad for p in net.parameters())]))
    assert_same(*results)
    return results[0][0]


def multi(tensors: list[Tensor], calls: Calls) -> None:
    register_multi_grad_hook(tensors, lambda grads: calls.append(("multi", clones(grads))))


@pytest.mark.parametrize("won", SHARES)
def test_a_hook_of_several_tensors(won: float) -> None:
    """Registered in the forward it is exact. After the forward it cannot be, so it is refused."""

    def program(net: Net, calls: Calls) -> list[Tensor | None]:
        net.during = lambda net: multi([net.h, net.first.weight], calls)
        loss_of(net(inputs()), net, won).backward()
        net.during = nothing
        return []

    assert compare(program)
    net = compacted_net()
    output = net(torch.randn(N, 6))
    multi([net.h, output], [])
    with pytest.raises(RuntimeError, match="inside forward"):
        loss_of(output, net, won).backward()


@pytest.mark.parametrize("won", SHARES)
@pytest.mark.parametrize("variant", ["plain", "batch norm", "returns both"])
@pytest.mark.parametrize(
    "kind", ["logits", "states", "retained logits", "retained states", "node", "node, before"]
)
def test_on_outputs(kind: str, variant: str, won: float) -> None:
    def program(net: Net, calls: Calls) -> list[Tensor | None]:
        output = net(inputs())
        logits, states = output if isinstance(output, tuple) else (output, output)
        tensor = states if "states" in kind else logits
        if kind.startswith("retained"):
            tensor.retain_grad()
        elif kind == "node":
            logits.grad_fn.register_hook(lambda *_: calls.append(("node", [])))
        elif kind == "node, before":
            logits.grad_fn.register_prehook(node_prehook(calls, "prehook"))
        else:
            tensor.register_hook(tensor_hook(calls, kind))
        loss_of(output, net, won).backward()
        return [tensor.grad] if tensor.retains_grad else []

    assert compare(program, variant) or kind.startswith("retained")


@pytest.mark.parametrize("won", SHARES)
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("kind", ["leaf", "activation", "retained activation"])
def test_on_inputs(kind: str, moment: str, variant: str, won: float) -> None:
    def program(net: Net, calls: Calls) -> list[Tensor | None]:
        leaf = inputs().requires_grad_()
        x = leaf * 2

        def register() -> None:
            if kind == "retained activation":
                x.retain_grad()
            else:
                (leaf if kind == "leaf" else x).register_hook(tensor_hook(calls, kind))

        if moment == "before":
            register()
        output = net(x)
        if moment == "after":
            register()
        (
            loss_of(output, net, won) + x.square().sum()
        ).backward()  # the input gets gradient from elsewhere too
        return [x.grad if x.retains_grad else None, leaf.grad]

    assert compare(program, variant) or kind.startswith("retained")


def test_of_all_modules() -> None:
    calls: Calls = []
    n_calls = []

    def program(net: Net, _: Calls) -> list[Tensor | None]:
        loss_of(net(inputs()), net, 0.5).backward()
        n_calls.append(len(calls))
        return []

    handle = register_module_full_backward_hook(node_hook(calls, "all"))
    try:
        compare(program)
    finally:
        handle.remove()
    assert n_calls[1] == 2 * n_calls[0] > 0
