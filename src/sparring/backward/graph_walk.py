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
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import BackwardCFunction
from torch.autograd.graph import GradientEdge

from sparring.backward.hooks import called_outside
from sparring.backward.node_rules import Node, run
from sparring.backward.regions import Edge, Graph
from sparring.backward.surviving_rows import Grad, Survivors, nonzero_rows

PATIENCE = (
    4  # how often a walk may fall back to full size and look for zeros before it lets the engine finish
)


class Walk:
    """One backward pass. ``gradients`` maps leaves' nodes and end edges to their gradients when it is over."""

    def __init__(self, graph: Graph) -> None:
        self.graph, self.ends = graph, graph.ends
        self.waiting: dict[Node, list[Grad | None]] = {}  # gradients that arrived, one per output of the node
        self.gradients: dict[Any, Tensor] = {}
        self.known: list[Survivors] = []
        self.in_full: Counter[str] = Counter()  # nodes run in full, by name
        self.full_from = ""  # the node from which on gradients hold all samples
        self.owners: dict[
            Node, Any
        ] = {}  # what keeps a node alive that is written in Python: holding it is not enough
        self.n_compact = 0  # gradients in waiting that hold survivors only

    def run(self, roots: list[tuple[Edge, Tensor]], grads: Sequence[Tensor], rows: Survivors) -> None:
        """From ``roots``, which are emptied: while the walk goes on, what lies behind it is freed."""
        self.known.append(rows)
        for grad in reversed(grads):
            edge, root = roots.pop()
            self.owners[edge[0]] = root
            self._arrive(edge, Grad(rows.take(grad, 0), rows, 0))
        del edge, root
        edges, rules, dependents, leaves, *_ = self.graph
        ready = [node for node, count in dependents.items() if count == 0]
        while ready and self.n_compact:
            node = ready.pop()
            if isinstance(node, BackwardCFunction) and None in self.waiting.get(node, ()):
                self._hand_over(node)
                break
            owner = node, self.owners.pop(node, None)
            outs = self._visit(node) if node in self.waiting else ()
            for edge, out in zip_longest(edges[node], outs):
                after = edge[0]
                if after is None:
                    continue
                if out is not None:
                    self._arrive(edge, out)
                if after in leaves or (self.ends and edge in self.ends):
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
        if self.ends and edge in self.ends:
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
        outs = [None if value is None else self._compacted(value) for value in values]
        for edge, out in zip_longest(self.graph.edges[node], outs):
            if (
                out is not None
                and out.rows is None
                and edge[0] is not None
                and edge[0] not in self.graph.leaves
            ):
                self.full_from = self.full_from or node.name()
        return outs

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

    def _hand_over(self, node: Node) -> None:
        """Let the engine go on from here: only it knows whether a Function written in Python takes None for a gradient or zeros."""
        self.full_from = node.name()
        for slots in self.waiting.values():
            slots[:] = [None if grad is None else Grad(grad.full()) for grad in slots]

    def _finish(self) -> None:
        """Leave what is in full anyway to the engine."""
        starts = [
            (GradientEdge(n, i), grad.value)
            for n, slots in self.waiting.items()
            for i, grad in enumerate(slots)
            if grad is not None
        ]
        if not starts:
            return
        edges, values = zip(*starts, strict=True)
        targets: dict[Any, GradientEdge] = {node: GradientEdge(node, 0) for node in self.graph.leaves}
        targets |= {end: GradientEdge(*end) for end in self.ends}
        tensors = [*self.graph.leaves.values(), *self.ends.values()]
        with called_outside(tensors, [edge.node for edge in edges]):
            gradients = torch.autograd.grad(
                edges, [*targets.values()], values, allow_unused=True, retain_graph=True
            )
        for target, grad in zip(targets, gradients, strict=True):
            if grad is not None:
                self._collect(target, Grad(grad))
