"""Hooks of every kind torch has, put on before, in and after the forward: a compacted model calls them as often as a plain one,
with the same gradients, and ends with the same gradients."""

from __future__ import annotations

import copy
import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd.graph import register_multi_grad_hook
from torch.nn.modules.module import register_module_full_backward_hook
from torch.utils.checkpoint import checkpoint

from sparring.training import skip

N = 20
SHARES = (0.0, 0.5, 0.9, 1.0)
Calls = list[tuple[str, list[Tensor | None]]]


class Net(nn.Module):
    """An activation that can be got hold of (``h``), and a place in the forward where hooks are registered (``during``)."""

    def __init__(self, variant: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.variant = variant
        self.first, self.second, self.head = nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, 4)
        self.norm = nn.BatchNorm1d(8) if variant == "batch norm" else nn.LayerNorm(8)
        self.during: Callable[[Net], None] = _nothing
        self.h = torch.zeros(())

    def forward(self, x: Tensor) -> Any:
        self.h = h = self.norm(torch.tanh(self.first(x)))
        self.during(self)
        inner = checkpoint(self.second, h, use_reentrant=True) if self.variant == "reentrant" else self.second(h)
        logits = self.head(inner.relu())
        return (logits, h) if self.variant == "returns both" else logits


def _nothing(_: Net) -> None:
    pass


VARIANTS = ("plain", "batch norm", "returns both", "reentrant")


def node_hook(calls: Calls, name: str) -> Callable[..., Any]:
    def hook(grad_inputs: Any, grad_outputs: Any) -> Any:
        calls.append((name, [None if g is None else g.clone() for g in grad_outputs]))
        return tuple(None if g is None else g * 0.5 for g in grad_inputs)

    return hook


def node_prehook(calls: Calls, name: str) -> Callable[..., Any]:
    def hook(grads: Any) -> Any:
        calls.append((name, [None if g is None else g.clone() for g in grads]))
        return tuple(None if g is None else g * 0.5 for g in grads)

    return hook


def tensor_hook(calls: Calls, name: str) -> Callable[[Tensor], Tensor]:
    def hook(grad: Tensor) -> Tensor:
        calls.append((name, [grad.clone()]))
        return grad.clamp(-0.01, 0.01) * 0.5  # not linear: it matters that the whole gradient comes at once

    return hook


def module_hook(calls: Calls, name: str) -> Callable[..., Any]:
    def hook(_: nn.Module, grad_inputs: Any, grad_outputs: Any) -> Any:
        calls.append((name, [None if g is None else g.clone() for g in grad_outputs]))
        return tuple(None if g is None else g * 0.5 for g in grad_inputs)

    return hook


def module_prehook(calls: Calls, name: str) -> Callable[..., Any]:
    def hook(_: nn.Module, grad_outputs: Any) -> Any:
        calls.append((name, [None if g is None else g.clone() for g in grad_outputs]))
        return tuple(None if g is None else g * 0.5 for g in grad_outputs)

    return hook


def post_accumulate_hook(calls: Calls, name: str) -> Callable[[Tensor], None]:
    def hook(parameter: Tensor) -> None:
        assert parameter.grad is not None
        calls.append((name, [parameter.grad.clone()]))
        parameter.grad.mul_(0.5)

    return hook


def accumulator(net: Net) -> Any:
    weight = net.first.weight
    net.kept_alive = weight.expand_as(weight).grad_fn  # type: ignore[assignment]
    return net.kept_alive.next_functions[0][0]


def retain_after(net: Net, calls: Calls) -> None:
    net.h.retain_grad()


ON_ACTIVATIONS: dict[str, Callable[[Net, Calls], Any]] = {
    "tensor": lambda net, calls: net.h.register_hook(tensor_hook(calls, "tensor")),
    "tensor, by keyword": lambda net, calls: net.h.register_hook(hook=tensor_hook(calls, "tensor")),
    "two on one tensor": lambda net, calls: [net.h.register_hook(tensor_hook(calls, str(i))) for i in range(2)],
    "retain_grad": retain_after,
    "node": lambda net, calls: net.h.grad_fn.register_hook(node_hook(calls, "node")),
    "node, before": lambda net, calls: net.h.grad_fn.register_prehook(node_prehook(calls, "prehook")),
}
ON_LEAVES: dict[str, Callable[[Net, Calls], Any]] = {
    "leaf": lambda net, calls: net.first.weight.register_hook(tensor_hook(calls, "leaf")),
    "all leaves": lambda net, calls: [p.register_hook(tensor_hook(calls, n)) for n, p in net.named_parameters()],
    "post-accumulate": lambda net, calls: [
        p.register_post_accumulate_grad_hook(post_accumulate_hook(calls, n)) for n, p in net.named_parameters()
    ],
    "accumulator": lambda net, calls: accumulator(net).register_hook(node_hook(calls, "accumulator")),
    "accumulator, before": lambda net, calls: accumulator(net).register_prehook(node_prehook(calls, "accumulator")),
    "module": lambda net, calls: net.second.register_full_backward_hook(module_hook(calls, "module")),
    "module, before": lambda net, calls: net.second.register_full_backward_pre_hook(module_prehook(calls, "module")),
    "the model": lambda net, calls: net.register_full_backward_hook(module_hook(calls, "model")),
    "the model, before": lambda net, calls: net.register_full_backward_pre_hook(module_prehook(calls, "model")),
}
MOMENTS = [
    *((kind, moment) for kind in ON_ACTIVATIONS for moment in ("in", "after", "in another thread")),
    *((kind, moment) for kind in ON_LEAVES for moment in ("before", "in", "after", "in another thread")),
]


def register(kind: str, net: Net, calls: Calls) -> None:
    (ON_ACTIVATIONS | ON_LEAVES)[kind](net, calls)


def weights(won: float) -> Tensor:
    return (torch.arange(N) >= round(N * won)).float()


def loss_of(output: Any, net: Net, won: float) -> Tensor:
    logits, h = output if isinstance(output, tuple) else (output, None)
    loss = (logits.logsumexp(1) * weights(won)).sum() / N
    loss = loss + (net.first.weight * 0.01).square().sum()  # a leaf gets gradient from elsewhere too
    return loss if h is None else loss + (h.square().sum(1) * weights(won)).sum() / N


def run(net: Net, kind: str, moment: str, won: float) -> tuple[Calls, list[Tensor | None]]:
    calls: Calls = []
    if moment == "before":
        register(kind, net, calls)
    if moment == "in":
        net.during = lambda net: register(kind, net, calls)
    torch.manual_seed(1)
    output = net(torch.randn(N, 6))
    if moment == "after":
        register(kind, net, calls)
    if moment == "in another thread":
        thread = threading.Thread(target=register, args=(kind, net, calls))
        thread.start()
        thread.join()
    loss_of(output, net, won).backward()
    retained = [net.h.grad] if net.h.retains_grad else []
    return calls, [*retained, *(p.grad for p in net.parameters())]


def same(plain: tuple[Calls, list[Tensor | None]], compacted: tuple[Calls, list[Tensor | None]]) -> None:
    assert sorted(name for name, _ in compacted[0]) == sorted(name for name, _ in plain[0])
    for (_, expected), (_, got) in zip(sorted(plain[0], key=_name), sorted(compacted[0], key=_name), strict=True):
        for a, b in zip(expected, got, strict=True):
            torch.testing.assert_close(b, a, rtol=1e-5, atol=1e-7)
    for a, b in zip(plain[1], compacted[1], strict=True):
        torch.testing.assert_close(b, a, rtol=1e-5, atol=1e-7)


def _name(call: tuple[str, Any]) -> str:
    return call[0]


@pytest.mark.filterwarnings("ignore:Full backward hook is firing")  # torch says so where no input requires a gradient
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
    register_multi_grad_hook(tensors, lambda grads: calls.append(("multi", [g if g is None else g.clone() for g in grads])))


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
    net.during = _nothing
    output = net(torch.randn(N, 6))
    multi([net.h, output], [])
    with pytest.raises(RuntimeError, match="inside forward"):
        loss_of(output, net, won).backward()


@pytest.mark.parametrize("won", SHARES)
@pytest.mark.parametrize("variant", ["plain", "batch norm", "returns both"])
@pytest.mark.parametrize("on", ["logits", "states", "retained logits", "retained states", "node", "node, before"])
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
        results.append((calls, [tensor.grad if tensor.retains_grad else None, *(p.grad for p in net.parameters())]))
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
        (loss_of(output, net, won) + x.square().sum()).backward()  # the input gets gradient from elsewhere too
        results.append((calls, [x.grad if x.retains_grad else None, leaf.grad, *(p.grad for p in net.parameters())]))
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


@pytest.mark.parametrize("won", SHARES)
@pytest.mark.parametrize("kind", ["tensor", "node", "leaf", "post-accumulate"])
def test_one_that_raises_leaves_nothing_behind(kind: str, won: float) -> None:
    def fail(*_: Any) -> None:
        raise KeyError("hook")

    net = Net("plain")
    skip.compact(net)
    x = torch.randn(N, 6)
    other = net.first.weight.register_hook(lambda grad: grad * 2)
    output = net(x)
    handles = {
        "tensor": lambda: net.h.register_hook(fail),
        "node": lambda: net.h.grad_fn.register_hook(fail),
        "leaf": lambda: net.first.bias.register_hook(fail),
        "post-accumulate": lambda: net.first.bias.register_post_accumulate_grad_hook(fail),
    }
    handle = handles[kind]()
    with pytest.raises(KeyError, match="hook"):
        loss_of(output, net, won).backward()
    handle.remove()
    net.zero_grad()
    twin = Net("plain")
    twin.first.weight.register_hook(lambda grad: grad * 2)
    for model in (twin, net):
        loss_of(model(x), model, won).backward()
    for a, b in zip(twin.parameters(), net.parameters(), strict=True):
        torch.testing.assert_close(b.grad, a.grad)
    assert next(iter(net.first.weight._backward_hooks.values())).__name__ == "<lambda>"  # not wrapped for good
    other.remove()


def test_a_loss_that_reaches_a_hooked_activation_twice_is_refused() -> None:
    net = Net("plain")
    skip.compact(net)
    output = net(torch.randn(N, 6))
    net.h.register_hook(lambda grad: grad.clamp(-1, 1))
    with pytest.raises(RuntimeError, match="second way"):
        (loss_of(output, net, 0.5) + net.h.square().sum()).backward()


def test_on_an_output_that_shares_its_graph_with_others() -> None:
    class Overlapping(Net):
        def forward(self, x: Tensor) -> Any:
            u = self.first(x).tanh()
            h = self.second(u)
            return self.head(h * u), h  # logits are made of h, and of what h is made of

    torch.manual_seed(0)
    net = Overlapping("returns both")
    twin = copy.deepcopy(net)
    compaction = skip.compact(net)
    for model in (twin, net):
        loss_of(model(torch.ones(N, 6)), model, 0.5).backward()
    assert compaction.stats.n_skipping == 1
    for a, b in zip(twin.parameters(), net.parameters(), strict=True):
        torch.testing.assert_close(b.grad, a.grad)
    output = net(torch.randn(N, 6))
    output[0].register_hook(lambda grad: grad * 2)  # the last one may have hooks
    loss_of(output, net, 0.5).backward()
    output = net(torch.randn(N, 6))
    output[1].register_hook(lambda grad: grad * 2)
    loss = loss_of(output, net, 0.5)
    del output
    with pytest.raises(RuntimeError, match="other outputs are made of"):
        loss.backward()


def test_graphs_are_freed_without_the_garbage_collector() -> None:
    gc.disable()
    try:
        for variant in VARIANTS:
            net = Net(variant)
            skip.compact(net)
            output = net(torch.randn(N, 6))
            alive = weakref.ref(net.h)
            del output
            net.h = torch.zeros(())
            assert alive() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("won", SHARES)
def test_a_compacted_model_in_a_compacted_model(won: float) -> None:
    net = nn.Sequential(nn.Linear(6, 6), Net("plain"))
    twin = copy.deepcopy(net)
    calls: list[list[Tensor]] = [[], []]
    for model, found in zip((twin, net), calls, strict=True):
        model[1].first.weight.register_hook(lambda grad, found=found: found.append(grad.clone()))
    skip.compact(net[1])
    skip.compact(net)
    for model in (twin, net):
        loss_of(model(torch.linspace(-1, 1, N * 6).view(N, 6)), model[1], won).backward()
    assert len(calls[1]) == 1
    torch.testing.assert_close(calls[1], calls[0])
    for a, b in zip(twin.parameters(), net.parameters(), strict=True):
        torch.testing.assert_close(b.grad, a.grad)


def test_an_unused_output_calls_no_hook() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.a, self.b = nn.Linear(6, 8), nn.Linear(8, 4), nn.Linear(8, 4)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            h = self.body(x).tanh()
            return self.a(h), self.b(h)

    net, calls = Two(), []
    net.b.weight.register_hook(calls.append)
    skip.compact(net)
    for used, expected in ((0, 0), (1, 1)):
        net.zero_grad()
        (net(torch.randn(N, 6))[used].logsumexp(1) * weights(0.5)).sum().backward()
        assert len(calls) == expected
        assert (net.b.weight.grad is None) == (used == 0)


def test_threads_that_register_hooks_meanwhile() -> None:
    """Hooks of unrelated tensors neither fail nor stop the skipping, and one model in two threads is exact."""
    stop, failures = threading.Event(), []

    def disturb() -> None:
        x = torch.ones(3, requires_grad=True)
        while not stop.is_set():
            try:
                y = x * 2
                y.register_hook(hook=lambda grad: grad)
                y.retain_grad()
            except Exception as error:
                failures.append(error)

    net = Net("plain")
    net.first.weight.register_hook(lambda grad: grad.clamp(-0.01, 0.01))
    twin = copy.deepcopy(net)
    twin.first.weight.register_hook(lambda grad: grad.clamp(-0.01, 0.01))
    loss_of(twin(torch.ones(N, 6)), twin, 0.5).backward()
    expected = [p.grad for p in twin.parameters()]
    compaction = skip.compact(net)

    def train() -> None:
        for _ in range(20):
            output = net(torch.ones(N, 6))
            grads = torch.autograd.grad(loss_of(output, net, 0.5), list(net.parameters()))
            for a, b in zip(expected, grads, strict=True):
                torch.testing.assert_close(b, a)

    def guarded() -> None:
        try:
            train()
        except Exception as error:
            failures.append(error)

    disturbing = threading.Thread(target=disturb)
    disturbing.start()
    trainers = [threading.Thread(target=guarded) for _ in range(2)]
    for thread in trainers:
        thread.start()
    for thread in trainers:
        thread.join()
    for _ in range(20):
        net.zero_grad()
        loss_of(net(torch.ones(N, 6)), net, 0.5).backward()
        for a, p in zip(expected, net.parameters(), strict=True):
            torch.testing.assert_close(p.grad, a)
    stop.set()
    disturbing.join()
    assert not failures
    assert compaction.stats.n_skipping == 20


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_a_forward_that_is_interrupted_leaves_nothing_behind(error: type[BaseException]) -> None:
    def fail(_: Net) -> None:
        raise error

    net = Net("plain")
    compaction = skip.compact(net)
    net.during = fail
    with pytest.raises(error):
        net(torch.randn(N, 6))
    net.during = _nothing
    loss_of(net(torch.randn(N, 6)), net, 0.5).backward()
    assert compaction.stats.n_skipping == 1
    net.during = lambda net: net.h.register_hook(lambda grad: grad * 3)
    loss_of(net(torch.randn(N, 6)), net, 0.5).backward()
    assert compaction.stats.reasons == {"hooks": 1}
