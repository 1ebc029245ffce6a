"""Hooks that raise, that are refused, of unused outputs, in threads; and memory that must be freed."""

from __future__ import annotations

import copy
import gc
import threading
import weakref
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from sparring import ASSoftmaxLoss
from sparring.backward.compact import compact
from sparring.training.loop import Loop
from tests.backward.twins import FunctionNet, grads_of
from tests.hostile.hooked import SHARES, VARIANTS, N, Net, loss_of, nothing, weights


@pytest.mark.parametrize("won", SHARES)
@pytest.mark.parametrize("kind", ["tensor", "node", "leaf", "post-accumulate"])
def test_one_that_raises_leaves_nothing_behind(kind: str, won: float) -> None:
    def fail(*_: Any) -> None:
        raise KeyError("hook")

    net = Net()
    compact(net)
    x = torch.randn(N, 6)
    net.first.weight.register_hook(lambda grad: grad * 2)
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
    twin = Net()
    twin.first.weight.register_hook(lambda grad: grad * 2)
    for model in (twin, net):
        loss_of(model(x), model, won).backward()
    torch.testing.assert_close(grads_of(net), grads_of(twin))
    assert next(iter(net.first.weight._backward_hooks.values())).__name__ == "<lambda>"  # no longer wrapped


def test_a_loss_that_reaches_a_hooked_activation_twice_is_refused() -> None:
    net = Net()
    compact(net)
    output = net(torch.randn(N, 6))
    net.h.register_hook(lambda grad: grad.clamp(-1, 1))
    with pytest.raises(RuntimeError, match="called twice"):
        (loss_of(output, net, 0.5) + net.h.square().sum()).backward()


def test_on_an_output_that_shares_its_graph_with_others() -> None:
    class Overlapping(Net):
        def forward(self, x: Tensor) -> Any:
            u = self.first(x).tanh()
            h = self.second(u)
            return self.head(h * u), h  # logits are computed from h, and from what h is computed from

    torch.manual_seed(0)
    net = Overlapping("returns both")
    twin = copy.deepcopy(net)
    compaction = compact(net)
    for model in (twin, net):
        loss_of(model(torch.ones(N, 6)), model, 0.5).backward()
    assert compaction.stats.n_skipping == 1
    torch.testing.assert_close(grads_of(net), grads_of(twin))
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
            compact(net)
            output = net(torch.randn(N, 6))
            alive = weakref.ref(net.h)
            del output
            net.h = torch.zeros(())
            assert alive() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("won", SHARES)
def test_a_compacted_model_in_a_compacted_model(won: float) -> None:
    net = nn.Sequential(nn.Linear(6, 6), Net())
    twin = copy.deepcopy(net)
    calls: list[list[Tensor]] = [[], []]
    for model, model_calls in zip((twin, net), calls, strict=True):
        model[1].first.weight.register_hook(lambda grad, calls=model_calls: calls.append(grad.clone()))
    compact(net[1])
    compact(net)
    for model in (twin, net):
        loss_of(model(torch.linspace(-1, 1, N * 6).view(N, 6)), model[1], won).backward()
    assert len(calls[1]) == 1
    torch.testing.assert_close(calls[1], calls[0])
    torch.testing.assert_close(grads_of(net), grads_of(twin))


def test_an_unused_output_calls_no_hook() -> None:
    def forward(net: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
        h = net.body(x).tanh()
        return net.a(h), net.b(h)

    net = FunctionNet(forward, body=nn.Linear(6, 8), a=nn.Linear(8, 4), b=nn.Linear(8, 4))
    calls: list[Tensor] = []
    net.b.weight.register_hook(calls.append)
    compact(net)
    for used, expected in ((0, 0), (1, 1)):
        net.zero_grad()
        (net(torch.randn(N, 6))[used].logsumexp(1) * weights(0.5)).sum().backward()
        assert len(calls) == expected
        assert (net.b.weight.grad is None) == (used == 0)


def test_threads_that_register_hooks_meanwhile() -> None:
    """Hooks of unrelated tensors neither fail nor prevent skipping, and one model in two threads is exact."""
    stop = threading.Event()
    failures: list[Exception] = []

    def disturb() -> None:
        x = torch.ones(3, requires_grad=True)
        while not stop.is_set():
            try:
                y = x * 2
                y.register_hook(hook=lambda grad: grad)
                y.retain_grad()
            except Exception as error:
                failures.append(error)

    net = Net()
    net.first.weight.register_hook(lambda grad: grad.clamp(-0.01, 0.01))
    twin = copy.deepcopy(net)
    twin.first.weight.register_hook(lambda grad: grad.clamp(-0.01, 0.01))
    loss_of(twin(torch.ones(N, 6)), twin, 0.5).backward()
    expected = grads_of(twin)
    compaction = compact(net)

    def train() -> None:
        for _ in range(10):
            output = net(torch.ones(N, 6))
            grads = torch.autograd.grad(loss_of(output, net, 0.5), list(net.parameters()))
            torch.testing.assert_close(list(grads), expected)

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
    for _ in range(10):
        net.zero_grad()
        loss_of(net(torch.ones(N, 6)), net, 0.5).backward()
        torch.testing.assert_close(grads_of(net), expected)
    stop.set()
    disturbing.join()
    assert not failures
    assert compaction.stats.n_skipping == 10


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_an_interrupted_forward_leaves_nothing_behind(error: type[BaseException]) -> None:
    def fail(_: Net) -> None:
        raise error

    net = Net()
    compaction = compact(net)
    net.during = fail
    with pytest.raises(error):
        net(torch.randn(N, 6))
    net.during = nothing
    loss_of(net(torch.randn(N, 6)), net, 0.5).backward()
    assert compaction.stats.n_skipping == 1
    net.during = lambda net: net.h.register_hook(lambda grad: grad * 3)
    loss_of(net(torch.randn(N, 6)), net, 0.5).backward()
    assert compaction.stats.reasons == {"hooks": 1}


def test_a_won_batch_calls_hooks() -> None:
    """A hook may add to the gradient (weight decay, for example), so the backward may not be left out."""
    from tests.training.toy import digits_like, net

    results = {}
    for mode in ("off", "micro", "rows", "two-pass"):
        torch.manual_seed(0)
        model = net(0.0)
        weight = model[0].weight
        weight.register_hook(lambda grad, weight=weight: grad + 0.1 * weight.detach())
        Loop(model, ASSoftmaxLoss(0.0), digits_like(32), epochs=2, batch_size=4, lr=0.05, skip=mode).run()
        results[mode] = [p.detach() for p in model.parameters()]
    for mode in ("micro", "rows", "two-pass"):
        torch.testing.assert_close(results[mode], results["off"], rtol=1e-4, atol=1e-5)
