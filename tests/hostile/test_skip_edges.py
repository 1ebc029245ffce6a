"""Programs that once gave other gradients with `skip.compact` than without, or failed there alone."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd.graph import register_multi_grad_hook, saved_tensors_hooks

from sparring.backward import skipper as skip

X = torch.linspace(-1, 1, 32).view(8, 4)


class Net(nn.Module):
    """Two layers, and any forward."""

    def __init__(self, forward: Callable[..., Any]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b, self.function = nn.Linear(4, 4), nn.Linear(4, 4), forward
        self.kept = torch.zeros(8, 4)

    def forward(self, *args: Any) -> Any:
        return self.function(self, *args)


class Parts(torch.autograd.Function):
    """Two results, one of which may have no gradient; and one None more than it has arguments."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        return x * 2, y * 3

    @staticmethod
    def backward(ctx: Any, x: Tensor | None, y: Tensor | None) -> tuple[Tensor | None, ...]:
        return None if x is None else x * 2, None if y is None else y * 3, None


def keep(net: Net, x: Tensor) -> Tensor:
    net.kept = net.a(x)
    return net.kept


def step(net: Net, x: Tensor) -> Tensor:
    net.kept = (net.a(x) + net.b(net.kept)).tanh()
    return net.kept


def a_buffer_is_reused(net: nn.Module) -> None:
    buffer = X.clone().view(8, 1, 4)
    loss = net(buffer)[:3].sum()
    buffer.zero_()
    loss.backward()


def the_output_is_kept_and_changed(net: Net) -> None:
    loss = net(X)[:3].sum()
    net.kept.mul_(2)
    loss.backward()


def the_output_is_kept_and_detached(net: Net) -> None:
    loss = net(X)[:3].sum()
    net.kept.detach_()
    loss.backward()


def two_steps(net: Net) -> None:
    (net(X).sum() + net(X).sum()).backward()


def a_hook_on_what_two_forwards_share(net: Net) -> None:
    leaf = torch.ones(4, requires_grad=True)
    net.kept = leaf + 3
    first, second = net(X), net(X)
    net.kept.register_hook(lambda grad: grad.clamp(max=10))
    (first.sum() + second.sum()).backward()
    net.a.weight.grad = leaf.grad


def a_hook_on_what_another_thread_made(net: Net) -> None:
    leaf = torch.ones(4, requires_grad=True)

    def make() -> None:
        for _ in range(3000):  # torch numbers nodes by thread
            torch.ones(1, requires_grad=True).exp()
        net.kept = leaf + 3
        net.kept.register_hook(lambda grad: grad * 100)

    thread = threading.Thread(target=make)
    thread.start()
    thread.join()
    net(X)[:3].sum().backward()
    net.a.weight.grad = leaf.grad


def a_removed_hook_of_several_tensors(net: Net) -> None:
    output = net(X)
    register_multi_grad_hook([net.kept], lambda _: None).remove()
    output[:3].sum().backward()


def frozen_meanwhile(net: Net) -> None:
    loss = net(X).sum()
    net.a.requires_grad_(False)
    loss.backward()


def usual(net: nn.Module) -> None:
    net(X)[:3].sum().backward()


PROGRAMS: dict[str, tuple[Callable[[], nn.Module], Callable[[Any], None]]] = {
    "a buffer is reused": (lambda: nn.Conv1d(1, 2, 3), a_buffer_is_reused),
    "the output is kept and changed": (lambda: Net(keep), the_output_is_kept_and_changed),
    "the output is kept and detached": (lambda: Net(keep), the_output_is_kept_and_detached),
    "two steps of a network with a state": (lambda: Net(step), two_steps),
    "a hook on what two forwards share": (
        lambda: Net(lambda net, x: net.a(x) + net.kept),
        a_hook_on_what_two_forwards_share,
    ),
    "a hook on what another thread made": (
        lambda: Net(lambda net, x: net.a(x) + net.kept),
        a_hook_on_what_another_thread_made,
    ),
    "a removed hook of several tensors": (lambda: Net(keep), a_removed_hook_of_several_tensors),
    "frozen meanwhile": (lambda: Net(lambda net, x: net.b(net.a(x))), frozen_meanwhile),
    "None for a gradient": (lambda: Net(lambda net, x: Parts.apply(net.a(x), net.b(x))[0]), usual),
    "an empty memory": (lambda: Net(lambda net, x: net.a(x) + net.b(x.new_zeros(8, 0, 4)).sum(1)), usual),
    "a sparse adjacency": (lambda: Net(lambda net, x: torch.eye(8).to_sparse_csr() @ net.a(x)), usual),
}


def outcome(name: str, compacted: bool) -> Any:
    make, run = PROGRAMS[name]
    net = make()
    if compacted:
        skip.compact(net)
    try:
        run(net)
    except RuntimeError as error:
        return str(error)[:60]
    return [parameter.grad for parameter in net.parameters()]


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
@pytest.mark.parametrize("name", PROGRAMS)
def test_as_without(name: str) -> None:
    plain, compact = outcome(name, False), outcome(name, True)
    assert type(plain) is type(compact), (plain, compact)
    if isinstance(plain, str):
        assert compact == plain
        return
    for a, b in zip(plain, compact, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            torch.testing.assert_close(b, a)


def test_sparse_optimizers_see_the_same_indices() -> None:
    ends = []
    for compacted in (False, True):
        torch.manual_seed(0)
        net = nn.Embedding(9, 2, sparse=True)
        if compacted:
            skip.compact(net)
        optimizer = torch.optim.SparseAdam(net.parameters(), lr=0.1)
        for n in (8, 3):
            optimizer.zero_grad()
            net(torch.arange(8))[:n].sum().backward()
            optimizer.step()
        ends.append(net.weight.detach())
    assert torch.equal(*ends)


def _both(net: Net, x: Tensor) -> tuple[Tensor, Tensor]:
    h = net.a(x)
    return h, h[:, :2]


def _base_changed(net: Net) -> None:
    base, view = net(X)
    base.mul_(2)
    view.sum().backward()


def _stash_used(net: Net) -> None:
    output = net(X)
    output.mul_(2)
    (output.sum() + net.kept.sum()).backward()


def _view_of_input_changed(net: Net) -> None:
    x = torch.ones(8, 4, requires_grad=True) * 1
    output = net(x)
    output.mul_(2)
    (output.sum() + x.sum()).backward()


@pytest.mark.parametrize(
    ("forward", "run"),
    [(_both, _base_changed), (keep, _stash_used), (lambda _net, x: x[:, :2], _view_of_input_changed)],
    ids=["a view of another output", "an activation in the loss", "a view of the input"],
)
def test_shared_memory_that_is_modified_is_refused(
    forward: Callable[..., Any], run: Callable[[Net], None]
) -> None:
    net = Net(forward)
    skip.compact(net)
    with pytest.raises(RuntimeError, match="modified in place"):
        run(net)


@pytest.mark.skipif(
    torch.__version__ < "2.7",
    reason="older torch tells of saved_tensors_hooks only by a tensor that is saved",
)
def test_saving_hooks_see_what_the_model_saves_alone() -> None:
    shapes: list[list[torch.Size]] = []
    for compacted in (False, True):
        net = Net(lambda net, x: net.a(x))
        if compacted:
            skip.compact(net)
        shapes.append([])
        with saved_tensors_hooks(lambda x, found=shapes[-1]: found.append(x.shape) or x, lambda x: x):
            net(X)
    assert shapes[1] == shapes[0] != []


def test_a_compacted_model_can_be_traced() -> None:
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    skip.compact(net)
    traced = torch.jit.trace(net, X, check_trace=False)
    torch.testing.assert_close(traced(X), net(X))
