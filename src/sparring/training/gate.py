"""The gate a compacted model's gradients go through: here it is decided how the backward runs, and for whom."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from sparring.training.survivors import Survivors
from sparring.training.walk import Edge, Graph, Walk, edge_of, explore


class SkipStats:
    """What happened in the backward passes of a compacted model."""

    def __init__(self) -> None:
        self.n_backward = 0  # backward passes
        self.n_skipping = 0  # of them, on survivors only
        self.n_samples = 0  # samples they could have covered
        self.n_samples_backward = 0  # samples they did cover
        self.in_full: Counter[str] = Counter()  # operations that were run in full all the same
        self.reasons: Counter[str] = Counter()  # why a backward pass did not skip

    def count(self, n: int, rows: Survivors | None, reason: str) -> None:
        """One backward of n samples: of these rows only, or of all for a reason."""
        self.n_backward += 1
        self.n_samples += n
        self.n_samples_backward += n if rows is None else rows.k
        if rows is None:
            self.reasons[reason] += 1
        else:
            self.n_skipping += 1

    def __repr__(self) -> str:
        return f"SkipStats({', '.join(f'{name}={value}' for name, value in vars(self).items())})"


class Gate:
    """A forward hook: replaces a model's outputs by ones whose backward is ``Backward.run``."""

    def __init__(self, min_dropped: float) -> None:
        self.min_dropped = min_dropped
        self.open = True  # False: this forward gets an ordinary backward
        self.stats = SkipStats()
        self._watching = False

    def watch(self, module: nn.Module, args: Any) -> None:
        """Before the forward."""
        self._watching = self.open
        if self._watching:
            _hooks.start()

    def __call__(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> Any:
        """After it (or after its error: then there is no output)."""
        if not self._watching:
            return output
        hooked = _hooks.stop()
        if output is None or not torch.is_grad_enabled() or _traced():
            return output
        inputs = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor) and x.requires_grad]
        foreign = {id(x) for x in inputs}
        leaves, spec = tree_flatten(output)
        own = {id(x): x for x in leaves if isinstance(x, Tensor) and x.grad_fn is not None and id(x) not in foreign}
        trained = [p for p in module.parameters() if p.requires_grad]
        if not own or not (trained or inputs):
            return output
        backward = Backward(self, list(own.values()), inputs, hooked)
        gated = dict(zip(own, _Gated.apply(backward, *trained, *inputs), strict=True))
        return tree_unflatten([gated.get(id(x), x) for x in leaves], spec)


class _Gated(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, backward: Backward, *leaves: Tensor) -> tuple[Tensor, ...]:
        ctx.run, ctx.leaves = backward.run, leaves
        ctx.set_materialize_grads(False)
        return tuple(output.detach() for output in backward.outputs)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        return None, *ctx.run(ctx.leaves, grads)


class Backward:
    """The backward of one forward."""

    def __init__(self, gate: Gate, outputs: list[Tensor], inputs: list[Tensor], hooked: bool) -> None:
        self.gate, self.outputs, self.inputs, self.hooked = gate, outputs, inputs, hooked
        self.shared = False  # the engine comes through this graph by itself too

    def run(self, leaves: tuple[Tensor, ...], grads: tuple[Tensor | None, ...]) -> list[Tensor | None]:
        """Gradients of ``leaves`` from those of the outputs."""
        if not self.outputs:
            raise RuntimeError("Trying to backward through a compacted model's graph a second time; use retain_graph=True the first time")
        roots = [output for output, grad in zip(self.outputs, grads, strict=True) if grad is not None]
        values = [grad for grad in grads if grad is not None]
        if not values:
            return [None] * len(leaves)
        edges = frozenset(edge_of(x) for x in self.inputs if x.grad_fn is not None)
        graph = explore(roots, edges)
        rows, reason = self._survivors(graph, values)
        self.gate.stats.count(len(values[0]) if values[0].ndim else 1, rows, reason)
        found = self._by_engine(graph, roots, values) if rows is None else self._by_walk(graph, edges, roots, values, rows)
        gradients = [found.pop(id(leaf), None) for leaf in leaves]
        if found:  # leaves the model does not own, such as a tensor its forward closes over
            strays = {id(leaf): leaf for leaf in graph.leaves.values()}
            torch.autograd.backward([strays[i] for i in found], list(found.values()))
        return gradients

    def _survivors(self, graph: Graph, grads: list[Tensor]) -> tuple[Survivors | None, str]:
        """Who gets a backward, or None and why it has to be everybody."""
        self.shared = self.shared or torch.is_grad_enabled() or _engine_visits(graph)
        if self.shared:
            return None, "a graph used twice"
        if torch._C._autograd._get_current_graph_task_keep_graph():
            return None, "retain_graph"
        if self.hooked or graph.opaque:
            return None, "hooks"
        if not _computes():
            return None, "inputs given"
        rows = Survivors.of(grads)
        if rows is None:
            return None, "outputs without a common first dimension"
        if rows.n - rows.k <= self.gate.min_dropped * rows.n:
            return None, "few zero rows"
        if rows.k == 0 and any(getattr(node, "_saved_sparse", False) for node in graph.dependents):
            return None, "sparse gradients"
        return rows, ""

    def _by_engine(self, graph: Graph, roots: list[Tensor], grads: list[Tensor]) -> dict[int, Tensor]:
        ends = [*graph.leaves.values(), *(x for x in self.inputs if x.grad_fn is not None)]
        keep = self.shared or torch._C._autograd._get_current_graph_task_keep_graph()
        found = torch.autograd.grad(roots, ends, grads, retain_graph=keep, create_graph=torch.is_grad_enabled(), allow_unused=True)
        return {id(end): grad for end, grad in zip(ends, found, strict=True) if grad is not None}

    def _by_walk(
        self, graph: Graph, edges: frozenset[Edge], roots: list[Tensor], grads: list[Tensor], rows: Survivors
    ) -> dict[int, Tensor]:
        ends: dict[Any, Tensor] = {**graph.leaves, **{edge_of(x): x for x in self.inputs if x.grad_fn is not None}}
        if rows.k == 0:
            return {id(x): torch.zeros_like(x) for x in ends.values()}
        self.outputs = []
        walk = Walk(graph, edges)
        walk.run(roots, grads, rows)
        self.gate.stats.in_full += walk.in_full
        return {id(ends[end]): grad for end, grad in walk.gradients.items()}


def reached(x: Tensor) -> list[Tensor]:
    """The leaves that a backward from x would give a gradient, seen through gates."""
    leaves: dict[int, Tensor] = {}
    seen: set[Any] = set()
    stack: list[Any] = [x.grad_fn]
    while stack:
        node = stack.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if node.name() == "torch::autograd::AccumulateGrad":
            leaves[id(node.variable)] = node.variable
        inner = getattr(node, "run", None) if node.name() == "_GatedBackward" else None
        stack += [output.grad_fn for output in inner.__self__.outputs] if inner else [edge[0] for edge in node.next_functions]
    return list(leaves.values())


def _traced() -> bool:
    """Under torch.compile, torch.func or forward-mode AD: their own ways with gradients."""
    return (
        torch.compiler.is_compiling()
        or torch._C._functorch.peek_interpreter_stack() is not None
        or torch.autograd.forward_ad._current_level >= 0
    )


def _engine_visits(graph: Graph) -> bool:
    """Whether this backward also reaches the model's inside on another way: a loss on a stashed activation, a second derivative."""
    return any(node not in graph.leaves and torch._C._will_engine_execute_node(node) for node in graph.dependents)


def _computes() -> bool:
    """Whether nodes called by hand compute anything: not inside a backward that was given ``inputs``, as autograd.grad does."""
    with torch.enable_grad():
        probe = torch.zeros((), requires_grad=True) * 1
    node: Any = probe.grad_fn
    return node(torch.ones(()))[0] is not None


def _saving_is_hooked() -> bool:
    """Whether this forward runs inside somebody's saved_tensors_hooks: only one pair may sit on a saved tensor."""
    with torch.enable_grad():
        probe = torch.zeros((), requires_grad=True).exp()
    try:
        probe.grad_fn._raw_saved_result.register_hooks(lambda x: x, lambda x: x)  # type: ignore[union-attr]
    except RuntimeError:
        return True
    return False


class _Hooks:
    """Notices hooks put on tensors, or on what is saved for the backward, during a forward: such a graph is the engine's."""

    WATCHED = ((Tensor, "register_hook"), (Tensor, "retain_grad"), (saved_tensors_hooks, "__enter__"))

    def __init__(self) -> None:
        self.depth, self.lock, self.seen = 0, threading.Lock(), False

    def start(self) -> None:
        with self.lock:
            if self.depth == 0:
                self.seen = _saving_is_hooked()
                self.originals = [getattr(owner, name) for owner, name in self.WATCHED]
                for (owner, name), original in zip(self.WATCHED, self.originals, strict=True):
                    setattr(owner, name, self._noting(original))
            self.depth += 1

    def stop(self) -> bool:
        with self.lock:
            self.depth -= 1
            if self.depth == 0:
                for (owner, name), original in zip(self.WATCHED, self.originals, strict=True):
                    setattr(owner, name, original)
            return self.seen

    def _noting(self, original: Any) -> Any:
        def method(*args: Any) -> Any:
            self.seen = True
            return original(*args)

        return method


_hooks = _Hooks()
