"""The forward hooks of a compacted model, and the backward pass that they attach to its outputs.

`BackwardHook` runs around each forward pass and passes the outputs through an autograd Function. In the
backward pass, `RegionBackward` receives the gradients of the outputs and decides how the graph behind them is
run: on surviving rows (`GraphWalk`), or by torch's engine (a nested ``torch.autograd.grad``).
"""

from __future__ import annotations

import threading
import warnings
from collections import UserDict
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.autograd.function import BackwardCFunction
from torch.utils._pytree import tree_flatten, tree_unflatten

from sparring.backward import hooks, obstacles
from sparring.backward.graph_walk import GraphWalk, run_engine
from sparring.backward.regions import Edge, Region, Subgraph, divide, edge_of, explore
from sparring.backward.stats import PassCounts, SkipStats
from sparring.backward.surviving_rows import SurvivingRows

Roots = list[tuple[Edge, Tensor]]  # outputs that have a gradient, and their edges
# After this many walks in a row that ran less than this share of the nodes on survivors, the model is left
# to torch: routing between experts or BatchNorm near the outputs.
MAX_POOR_WALKS = 3
MIN_ON_SURVIVORS = 0.3
_POOR = "most of the model runs in full"


class _RunningForwards(threading.local):
    """The forward passes that are running in this thread."""

    def __init__(self) -> None:
        self.states: WeakKeyDictionary[BackwardHook, obstacles.ForwardState] = WeakKeyDictionary()


_running = _RunningForwards()


class BackwardHook:
    """Forward hooks that replace a model's outputs by tensors whose backward is `RegionBackward.run`."""

    def __init__(self, min_dropped: float) -> None:
        self.min_dropped = min_dropped
        self.enabled = True  # False: forward passes get an ordinary backward
        self.stats = SkipStats()
        self.n_poor_walks = 0  # in a row: walks that soon had to go on in full
        self._has_warned = False

    def before(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        """Forward pre-hook of the model."""
        if torch.compiler.is_compiling():
            return
        _running.states.pop(self, None)  # of a forward pass that was interrupted
        if self._applies():
            obstacles.check_not_sharded(module)
            hooks.install()
            _running.states[self] = obstacles.ForwardState.capture((args, kwargs))

    def before_child(self, child: nn.Module, args: Any) -> None:
        """Forward pre-hook of a child. Warns of ``model.forward(...)``, which runs no hook of the model."""
        if torch.compiler.is_compiling() or self in _running.states or not self._applies():
            return
        is_recomputing = torch._C._current_graph_task_id() != -1  # checkpointing
        if is_recomputing or hook_of(child) is not None:
            return
        self.stats.reasons["the model was not called itself"] += 1
        if not self._has_warned:
            self._has_warned = True
            warnings.warn(
                f"skip.compact cannot skip here: the model's {type(child).__name__} ran without the model. "
                "Call model(...), not model.forward(...) or a part of the model",
                stacklevel=2,
            )

    def _applies(self) -> bool:
        is_allowed = self.enabled and self.n_poor_walks < MAX_POOR_WALKS
        return is_allowed and torch.is_grad_enabled() and not obstacles.is_transformed()

    def judge(self, walk: GraphWalk) -> None:
        """Count walks that cost more than they save: few nodes ran on survivors, the others in full."""
        is_poor = bool(walk.full_from) and walk.n_on_survivors < MIN_ON_SURVIVORS * walk.n_nodes
        self.n_poor_walks = self.n_poor_walks + 1 if is_poor else 0

    def __call__(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> Any:
        """Forward hook of the model. It is called after an error too, then without an output."""
        if torch.compiler.is_compiling():
            self.stats.compiled = True
            return output
        forward = _running.states.pop(self, None)
        if self.n_poor_walks >= MAX_POOR_WALKS and self.enabled and torch.is_grad_enabled():
            self.stats.reasons[_POOR] += 1
        if forward is None or output is None or not torch.is_grad_enabled():
            return output
        # torch knows no UserDict, such as the features that a sentence-transformers model writes into
        leaves, spec = tree_flatten(dict(output) if isinstance(output, UserDict) else output)
        if not any(isinstance(x, Tensor) for x in leaves):
            self.stats.reasons[f"no tensors that torch can find in {type(output).__name__}"] += 1
        outputs = {id(x): x for x in leaves if isinstance(x, Tensor) and x.grad_fn is not None}
        for x in forward.inputs:
            outputs.pop(id(x), None)
        if not outputs:
            return output
        regions: list[Region] = []
        reason = "nested or sparse outputs"
        if not any(x.is_nested or x.layout is not torch.strided for x in outputs.values()):
            regions = divide(list(outputs.values()), forward.input_edges())
            reason = obstacles.find_obstacle(module, forward, regions)
        if reason:
            self.stats.reasons[reason] += 1
            return output
        storages = [obstacles.storage_of(x) for x in (*forward.inputs, *outputs.values())]
        replaced = self._replace(regions, share_memory=len(set(storages)) < len(storages))
        result = tree_unflatten([replaced.get(id(x), x) for x in leaves], spec)
        if not isinstance(output, UserDict):
            return result
        output.update(result)
        return output

    def _replace(self, regions: list[Region], share_memory: bool) -> dict[int, Tensor]:
        """Pass all outputs through `_RegionFunction`. Returns the results by the id of the output."""
        results: dict[int, Tensor] = {}
        counts = PassCounts()
        for region in regions:
            backward = RegionBackward(self, region, counts, share_memory)
            ends = [results.get(id(x), x) for x in region.graph.ends.values()]
            values = _RegionFunction.apply(backward, *region.graph.leaves.values(), *ends)
            results |= {id(output): value for output, value in zip(region.outputs, values, strict=True)}
        return results


def hook_of(module: nn.Module) -> BackwardHook | None:
    """The hook of a compacted module."""
    return next((hook for hook in module._forward_hooks.values() if isinstance(hook, BackwardHook)), None)


class _RegionFunction(torch.autograd.Function):
    """From the leaves and ends of a region to its outputs. Its backward is that of the whole region."""

    @staticmethod
    def forward(ctx: Any, backward: RegionBackward, *targets: Tensor) -> tuple[Tensor, ...]:
        assert backward.region is not None
        ctx.run = backward.run
        ctx.set_materialize_grads(False)
        return tuple(output.detach() for output in backward.region.outputs)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        return None, *ctx.run(grads, hooks.tensor_hooks(ctx))


class RegionBackward:
    """The backward pass of one region."""

    def __init__(self, hook: BackwardHook, region: Region, counts: PassCounts, share_memory: bool) -> None:
        self.hook = hook
        self.region: Region | None = region  # None after a walk, which frees the graph
        self.counts = counts  # shared by all regions of a forward pass
        self.share_memory = share_memory  # some outputs share memory with each other or with an input
        self.snapshot = hooks.snapshot()
        self.versions = [output._version for output in region.outputs]  # in-place operations increase them
        self.is_shared = False  # torch's engine runs through this graph by another path too

    def run(self, grads: tuple[Tensor | None, ...], output_hooks: dict[int, Any]) -> list[Tensor | None]:
        """Compute the gradients of the region's leaves and ends from those of its outputs."""
        if self.region is None:
            raise RuntimeError(_SECOND_TIME)
        if self.region.intermediate.intersection(output_hooks):
            raise RuntimeError(_HOOKED_INTERMEDIATE)
        graph = self.region.graph
        targets = graph.targets()
        outputs = zip(self.region.edges, self.region.outputs, grads, strict=True)
        roots = [(edge, output) for edge, output, grad in outputs if grad is not None]
        del outputs  # it would keep the last output alive
        output_grads = [grad for grad in grads if grad is not None]
        if not roots:
            return [None] * len(targets)
        if len(roots) < len(grads):
            graph = explore([edge for edge, _ in roots], graph.ends)
        is_visited = _engine_visits(graph)
        is_modified = self.versions != [output._version for output in self.region.outputs]
        if is_modified and (self.share_memory or is_visited):
            raise RuntimeError(_MODIFIED)
        rows, reason = self._surviving_rows(graph, output_grads, is_visited)
        if rows is None:
            n_samples = len(output_grads[0]) if output_grads[0].ndim else 1
            self.hook.stats.count(self.counts, n_samples, n_samples, walked=False, reason=reason)
            retain_graph = self.is_shared or torch._C._autograd._get_current_graph_task_keep_graph()
            starts = [(edge, grad) for (edge, _), grad in zip(roots, output_grads, strict=True)]
            gradients = run_engine(graph, starts, retain_graph, create_graph=torch.is_grad_enabled())
        else:
            self.region = None
            gradients = self._walk(graph, roots, output_grads, rows)
        hooks.mute_none(x for target, x in targets.items() if target not in gradients)
        return [gradients.get(target) for target in targets]

    def _surviving_rows(
        self, graph: Subgraph, grads: list[Tensor], is_visited: bool
    ) -> tuple[SurvivingRows | None, str]:
        """The samples to run the backward for, or None and the reason why all of them are needed."""
        hook_type = hooks.find(graph.inner_nodes(), since=self.snapshot)
        if hook_type and is_visited:
            raise RuntimeError(_TWO_PATHS)
        if hook_type == hooks.HookKind.JOINT:
            raise RuntimeError(_JOINT_HOOK)
        self.is_shared = self.is_shared or torch.is_grad_enabled() or is_visited
        if self.is_shared:
            return None, "a graph used twice"
        if torch._C._autograd._get_current_graph_task_keep_graph():
            return None, "retain_graph"
        if hook_type:
            return None, "hooks"
        if not _nodes_compute():
            return None, "inputs given"
        rows = SurvivingRows.from_gradients(grads)
        if rows is None:
            return None, "outputs without a common first dimension"
        if rows.n - rows.k <= self.hook.min_dropped * rows.n:
            return None, "few zero rows"
        if any(getattr(node, "_saved_sparse", False) for node in graph.n_dependents):
            return None, "sparse gradients"  # their indices would differ, and sparse optimizers use them
        if rows.k == 0 and any(isinstance(node, BackwardCFunction) for node in graph.n_dependents):
            return None, "a custom autograd.Function"  # may return None, or train parameters that it hides
        return rows, ""

    def _walk(
        self, graph: Subgraph, roots: Roots, grads: list[Tensor], rows: SurvivingRows
    ) -> dict[Any, Tensor]:
        stats = self.hook.stats
        if rows.k == 0:
            stats.count(self.counts, rows.n, 0)
            return {target: torch.zeros_like(x) for target, x in graph.targets().items()}
        walk = GraphWalk(graph)
        walk.run(roots, grads, rows)
        self.hook.judge(walk)
        reason = f"in full from {walk.full_from}" if walk.full_from else ""
        stats.count(self.counts, rows.n, rows.n if reason else rows.k, reason=reason)
        stats.in_full += walk.run_in_full
        return walk.gradients


def _engine_visits(graph: Subgraph) -> bool:
    """Whether torch's engine reaches inner nodes by another path: the loss uses an activation directly."""
    will_execute = torch._C._will_engine_execute_node
    return any(node not in graph.leaves and will_execute(node) for node in graph.n_dependents)


def _nodes_compute() -> bool:
    """Whether nodes compute gradients when called by hand: not in a backward pass with ``inputs``."""
    with torch.enable_grad():
        probe: Any = torch.zeros((), requires_grad=True) * 1
    return probe.grad_fn(torch.ones(()))[0] is not None


def leaves_behind(x: Tensor) -> tuple[list[Tensor], bool]:
    """The leaves that a backward pass from ``x`` reaches, and whether it calls hooks."""
    graph = explore([] if x.grad_fn is None else [edge_of(x)], {})
    leaves = list(graph.leaves.values())
    has_leaf_hooks = any(leaf._backward_hooks or leaf._post_accumulate_grad_hooks for leaf in leaves)
    return leaves, has_leaf_hooks or bool(hooks.find(graph.edges))


_SECOND_TIME = "Backward through a compacted model a second time. Use retain_graph=True the first time"
_TWO_PATHS = (
    "The loss uses an activation of a compacted model that has hooks. They would be called twice, each time "
    "with a part of the gradient. Remove them, return the activation from forward, or undo skip.compact"
)
_MODIFIED = (
    "An output of a compacted model was modified in place, but shares memory with another output, "
    "an input, or an activation in the loss. Use an operation that is not in place, or undo skip.compact"
)
_JOINT_HOOK = (
    "register_multi_grad_hook was called for an activation of a compacted model after the forward pass. It "
    "cannot be called with all gradients at once. Register it inside forward, or undo skip.compact"
)
_HOOKED_INTERMEDIATE = (
    "A hook or retain_grad() is on an output of a compacted model from which other outputs are computed in "
    "an overlapping graph. It would get a part of the gradient. Register it in forward, or undo skip.compact"
)
