"""The backward pass on surviving rows: a walk over autograd's graph.

torch's engine requires that each gradient has the shape of its tensor in the forward pass. The walk visits
the same nodes in the same order of dependence and runs torch's own kernels, but passes on surviving rows
only:

    node has a rule that applies    run the node on the surviving rows
    any other node                  fill in zeros, run the node in full, and look for zero rows in the result:
        other rows are still zero       go on with the surviving rows (after a sort, for example)
        other rows are not zero         this gradient stays full (after BatchNorm, for example)

When all remaining gradients are full, torch's engine finishes the pass.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import BackwardCFunction
from torch.autograd.graph import GradientEdge

from sparring.backward import layer_rules, shape_rules  # noqa: F401  (importing them registers the rules)
from sparring.backward.hooks import muted
from sparring.backward.node_rules import Grads, Node, NodeVisit, rule_for, run_node
from sparring.backward.regions import Edge, Subgraph
from sparring.backward.surviving_rows import CompactGrad, SurvivingRows, nonzero_rows

MAX_ZERO_SEARCHES = 4  # nodes run in full whose results are searched for zero rows; later results stay full


class GraphWalk:
    """One backward pass. Afterwards ``gradients`` has those of the graph's targets."""

    def __init__(self, graph: Subgraph) -> None:
        self.graph = graph
        self.gradients: dict[Any, Tensor] = {}
        self.run_in_full: Counter[str] = Counter()  # names of nodes
        self.full_from = ""  # name of the first node with a result that stayed full
        self.n_nodes = len(graph.n_dependents)
        self.n_on_survivors = 0  # nodes that a rule ran on the surviving rows
        self._waiting: dict[Node, list[CompactGrad | None]] = {}  # gradients of the outputs of a node
        self._n_compact = 0  # waiting gradients that hold surviving rows only
        self._known_rows: list[SurvivingRows] = []
        self._owners: dict[
            Node, Any
        ] = {}  # what keeps the node of a custom Function alive: our reference does not

    def run(self, roots: list[tuple[Edge, Tensor]], grads: Sequence[Tensor], rows: SurvivingRows) -> None:
        """Walk from ``roots``. The list and the graph are emptied on the way, which frees visited nodes."""
        self._known_rows.append(rows)
        for grad in reversed(grads):
            edge, output = roots.pop()
            self._owners[edge[0]] = output
            self._receive(edge, CompactGrad(rows.take(grad, 0), rows))
        del edge, output
        graph = self.graph
        ready = [node for node, count in graph.n_dependents.items() if count == 0]
        while ready and self._n_compact:
            node = ready.pop()
            if isinstance(node, BackwardCFunction) and None in self._waiting.get(node, ()):
                self._fill_all(node)
                break
            owner = node, self._owners.pop(node, None)
            results = self._visit(node) if node in self._waiting else ()
            for edge, result in zip_longest(graph.edges[node], results):
                next_node = edge[0]
                if next_node is None:
                    continue
                if result is not None:
                    self._receive(edge, result)
                if next_node in graph.leaves or (graph.ends and edge in graph.ends):
                    continue
                if isinstance(next_node, BackwardCFunction):
                    self._owners[next_node] = owner
                graph.n_dependents[next_node] -= 1
                if graph.n_dependents[next_node] == 0:
                    ready.append(next_node)
            del graph.n_dependents[node], graph.edges[node], owner
        starts = [((n, i), x.value) for n, slots in self._waiting.items() for i, x in enumerate(slots) if x]
        if starts:
            for target, gradient in run_engine(graph, starts, retain_graph=True).items():
                self._collect(target, gradient)

    def _receive(self, edge: Edge, grad: CompactGrad) -> None:
        """Store a gradient for the output of a node, in its shape and dtype, as torch's engine does."""
        node, output_nr = edge
        if node in self.graph.leaves:
            self._collect(node, grad.sum_to(self.graph.leaves[node].shape).full())
            return
        metadata = node._input_metadata
        grad = grad.sum_to(metadata[output_nr].shape)
        if grad.value.dtype != metadata[output_nr].dtype:
            grad = grad._replace(value=grad.value.to(metadata[output_nr].dtype))
        if self.graph.ends and edge in self.graph.ends:
            self._collect(edge, grad.full())
            return
        slots = self._waiting.setdefault(node, [None] * len(metadata))
        earlier = slots[output_nr]
        slots[output_nr] = total = grad if earlier is None else earlier.add(grad)
        self._n_compact += (total.rows is not None) - (earlier is not None and earlier.rows is not None)

    def _collect(self, target: Any, grad: Tensor) -> None:
        self.gradients[target] = self.gradients[target] + grad if target in self.gradients else grad

    def _visit(self, node: Node) -> Grads:
        """Run a node. Returns one gradient for each of its edges."""
        slots = self._waiting.pop(node)
        grads = [grad for grad in slots if grad is not None]
        self._n_compact -= sum(grad.rows is not None for grad in grads)
        _, rows, dim = grads[0]
        have_same_rows = len(grads) == 1 or all(grad.rows is rows and grad.dim == dim for grad in grads)
        if have_same_rows and rows is not None and (rule := rule_for(node)) is not None:
            results = rule(NodeVisit(node, [grad and grad.value for grad in slots], rows, dim))
            if results is not None:
                self.n_on_survivors += 1
                return results
        values = run_node(node, [grad and grad.full() for grad in slots])
        if have_same_rows and rows is None:
            return [None if value is None else CompactGrad(value) for value in values]
        self.run_in_full[node.name()] += 1
        results = [None if value is None else self._compact(value) for value in values]
        for (next_node, _), result in zip_longest(self.graph.edges[node], results):
            is_full = result is not None and result.rows is None
            if is_full and next_node is not None and next_node not in self.graph.leaves:
                self.full_from = self.full_from or node.name()
        return results

    def _compact(self, grad: Tensor) -> CompactGrad:
        """Cut a gradient to surviving rows again, if the other rows are zero."""
        if self.run_in_full.total() > MAX_ZERO_SEARCHES or grad.ndim == 0:
            return CompactGrad(grad)
        nonzero = nonzero_rows(grad)
        rows = next((rows for rows in self._known_rows if rows.covers(nonzero)), None)
        if rows is None:
            rows = SurvivingRows(nonzero.nonzero().squeeze(1), len(nonzero))
            if not 0 < rows.k < rows.n:
                return CompactGrad(grad)
            self._known_rows.append(rows)
        return CompactGrad(rows.take(grad, 0), rows)

    def _fill_all(self, node: Node) -> None:
        """Leave the rest to torch's engine: it knows whether a custom Function expects None or zeros."""
        self.full_from = node.name()
        for slots in self._waiting.values():
            slots[:] = [grad and CompactGrad(grad.full()) for grad in slots]


def run_engine(
    graph: Subgraph, starts: list[tuple[Edge, Tensor]], retain_graph: bool, create_graph: bool = False
) -> dict[Any, Tensor]:
    """The gradients of the graph's targets, by torch's engine, from those of ``starts``."""
    targets = graph.targets()
    inputs = [
        GradientEdge(*target) if isinstance(target, tuple) else GradientEdge(target, 0) for target in targets
    ]
    outputs = [GradientEdge(*edge) for edge, _ in starts]
    options = {"retain_graph": retain_graph, "create_graph": create_graph, "allow_unused": True}
    with muted(targets.values(), [edge.node for edge in outputs]):
        gradients = torch.autograd.grad(outputs, inputs, [grad for _, grad in starts], **options)
    return {target: grad for target, grad in zip(targets, gradients, strict=True) if grad is not None}
