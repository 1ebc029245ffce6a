"""The autograd graph behind a model's outputs, in regions: parts that one backward pass covers each.

Most models have one region, from their outputs to the leaves. An output that other outputs are made of (the encoder's states that a
decoder's logits come from, a hidden state that is returned beside the logits) begins a region of its own. Between two regions
lies an output that the caller holds, so torch's engine adds up its gradients and calls its hooks.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from torch import Tensor

from sparring.backward import layer_rules, shape_rules  # noqa: F401  (they register themselves)
from sparring.backward.node_rules import Node, Rule, rule_for

Edge = tuple[Node, int]  # a node and which of its inputs: where autograd keeps the gradient of one tensor

OBSTACLES = {  # nodes that only torch's engine runs as they should be run
    "BackwardHookFunctionBackward": "hooks",  # on modules
    "CheckpointFunctionBackward": "reentrant checkpointing",
    "CompiledFunctionBackward": "a compiled model",
}


class Graph(NamedTuple):
    """The nodes of a region."""

    edges: dict[Node, tuple[Edge, ...]]  # from each node
    rules: dict[Node, Rule | None]  # what is known of each
    dependents: dict[Node, int]  # for each node, how many edges lead to it
    leaves: dict[Node, Tensor]  # AccumulateGrad nodes and their tensors
    ends: dict[Edge, Tensor]  # tensors beyond which it does not go
    obstacle: str  # why the engine must run it, "" where it need not
    first_number: int  # of its nodes: torch numbers them in the order of the forward

    def inner_nodes(self) -> list[Node]:
        return [node for node in self.edges if node not in self.leaves]


class Region(NamedTuple):
    """From ``outputs`` down to leaves and to ends: inputs of the model, or outputs that begin another region."""

    outputs: list[Tensor]
    edges: list[
        Edge
    ]  # of the outputs, as the forward left them: in-place operations change those of a tensor
    graph: Graph
    feeding: list[Tensor]  # of the outputs, those that other outputs of this same region are made of


def edge_of(x: Tensor) -> Edge:
    return x.grad_fn, x.output_nr


def explore(roots: Iterable[Edge], ends: dict[Edge, Tensor]) -> Graph:
    """The graph behind ``roots``, up to leaves and ``ends``."""
    stack: list[Node] = [node for node, _ in roots]
    edges: dict[Node, tuple[Edge, ...]] = {}
    rules: dict[Node, Rule | None] = {}
    leaves: dict[Node, Tensor] = {}
    reached_ends: dict[Edge, Tensor] = {}
    dependents = dict.fromkeys(stack, 0)
    obstacle, first_number = "", 2**64
    while stack:
        node = stack.pop()
        if node in edges:
            continue
        name = node.name()
        if name == "torch::autograd::AccumulateGrad":
            leaves[node] = node.variable
        else:
            obstacle = obstacle or OBSTACLES.get(name, "nested tensors" if "Nested" in name else "")
            first_number = min(first_number, node._sequence_nr())
        rules[node] = rule_for(name)
        next_edges = edges[node] = node.next_functions
        for edge in next_edges:
            after = edge[0]
            if after is None:
                continue
            if ends and edge in ends:
                reached_ends[edge] = ends[edge]
                continue
            if after not in dependents:
                dependents[after] = 1
                stack.append(after)
            else:
                dependents[after] += 1
    return Graph(edges, rules, dependents, leaves, reached_ends, obstacle, first_number)


def regions_of(outputs: list[Tensor], inputs: dict[Edge, Tensor]) -> list[Region]:
    """Those behind ``outputs``, the ones that others feed on first.

    Regions may share nothing, not even a leaf, and may have one end each: torch's engine, asked for the gradients of a leaf and of
    an end, goes on from the end to the leaf. Where this does not hold, everything is one region.
    """
    whole = explore(map(edge_of, outputs), inputs)
    begins = {edge_of(output): output for output in outputs}
    feeding = _feeding(whole, begins) if len(outputs) > 1 else {}
    everything = Region(outputs, list(map(edge_of, outputs)), whole, list(feeding.values()))
    groups: dict[Node, list[Tensor]] = {}
    for (node, _), output in sorted(feeding.items(), key=lambda item: item[0][0]._sequence_nr()):
        groups.setdefault(node, []).append(output)
    last = [output for edge, output in begins.items() if edge not in feeding]
    regions: list[Region] = []
    known_nodes: set[Node] = set()
    known_ends = set(inputs)
    for group in (*groups.values(), last) if feeding else ():
        begin = list(map(edge_of, group))
        graph = explore(
            begin, {edge: x for edge, x in (*inputs.items(), *feeding.items()) if edge not in begin}
        )
        if (
            len(graph.ends) > 1
            or not known_nodes.isdisjoint(graph.edges)
            or not known_ends.issuperset(graph.ends)
        ):
            return [everything]
        known_nodes.update(graph.edges)
        known_ends.update(begin)
        regions.append(Region(group, begin, graph, []))
    return regions or [everything]


def inputs_overlap(regions: list[Region], inputs: dict[Edge, Tensor]) -> bool:
    """Whether an input is made of another input, or of leaves that the model uses too, so that the engine would go on to them."""
    if not inputs:
        return False
    before = explore(inputs, {})
    leaves = {node for region in regions for node in region.graph.leaves}
    return not leaves.isdisjoint(before.leaves) or bool(_feeding(before, inputs))


def _feeding(graph: Graph, begins: dict[Edge, Tensor]) -> dict[Edge, Tensor]:
    """The outputs that other outputs are made of."""
    inner: set[Any] = {edge for edges in graph.edges.values() for edge in edges}
    return {edge: output for edge, output in begins.items() if edge in inner}
