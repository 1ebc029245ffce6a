"""A network with an activation to put hooks on, all kinds of hooks that torch has, and a run with them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

N = 20
SHARES = (0.0, 0.5, 1.0)  # of won rows: torch's engine, the walk, and no backward at all
Calls = list[tuple[str, list[Tensor | None]]]
Result = tuple[Calls, list[Tensor | None]]  # the calls of hooks, and gradients


class Net(nn.Module):
    """An activation that tests can reach (``h``), and a function that runs in the forward (``during``)."""

    def __init__(self, variant: str = "plain") -> None:
        super().__init__()
        torch.manual_seed(0)
        self.variant = variant
        self.first = nn.Linear(6, 8)
        self.second = nn.Linear(8, 8)
        self.head = nn.Linear(8, 4)
        self.norm = nn.BatchNorm1d(8) if variant == "batch norm" else nn.LayerNorm(8)
        self.during: Callable[[Net], Any] = nothing
        self.h = torch.zeros(())

    def forward(self, x: Tensor) -> Any:
        self.h = h = self.norm(torch.tanh(self.first(x)))
        self.during(self)
        is_reentrant = self.variant == "reentrant"
        inner = checkpoint(self.second, h, use_reentrant=True) if is_reentrant else self.second(h)
        logits = self.head(inner.relu())
        return (logits, h) if self.variant == "returns both" else logits


def nothing(_: Net) -> None:
    pass


VARIANTS = ("plain", "batch norm", "returns both", "reentrant")


def clones(grads: Any) -> list[Tensor | None]:
    return [None if grad is None else grad.clone() for grad in grads]


def halves(grads: Any) -> tuple[Tensor | None, ...]:
    return tuple(None if grad is None else grad * 0.5 for grad in grads)


def node_hook(calls: Calls, name: str) -> Callable[..., Any]:
    """For nodes and modules. Records the gradients of outputs and halves those of inputs."""

    def hook(*args: Any) -> Any:
        *_, grad_inputs, grad_outputs = args
        calls.append((name, clones(grad_outputs)))
        return halves(grad_inputs)

    return hook


def node_prehook(calls: Calls, name: str) -> Callable[..., Any]:
    """For nodes and modules. Records the gradients of outputs and halves them."""

    def hook(*args: Any) -> Any:
        calls.append((name, clones(args[-1])))
        return halves(args[-1])

    return hook


def tensor_hook(calls: Calls, name: str) -> Callable[[Tensor], Tensor]:
    def hook(grad: Tensor) -> Tensor:
        calls.append((name, [grad.clone()]))
        return grad.clamp(-0.01, 0.01) * 0.5  # not linear: a call with a part of the gradient is noticed

    return hook


def post_accumulate_hook(calls: Calls, name: str) -> Callable[[Tensor], None]:
    def hook(parameter: Tensor) -> None:
        assert parameter.grad is not None
        calls.append((name, [parameter.grad.clone()]))
        parameter.grad.mul_(0.5)

    return hook


def accumulator(net: Net) -> Any:
    weight = net.first.weight
    net.owner = weight.expand_as(weight).grad_fn  # type: ignore[assignment]
    return net.owner.next_functions[0][0]


Register = Callable[[Net, Calls], Any]

ON_ACTIVATIONS: dict[str, Register] = {
    "tensor": lambda net, calls: net.h.register_hook(tensor_hook(calls, "tensor")),
    "tensor, by keyword": lambda net, calls: net.h.register_hook(hook=tensor_hook(calls, "tensor")),
    "two on one tensor": lambda net, calls: [
        net.h.register_hook(tensor_hook(calls, name)) for name in ("first", "second")
    ],
    "retain_grad": lambda net, _: net.h.retain_grad(),
    "node": lambda net, calls: net.h.grad_fn.register_hook(node_hook(calls, "node")),
    "node, before": lambda net, calls: net.h.grad_fn.register_prehook(node_prehook(calls, "prehook")),
}
ON_LEAVES: dict[str, Register] = {
    "leaf": lambda net, calls: net.first.weight.register_hook(tensor_hook(calls, "leaf")),
    "all leaves": lambda net, calls: [
        p.register_hook(tensor_hook(calls, name)) for name, p in net.named_parameters()
    ],
    "post-accumulate": lambda net, calls: [
        p.register_post_accumulate_grad_hook(post_accumulate_hook(calls, name))
        for name, p in net.named_parameters()
    ],
    "accumulator": lambda net, calls: accumulator(net).register_hook(node_hook(calls, "accumulator")),
    "accumulator, before": lambda net, calls: accumulator(net).register_prehook(
        node_prehook(calls, "before")
    ),
}
ON_MODULES: dict[str, Register] = {
    "module": lambda net, calls: net.second.register_full_backward_hook(node_hook(calls, "module")),
    "module, before": lambda net, calls: net.second.register_full_backward_pre_hook(node_prehook(calls, "m")),
    "the model": lambda net, calls: net.register_full_backward_hook(node_hook(calls, "model")),
    "the model, before": lambda net, calls: net.register_full_backward_pre_hook(node_prehook(calls, "model")),
}
HOOKS = ON_ACTIVATIONS | ON_LEAVES | ON_MODULES
MOMENTS = [
    *((kind, moment) for kind in ON_ACTIVATIONS for moment in ("in", "after", "in another thread")),
    *(
        (kind, moment)
        for kind in ON_LEAVES | ON_MODULES
        for moment in ("before", "in", "after", "in another thread")
    ),
]


def inputs() -> Tensor:
    return torch.linspace(-1, 1, N * 6).view(N, 6)


def weights(won: float) -> Tensor:
    return (torch.arange(N) >= round(N * won)).float()


def loss_of(output: Any, net: Net, won: float) -> Tensor:
    logits, h = output if isinstance(output, tuple) else (output, None)
    loss = (logits.logsumexp(1) * weights(won)).sum() / N
    loss = loss + (net.first.weight * 0.01).square().sum()  # the leaf gets gradient from elsewhere too
    return loss if h is None else loss + (h.square().sum(1) * weights(won)).sum() / N


def run(net: Net, kind: str, moment: str, won: float) -> Result:
    """Forward and backward with a hook that is registered at some moment."""
    calls: Calls = []
    register = HOOKS[kind]
    if moment == "before":
        register(net, calls)
    if moment == "in":
        net.during = lambda net: register(net, calls)
    output = net(inputs())
    if moment == "after":
        register(net, calls)
    if moment == "in another thread":
        thread = threading.Thread(target=register, args=(net, calls))
        thread.start()
        thread.join()
    loss_of(output, net, won).backward()
    retained = [net.h.grad] if net.h.retains_grad else []
    return calls, [*retained, *(p.grad for p in net.parameters())]


def assert_same(plain: Result, compacted: Result) -> None:
    """The same calls, in any order of the hooks, with the same gradients; and the same results."""
    expected_calls, calls = (sorted(result[0], key=lambda call: call[0]) for result in (plain, compacted))
    assert [name for name, _ in calls] == [name for name, _ in expected_calls]
    torch.testing.assert_close(
        [grads for _, grads in calls], [grads for _, grads in expected_calls], rtol=1e-5, atol=1e-7
    )
    torch.testing.assert_close(compacted[1], plain[1], rtol=1e-5, atol=1e-7)
