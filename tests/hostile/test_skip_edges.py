"""Programs that once had other gradients with `compact` than without, or failed with it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd.graph import register_multi_grad_hook, saved_tensors_hooks

from sparring.backward.compact import compact

X = torch.linspace(-1, 1, 32).view(8, 4)


class Net(nn.Module):
    """Two layers, a tensor that outlives the forward pass, and any forward function."""

    def __init__(self, forward: Callable[..., Any]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.a = nn.Linear(4, 4)
        self.b = nn.Linear(4, 4)
        self.function = forward
        self.state = torch.zeros(8, 4)

    def forward(self, *args: Any) -> Any:
        return self.function(self, *args)


class Parts(torch.autograd.Function):
    """Two results, one of which may have no gradient. Its backward returns one None too many."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        return x * 2, y * 3

    @staticmethod
    def backward(ctx: Any, x: Tensor | None, y: Tensor | None) -> tuple[Tensor | None, ...]:
        return None if x is None else x * 2, None if y is None else y * 3, None


def save_output(net: Net, x: Tensor) -> Tensor:
    net.state = net.a(x)
    return net.state


def step(net: Net, x: Tensor) -> Tensor:
    net.state = (net.a(x) + net.b(net.state)).tanh()
    return net.state


def a_buffer_is_reused(net: nn.Module) -> None:
    buffer = X.clone().view(8, 1, 4)
    loss = net(buffer)[:3].sum()
    buffer.zero_()
    loss.backward()


def the_output_is_saved_and_changed(net: Net) -> None:
    loss = net(X)[:3].sum()
    net.state.mul_(2)
    loss.backward()


def the_output_is_saved_and_detached(net: Net) -> None:
    loss = net(X)[:3].sum()
    net.state.detach_()
    loss.backward()


def two_steps(net: Net) -> None:
    (net(X).sum() + net(X).sum()).backward()


def a_hook_on_what_two_forwards_share(net: Net) -> None:
    leaf = torch.ones(4, requires_grad=True)
    net.state = leaf + 3
    first, second = net(X), net(X)
    net.state.register_hook(lambda grad: grad.clamp(max=10))
    (first.sum() + second.sum()).backward()
    net.a.weight.grad = leaf.grad


def a_hook_on_what_another_thread_made(net: Net) -> None:
    leaf = torch.ones(4, requires_grad=True)

    def make() -> None:
        for _ in range(3000):  # torch numbers nodes by thread
            torch.ones(1, requires_grad=True).exp()
        net.state = leaf + 3
        net.state.register_hook(lambda grad: grad * 100)

    thread = threading.Thread(target=make)
    thread.start()
    thread.join()
    net(X)[:3].sum().backward()
    net.a.weight.grad = leaf.grad


def a_removed_hook_of_several_tensors(net: Net) -> None:
    output = net(X)
    register_multi_grad_hook([net.state], lambda _: None).remove()
    output[:3].sum().backward()


def frozen_after_forward(net: Net) -> None:
    loss = net(X).sum()
    net.a.requires_grad_(False)
    loss.backward()


def usual(net: nn.Module) -> None:
    net(X)[:3].sum().backward()


PROGRAMS: dict[str, tuple[Callable[[], nn.Module], Callable[[Any], None]]] = {
    "a buffer is reused": (lambda: nn.Conv1d(1, 2, 3), a_buffer_is_reused),
    "the output is saved and changed": (lambda: Net(save_output), the_output_is_saved_and_changed),
    "the output is saved and detached": (lambda: Net(save_output), the_output_is_saved_and_detached),
    "two steps of a network with a state": (lambda: Net(step), two_steps),
    "a hook on what two forwards share": (
        lambda: Net(lambda net, x: net.a(x) + net.state),
        a_hook_on_what_two_forwards_share,
    ),
    "a hook on what another thread made": (
        lambda: Net(lambda net, x: net.a(x) + net.state),
        a_hook_on_what_another_thread_made,
    ),
    "a removed hook of several tensors": (lambda: Net(save_output), a_removed_hook_of_several_tensors),
    "frozen after the forward": (lambda: Net(lambda net, x: net.b(net.a(x))), frozen_after_forward),
    "None for a gradient": (lambda: Net(lambda net, x: Parts.apply(net.a(x), net.b(x))[0]), usual),
    "an empty memory": (lambda: Net(lambda net, x: net.a(x) + net.b(x.new_zeros(8, 0, 4)).sum(1)), usual),
    "a sparse adjacency": (lambda: Net(lambda net, x: torch.eye(8).to_sparse_csr() @ net.a(x)), usual),
}


def outcome(name: str, compacted: bool) -> Any:
    make, run = PROGRAMS[name]
    net = make()
    if compacted:
        compact(net)
    try:
        run(net)
    except RuntimeError as error:
        return str(error)[:60]
    return [parameter.grad for parameter in net.parameters()]


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
@pytest.mark.parametrize("name", PROGRAMS)
def test_same_as_without(name: str) -> None:
    plain = outcome(name, compacted=False)
    compacted = outcome(name, compacted=True)
    if isinstance(plain, str) or isinstance(compacted, str):
        assert compacted == plain
    else:
        torch.testing.assert_close(compacted, plain)


def test_sparse_optimizers_see_the_same_indices() -> None:
    weights = []
    for compacted in (False, True):
        torch.manual_seed(0)
        net = nn.Embedding(9, 2, sparse=True)
        if compacted:
            compact(net)
        optimizer = torch.optim.SparseAdam(net.parameters(), lr=0.1)
        for n in (8, 3):
            optimizer.zero_grad()
            net(torch.arange(8))[:n].sum().backward()
            optimizer.step()
        weights.append(net.weight.detach())
    assert torch.equal(*weights)


def _both(net: Net, x: Tensor) -> tuple[Tensor, Tensor]:
    h = net.a(x)
    return h, h[:, :2]


def _base_changed(net: Net) -> None:
    base, view = net(X)
    base.mul_(2)
    view.sum().backward()


def _activation_used(net: Net) -> None:
    output = net(X)
    output.mul_(2)
    (output.sum() + net.state.sum()).backward()


def _view_of_input_changed(net: Net) -> None:
    x = torch.ones(8, 4, requires_grad=True) * 1
    output = net(x)
    output.mul_(2)
    (output.sum() + x.sum()).backward()


@pytest.mark.parametrize(
    ("forward", "run"),
    [
        (_both, _base_changed),
        (save_output, _activation_used),
        (lambda _net, x: x[:, :2], _view_of_input_changed),
    ],
    ids=["a view of another output", "an activation in the loss", "a view of the input"],
)
def test_shared_memory_that_is_modified_is_refused(
    forward: Callable[..., Any], run: Callable[[Net], None]
) -> None:
    net = Net(forward)
    compact(net)
    with pytest.raises(RuntimeError, match="modified in place"):
        run(net)


@pytest.mark.skipif(
    torch.__version__ < "2.7",
    reason="older torch shows saved_tensors_hooks only by saving a tensor",
)
def test_saving_hooks_are_called_for_tensors_of_the_model_only() -> None:
    shapes: list[list[torch.Size]] = []
    for compacted in (False, True):
        net = Net(lambda net, x: net.a(x))
        if compacted:
            compact(net)
        shapes.append([])
        with saved_tensors_hooks(lambda x, shapes=shapes[-1]: shapes.append(x.shape) or x, lambda x: x):
            net(X)
    assert shapes[1] == shapes[0] != []


def test_a_compacted_model_can_be_traced() -> None:
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    compact(net)
    traced = torch.jit.trace(net, X, check_trace=False)
    torch.testing.assert_close(traced(X), net(X))
