"""A backward pass over the survivors only: autograd's graph, walked by hand.

torch's engine insists that every gradient has the shape its tensor had in the forward. This walk visits the same nodes in the same
order of dependence and runs torch's own kernels, but hands from node to node only the survivors' part
wherever ``node_rules`` knows that samples do not meet. Elsewhere it fills the others' zeros in, runs the node in full, and looks
whether they stayed zero: if they did (a sort, say) it goes on with the survivors, if not (BatchNorm) torch's engine finishes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import zip_longest
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import BackwardCFunction
from torch.autograd.graph import GradientEdge

from sparring.training import layer_rules, shape_rules  # noqa: F401  (they register themselves)
from sparring.training.node_rules import Node, Rule, rule_for, run
from sparring.training.survivors import Grad, Survivors, nonzero_rows

Edge = tuple[Node, int]  # a node and which of its inputs: where autograd keeps the gradient of one tensor

PATIENCE = 4  # how often a walk may fall back to full size and look for zeros before it lets the engine finish


class Graph(NamedTuple):
    """What lies between a model's outputs and its leaves."""

    edges: dict[Node, tuple[Edge, ...]]  # from each node
    rules: dict[Node, Rule | None]  # what is known of each
    dependents: dict[Node, int]  # for each node, how many edges lead to it
    leaves: dict[Node, Tensor]  # AccumulateGrad nodes and their tensors
    opaque: bool  # hooks on modules: only the engine runs them


def edge_of(x: Tensor) -> Edge:
    return x.grad_fn, x.output_nr


def explore(roots: Sequence[Tensor], inputs: frozenset[Edge]) -> Graph:
    """The graph behind ``roots``, up to ``inputs``: edges into the graph that came before."""
    stack: list[Node] = [root.grad_fn for root in roots]
    graph = Graph({}, {}, dict.fromkeys(stack, 0), {}, False)
    _, rules, dependents, leaves, opaque = graph
    while stack:
        node = stack.pop()
        if node in graph.edges:
            continue
        name = node.name()
        if name == "torch::autograd::AccumulateGrad":
            leaves[node] = node.variable
        opaque = opaque or name == "BackwardHookFunctionBackward"
        rules[node] = rule_for(name)
        edges = graph.edges[node] = node.next_functions
        for edge in edges:
            after = edge[0]
            if after is None or (inputs and edge in inputs):
                continue
            if after not in dependents:
                dependents[after] = 1
                stack.append(after)
            else:
                dependents[after] += 1
    return graph._replace(opaque=opaque)


class Walk:
    """One backward pass. ``gradients`` maps leaves' nodes and input edges to their gradients when it is over."""

    def __init__(self, graph: Graph, inputs: frozenset[Edge]) -> None:
        self.graph, self.inputs = graph, inputs
        self.waiting: dict[Node, list[Grad | None]] = {}  # gradients that arrived, one per output of the node
        self.gradients: dict[Any, Tensor] = {}
        self.known: list[Survivors] = []
        self.in_full: Counter[str] = Counter()  # nodes run in full, by name
        self.owners: dict[Node, Any] = {}  # what keeps a node alive that is written in Python: holding it is not enough
        self.n_compact = 0  # gradients in waiting that hold survivors only

    def run(self, roots: list[Tensor], grads: Sequence[Tensor], rows: Survivors) -> None:
        """From ``roots``, which are emptied: while the walk goes on, what lies behind it is freed."""
        self.known.append(rows)
        for grad in reversed(grads):
            root = roots.pop()
            self.owners[root.grad_fn] = root
            self._arrive(edge_of(root), Grad(rows.take(grad, 0), rows, 0))
        del root
        edges, rules, dependents, leaves, _ = self.graph
        ready = [node for node, count in dependents.items() if count == 0]
        while ready and self.n_compact:
            node = ready.pop()
            owner = node, self.owners.pop(node, None)
            outs = self._visit(node) if node in self.waiting else ()
            for edge, out in zip_longest(edges[node], outs):
                after = edge[0]
                if after is None:
                    continue
                if out is not None:
                    self._arrive(edge, out)
                if after in leaves or (self.inputs and edge in self.inputs):
                    continue
                if rules[after] is None and isinstance(after, BackwardCFunction):
                    self.owners[after] = owner
                dependents[after] -= 1
                if dependents[after] == 0:
                    ready.append(after)
            del dependents[node], edges[node], rules[node], owner  # lets the node and what it saved go
        self._finish()

    def _arrive(self, edge: Edge, grad: Grad) -> None:
        """A gradient for one input of a node: brought to the shape and dtype of what went in, as the engine does."""
        node, slot = edge
        if node in self.graph.leaves:
            self._collect(node, grad.fit(self.graph.leaves[node].shape))
            return
        metas = node._input_metadata
        grad = grad.fit(metas[slot].shape)
        if grad.value.dtype != metas[slot].dtype:
            grad = grad._replace(value=grad.value.to(metas[slot].dtype))
        if self.inputs and edge in self.inputs:
            self._collect(edge, grad)
            return
        if grad.rows is not None:
            self.n_compact += 1
        slots = self.waiting.get(node)
        if slots is None:
            slots = self.waiting[node] = [None] * len(metas)
        before = slots[slot]
        if before is None:
            slots[slot] = grad
            return
        slots[slot] = total = before + grad
        self.n_compact -= (before.rows is not None) + (grad.rows is not None) - (total.rows is not None)

    def _collect(self, end: Any, grad: Grad) -> None:
        before = self.gradients.get(end)
        self.gradients[end] = grad.full() if before is None else before + grad.full()

    def _visit(self, node: Node) -> Sequence[Grad | None]:
        """Gradients for the node's edges."""
        grads = self.waiting.pop(node)
        arrived = [grad for grad in grads if grad is not None]
        _, rows, dim = arrived[0]
        alike = len(arrived) == 1 or all(grad.rows is rows and grad.dim == dim for grad in arrived)
        if alike and rows is not None:
            self.n_compact -= len(arrived)
            rule = self.graph.rules[node]
            outs = rule and rule(node, [grad and grad.value for grad in grads], rows, dim)
            if outs is not None:
                return outs
        else:
            self.n_compact -= sum(grad.rows is not None for grad in arrived)
        values = run(node, [grad and grad.full() for grad in grads])
        if alike and rows is None:
            return [None if value is None else Grad(value) for value in values]
        self.in_full[node.name()] += 1
        return [None if value is None else self._compacted(value) for value in values]

    def _compacted(self, grad: Tensor) -> Grad:
        """The survivors' part again, where the rest is zero still."""
        if self.in_full.total() > PATIENCE or grad.ndim == 0:
            return Grad(grad)
        alive = nonzero_rows(grad)
        rows = next((rows for rows in self.known if rows.covers(alive)), None)
        if rows is None:
            rows = Survivors(alive.nonzero().squeeze(1), len(alive))
            if not 0 < rows.k < rows.n:
                return Grad(grad)
            self.known.append(rows)
        return Grad(rows.take(grad, 0), rows, 0)

    def _finish(self) -> None:
        """Leave what is in full anyway to the engine."""
        starts = [(GradientEdge(n, i), grad.value) for n, slots in self.waiting.items() for i, grad in enumerate(slots) if grad is not None]
        if not starts:
            return
        edges, values = zip(*starts, strict=True)
        ends = [*((node, 0) for node in self.graph.leaves), *self.inputs]
        found = torch.autograd.grad(edges, [GradientEdge(*end) for end in ends], values, allow_unused=True, retain_graph=True)
        for end, grad in zip(ends, found, strict=True):
            if grad is not None:
                self._collect(end if end in self.inputs else end[0], Grad(grad))
