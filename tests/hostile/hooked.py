"""A network whose activations can be got hold of, hooks of every kind torch has, and what a run with them comes to."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

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
        self.during: Callable[[Net], None] = nothing
        self.h = torch.zeros(())

    def forward(self, x: Tensor) -> Any:
        self.h = h = self.norm(torch.tanh(self.first(x)))
        self.during(self)
        inner = (
            checkpoint(self.second, h, use_reentrant=True) if self.variant == "reentrant" else self.second(h)
        )
        logits = self.head(inner.relu())
        return (logits, h) if self.variant == "returns both" else logits


def nothing(_: Net) -> None:
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
    "two on one tensor": lambda net, calls: [
        net.h.register_hook(tensor_hook(calls, str(i))) for i in range(2)
    ],
    "retain_grad": retain_after,
    "node": lambda net, calls: net.h.grad_fn.register_hook(node_hook(calls, "node")),
    "node, before": lambda net, calls: net.h.grad_fn.register_prehook(node_prehook(calls, "prehook")),
}
ON_LEAVES: dict[str, Callable[[Net, Calls], Any]] = {
    "leaf": lambda net, calls: net.first.weight.register_hook(tensor_hook(calls, "leaf")),
    "all leaves": lambda net, calls: [
        p.register_hook(tensor_hook(calls, n)) for n, p in net.named_parameters()
    ],
    "post-accumulate": lambda net, calls: [
        p.register_post_accumulate_grad_hook(post_accumulate_hook(calls, n))
        for n, p in net.named_parameters()
    ],
    "accumulator": lambda net, calls: accumulator(net).register_hook(node_hook(calls, "accumulator")),
    "accumulator, before": lambda net, calls: accumulator(net).register_prehook(
        node_prehook(calls, "accumulator")
    ),
    "module": lambda net, calls: net.second.register_full_backward_hook(module_hook(calls, "module")),
    "module, before": lambda net, calls: net.second.register_full_backward_pre_hook(
        module_prehook(calls, "module")
    ),
    "the model": lambda net, calls: net.register_full_backward_hook(module_hook(calls, "model")),
    "the model, before": lambda net, calls: net.register_full_backward_pre_hook(
        module_prehook(calls, "model")
    ),
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
    for (_, expected), (_, got) in zip(
        sorted(plain[0], key=_name), sorted(compacted[0], key=_name), strict=True
    ):
        for a, b in zip(expected, got, strict=True):
            torch.testing.assert_close(b, a, rtol=1e-5, atol=1e-7)
    for a, b in zip(plain[1], compacted[1], strict=True):
        torch.testing.assert_close(b, a, rtol=1e-5, atol=1e-7)


def _name(call: tuple[str, Any]) -> str:
    return call[0]
