"""The gate a compacted model's gradients go through: here it is decided how the backward runs, and for whom."""

from __future__ import annotations

import threading
import warnings
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.autograd.function import BackwardCFunction
from torch.autograd.graph import GradientEdge
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from sparring.backward import hooks
from sparring.backward.graph_walk import Walk
from sparring.backward.node_rules import Node
from sparring.backward.regions import Edge, Graph, Region, edge_of, explore, inputs_overlap, regions_of
from sparring.backward.sharding import check_leaves, check_modules
from sparring.backward.stats import SkipStats, Tally
from sparring.backward.surviving_rows import Survivors


class _Forward(NamedTuple):
    """What a forward found when it began."""

    inputs: list[Tensor]  # that require gradients
    hooks: hooks.Snapshot
    first_number: int  # nodes made from now on have this number or a higher one
    saving_is_hooked: bool
    storages: list[Any]  # of the inputs that require gradients


class Gate:
    """Hooks around a model's forward: its outputs are replaced by ones whose backward is `Backward.run`."""

    def __init__(self, min_dropped: float) -> None:
        self.min_dropped = min_dropped
        self.open = True  # False: this forward gets an ordinary backward
        self.stats = SkipStats()
        self.has_warned = False  # of a forward that could not be seen

    def before(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        """Before the forward. The inputs are listed now, since a model may write its outputs into them."""
        if torch.compiler.is_compiling():
            return
        _running().pop(self, None)  # left by a forward that was interrupted
        if not self.open or not torch.is_grad_enabled() or _transformed():
            return
        check_modules(module)
        hooks.install()
        inputs = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor) and x.requires_grad]
        storages = [_storage(x) for x in inputs]
        _running()[self] = _Forward(
            inputs, hooks.snapshot(), _next_number(), hooks.saving_is_hooked(), storages
        )

    def before_child(self, child: nn.Module, args: Any) -> None:
        """Before the forward of the model's first child: notices calls of ``model.forward``, which run none of the model's hooks."""
        if (
            torch.compiler.is_compiling()
            or self in _running()
            or not self.open
            or not torch.is_grad_enabled()
            or _transformed()
        ):
            return
        if (
            torch._C._current_graph_task_id() != -1 or gate_of(child) is not None
        ):  # checkpointing's second forward; its own gate
            return
        self.stats.reasons["the model was not called itself"] += 1
        if not self.has_warned:
            self.has_warned = True
            warnings.warn(
                f"skip.compact cannot see this forward: the model's {type(child).__name__} ran although the model itself was not "
                "called, so the backward is a full one. Call model(...), not model.forward(...) or a part of the model",
                stacklevel=2,
            )

    def __call__(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> Any:
        """After the forward, or after its error: then there is no output."""
        if torch.compiler.is_compiling():
            self.stats.compiled = True
            return output
        forward = _running().pop(self, None)
        if forward is None or output is None or not torch.is_grad_enabled():
            return output
        foreign = {id(x) for x in forward.inputs}
        leaves, spec = tree_flatten(output)
        outputs = {
            id(x): x
            for x in leaves
            if isinstance(x, Tensor) and x.grad_fn is not None and id(x) not in foreign
        }
        if not outputs:
            return output
        if any(x.is_nested or x.layout is not torch.strided for x in outputs.values()):
            self.stats.reasons["nested or sparse outputs"] += 1
            return output
        inputs = {edge_of(x): x for x in forward.inputs if x.grad_fn is not None}
        regions = regions_of(list(outputs.values()), inputs)
        reason = _obstacle(module, forward, regions)
        if not reason and inputs_overlap(regions, inputs):
            reason = "inputs made of the model's own parameters, or of each other"
        if reason:
            self.stats.reasons[reason] += 1
            return output
        storages = [*forward.storages, *map(_storage, outputs.values())]
        gated = self._gated(regions, alias=len(set(storages)) < len(storages))
        return tree_unflatten([gated.get(id(x), x) for x in leaves], spec)

    def _gated(self, regions: list[Region], alias: bool) -> dict[int, Tensor]:
        """The outputs behind gates, by the id of what they replace; ``alias``: some share memory with each other or an input."""
        gated: dict[int, Tensor] = {}
        tally = Tally()
        for region in regions:
            backward = Backward(self, region, tally, hooks.snapshot(), alias)
            ends = [gated.get(id(x), x) for x in region.graph.ends.values()]
            results = _Gated.apply(backward, *region.graph.leaves.values(), *ends)
            gated |= {id(output): result for output, result in zip(region.outputs, results, strict=True)}
        return gated


def gate_of(module: nn.Module) -> Gate | None:
    """The gate of a compacted module."""
    return next((hook for hook in module._forward_hooks.values() if isinstance(hook, Gate)), None)


_local = threading.local()


def _running() -> WeakKeyDictionary[Gate, _Forward]:
    """The forwards under way in this thread."""
    if not hasattr(_local, "running"):
        _local.running = WeakKeyDictionary()
    return _local.running  # type: ignore[no-any-return]


def _obstacle(module: nn.Module, forward: _Forward, regions: list[Region]) -> str:
    """Why this forward keeps torch's own backward; "" where nothing stands in the way of skipping."""
    now = hooks.snapshot()
    if forward.saving_is_hooked or now.n_saving != forward.hooks.n_saving:
        return "saved tensors are hooked"
    if torch.is_anomaly_enabled():
        return "anomaly detection"  # names the operation that made a NaN: the engine's own
    if module._is_full_backward_hook is False or nn.modules.module._global_is_full_backward_hook is False:
        return (
            "hooks"  # of the form that torch has given up: they are called with what goes into the last node
        )
    for region in regions:
        graph = region.graph
        if graph.obstacle:
            return graph.obstacle
        if reason := check_leaves(graph.leaves.values()):
            return reason
        if (
            graph.first_number < forward.first_number
        ):  # they may have hooks, and other forwards may use them too
            return "activations from before the forward"
        nodes = graph.inner_nodes()
        if hooks.find_marked(nodes) or hooks.find_since(forward.hooks, nodes):
            return "hooks"
    return ""


class _Gated(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, backward: Backward, *ends: Tensor) -> tuple[Tensor, ...]:
        assert backward.region is not None
        ctx.run = backward.run
        ctx.set_materialize_grads(False)
        return tuple(output.detach() for output in backward.region.outputs)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        return None, *ctx.run(grads, hooks.hooked_outputs(ctx))


class Backward:
    """The backward of one region of one forward."""

    def __init__(self, gate: Gate, region: Region, tally: Tally, before: hooks.Snapshot, alias: bool) -> None:
        self.gate, self.tally, self.before, self.alias = gate, tally, before, alias
        self.versions = [output._version for output in region.outputs]  # in-place operations count them up
        self.region: Region | None = region  # None once it is used up
        self.shared = False  # the engine comes through this graph by itself too

    def run(self, grads: tuple[Tensor | None, ...], hooked_outputs: set[int]) -> list[Tensor | None]:
        """Gradients of the region's leaves and ends from those of its outputs, some of which may have hooks."""
        if self.region is None:
            raise RuntimeError(
                "Trying to backward through a compacted model's graph a second time; use retain_graph=True the first time"
            )
        if any(self.region.outputs[i] is output for i in hooked_outputs for output in self.region.feeding):
            raise RuntimeError(_FEEDING)
        graph = self.region.graph
        targets = [*graph.leaves, *graph.ends]
        tensors = [*graph.leaves.values(), *graph.ends.values()]
        outputs = zip(self.region.edges, self.region.outputs, strict=True)
        roots = [root for root, grad in zip(outputs, grads, strict=True) if grad is not None]
        values = [grad for grad in grads if grad is not None]
        if not values:
            return [None] * len(targets)
        if len(roots) < len(grads):
            graph = explore([edge for edge, _ in roots], graph.ends)
        del outputs
        visited = _engine_visits(graph)
        modified = self.versions != [output._version for output in self.region.outputs]
        if modified and (self.alias or visited):
            raise RuntimeError(_MODIFIED)
        rows, reason = self._survivors(graph, values, visited)
        if rows is None:
            n_samples = len(values[0]) if values[0].ndim else 1
            self.gate.stats.count(self.tally, n_samples, n_samples, walked=False, reason=reason)
            gradients = self._by_engine(graph, roots, values)
        else:
            self.region = None
            gradients = self._by_walk(graph, roots, values, rows)
        hooks.not_called_with_none(
            x for target, x in zip(targets, tensors, strict=True) if target not in gradients
        )
        return [gradients.get(target) for target in targets]

    def _survivors(self, graph: Graph, grads: list[Tensor], visited: bool) -> tuple[Survivors | None, str]:
        """The samples that get a backward, or None and why it must be all of them."""
        hooked = hooks.find_since(self.before, graph.inner_nodes())
        if hooked and visited:
            raise RuntimeError(_TWO_PASSES)
        if hooked == hooks.JOINT:
            raise RuntimeError(_JOINT)
        self.shared = self.shared or torch.is_grad_enabled() or visited
        if self.shared:
            return None, "a graph used twice"
        if torch._C._autograd._get_current_graph_task_keep_graph():
            return None, "retain_graph"
        if hooked:
            return None, "hooks"
        if not _computes():
            return None, "inputs given"
        rows = Survivors.of(grads)
        if rows is None:
            return None, "outputs without a common first dimension"
        if rows.n - rows.k <= self.gate.min_dropped * rows.n:
            return None, "few zero rows"
        if any(getattr(node, "_saved_sparse", False) for node in graph.dependents):
            return None, "sparse gradients"  # they would have other indices, which sparse optimizers go by
        if rows.k == 0 and any(isinstance(node, BackwardCFunction) for node in graph.dependents):
            return (
                None,
                "a function of its own",
            )  # which may give no gradient where zeros are promised, or train what it hides
        return rows, ""

    def _by_engine(
        self, graph: Graph, roots: list[tuple[Edge, Tensor]], grads: list[Tensor]
    ) -> dict[Any, Tensor]:
        starts = [GradientEdge(*edge) for edge, _ in roots]
        trained = {
            target: x for target, x in (*graph.leaves.items(), *graph.ends.items()) if x.requires_grad
        }  # still
        ends = [*trained.values()]
        keep = self.shared or torch._C._autograd._get_current_graph_task_keep_graph()
        second = torch.is_grad_enabled()
        with hooks.called_outside(ends, [start.node for start in starts]):
            gradients = torch.autograd.grad(
                starts, ends, grads, retain_graph=keep, create_graph=second, allow_unused=True
            )
        return {target: grad for target, grad in zip(trained, gradients, strict=True) if grad is not None}

    def _by_walk(
        self, graph: Graph, roots: list[tuple[Edge, Tensor]], grads: list[Tensor], rows: Survivors
    ) -> dict[Any, Tensor]:
        stats = self.gate.stats
        if rows.k == 0:
            stats.count(self.tally, rows.n, 0)
            return {target: torch.zeros_like(x) for target, x in (*graph.leaves.items(), *graph.ends.items())}
        walk = Walk(graph)
        walk.run(roots, grads, rows)
        reason = f"in full from {walk.full_from}" if walk.full_from else ""
        stats.count(self.tally, rows.n, rows.n if reason else rows.k, reason=reason)
        stats.in_full += walk.in_full
        return walk.gradients


_TWO_PASSES = (
    "a compacted model has hooks on activations, and the loss reaches these activations on a second way besides the model's "
    "outputs: the hooks would be called twice, with a part of the gradient each. Remove the hooks, return the activation from "
    "forward, or undo skip.compact"
)
_MODIFIED = (
    "an output of a compacted model was modified in place, and shares its memory with another output, with an input, or with an activation "
    "that the loss uses too: their gradients cannot be told apart. Use an operation that makes a new tensor, or undo skip.compact"
)
_JOINT = (
    "register_multi_grad_hook was called for an activation of a compacted model after its forward, where the hook cannot be called "
    "once for all its tensors. Register it inside forward, or undo skip.compact"
)
_FEEDING = (
    "a hook or retain_grad() is on an output of a compacted model that other outputs are made of, and their graphs cannot be "
    "told apart: it would see a part of the gradient. Register it inside forward, or undo skip.compact"
)


def leaves_behind(x: Tensor) -> tuple[list[Tensor], bool]:
    """The leaves that a backward from x would give a gradient, and whether it would call a hook on its way."""
    leaves: dict[Node, Tensor] = {}
    seen: set[Node] = set()
    stack: list[Node] = [x.grad_fn]
    while stack:
        node = stack.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if node.name() == "torch::autograd::AccumulateGrad":
            leaves[node] = node.variable
        stack += [edge[0] for edge in node.next_functions]
    hooked = any(leaf._backward_hooks or leaf._post_accumulate_grad_hooks for leaf in leaves.values())
    return list(leaves.values()), hooked or bool(hooks.find(seen))


def _transformed() -> bool:
    """Under torch.func, forward-mode AD or torch.jit.trace: their own ways with gradients."""
    if torch._C._get_tracing_state() is not None:
        return True
    return (
        torch._C._functorch.peek_interpreter_stack() is not None
        or torch.autograd.forward_ad._current_level >= 0
    )


def _next_number() -> int:
    """The number of the next node."""
    with torch.enable_grad():
        probe: Any = torch.zeros(
            (), requires_grad=True
        ).neg()  # saves nothing, so it calls nobody's saved_tensors_hooks
    return probe.grad_fn._sequence_nr() + 1  # type: ignore[no-any-return]


def _storage(x: Tensor) -> Any:
    """What is the same for tensors that share memory."""
    plain = type(x) in (Tensor, nn.Parameter) and x.layout is torch.strided and not x.is_nested
    return x.untyped_storage()._cdata if plain else id(x)


def _engine_visits(graph: Graph) -> bool:
    """Whether this backward also reaches the region on another way: a loss on a stashed activation, a second derivative."""
    return any(
        node not in graph.leaves and torch._C._will_engine_execute_node(node) for node in graph.dependents
    )


def _computes() -> bool:
    """Whether nodes called by hand compute anything: not inside a backward that was given ``inputs``, as autograd.grad does."""
    with torch.enable_grad():
        probe = torch.zeros((), requires_grad=True) * 1
    node: Any = probe.grad_fn
    return node(torch.ones(()))[0] is not None
