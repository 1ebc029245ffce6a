"""Hooks that raise, that are refused, of unused outputs, in threads; and what a compacted model leaves behind."""

from __future__ import annotations

import copy
import gc
import threading
import weakref
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from sparring.backward import skipper as skip
from tests.hostile.hooked import SHARES, VARIANTS, N, Net, loss_of, nothing, weights


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
    assert (
        next(iter(net.first.weight._backward_hooks.values())).__name__ == "<lambda>"
    )  # not wrapped for good
    other.remove()


def test_a_loss_that_reaches_a_hooked_activation_twice_is_refused() -> None:
    net = Net("plain")
    skip.compact(net)
    output = net(torch.randn(N, 6))
    net.h.register_hook(lambda grad: grad.clamp(-1, 1))
    with pytest.raises(RuntimeError, match="called twice"):
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
    with pytest.raises(RuntimeError, match="other outputs are computed"):
        loss.backward()


def test_graphs_are_freed_without_the_garbage_collector() -> None:
    gc.disable()
    try:
        for variant in VARIANTS:
            if variant == "reentrant":
                continue  # torch 2.6 itself needs the collector there
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
    net.during = nothing
    loss_of(net(torch.randn(N, 6)), net, 0.5).backward()
    assert compaction.stats.n_skipping == 1
    net.during = lambda net: net.h.register_hook(lambda grad: grad * 3)
    loss_of(net(torch.randn(N, 6)), net, 0.5).backward()
    assert compaction.stats.reasons == {"hooks": 1}
