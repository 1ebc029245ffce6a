"""The autograd graph behind a model's outputs, divided into regions. One backward pass covers one region.

Most models have one region, from the outputs to the parameters. If one output is computed from another one
(a decoder's logits from encoder states), the latter begins a region of its own:

    parameters --- encoder --- states --- decoder --- logits
                              output                  output
                   [  region 1  ]   [     region 2      ]

The caller holds the output between two regions. So torch's engine sums its gradients and calls its hooks.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from torch import Tensor

from sparring.backward.node_rules import Node

Edge = tuple[Node, int]  # a node and the number of one of its forward outputs: stands for one tensor

OBSTACLES = {  # nodes that only torch's engine can run, and the reason that is counted for them
    "BackwardHookFunctionBackward": "hooks",  # module hooks
    "CheckpointFunctionBackward": "reentrant checkpointing",
    "CompiledFunctionBackward": "a compiled model",
}


class Subgraph(NamedTuple):
    """The nodes between some roots and the leaves or ``ends``."""

    edges: dict[Node, tuple[Edge, ...]]  # to the next nodes
    n_dependents: dict[Node, int]  # the number of edges that lead to a node
    leaves: dict[Node, Tensor]  # AccumulateGrad nodes and their tensors
    ends: dict[Edge, Tensor]  # tensors at which the subgraph stops
    obstacle: str  # the reason why torch's engine must run it, or ""
    first_sequence_nr: int  # torch numbers nodes in the order of the forward pass

    def inner_nodes(self) -> list[Node]:
        return [node for node in self.edges if node not in self.leaves]

    def targets(self) -> dict[Any, Tensor]:
        """The tensors that get a gradient, by node (leaves) or by edge (ends)."""
        return {**self.leaves, **self.ends}


class Region(NamedTuple):
    """The graph from ``outputs`` to leaves, to inputs of the model, or to the outputs of another region."""

    outputs: list[Tensor]
    edges: list[Edge]  # of the outputs after the forward pass; in-place operations change those of a tensor
    graph: Subgraph
    intermediate: set[int]  # the outputs that other outputs of this region are computed from


def edge_of(x: Tensor) -> Edge:
    return x.grad_fn, x.output_nr


def explore(roots: Iterable[Edge], ends: dict[Edge, Tensor]) -> Subgraph:
    """Find the nodes behind ``roots``, up to leaves and ``ends``."""
    stack: list[Node] = [node for node, _ in roots]
    n_dependents = dict.fromkeys(stack, 0)
    edges: dict[Node, tuple[Edge, ...]] = {}
    leaves: dict[Node, Tensor] = {}
    reached_ends: dict[Edge, Tensor] = {}
    obstacle = ""
    first_sequence_nr = 2**64
    while stack:
        node = stack.pop()
        if node in edges:
            continue
        name = node.name()
        if name == "torch::autograd::AccumulateGrad":
            leaves[node] = node.variable
        else:
            obstacle = obstacle or OBSTACLES.get(name, "nested tensors" if "Nested" in name else "")
            first_sequence_nr = min(first_sequence_nr, node._sequence_nr())
        edges[node] = node.next_functions
        for edge in edges[node]:
            next_node = edge[0]
            if next_node is None:
                continue
            if ends and edge in ends:
                reached_ends[edge] = ends[edge]
            elif next_node in n_dependents:
                n_dependents[next_node] += 1
            else:
                n_dependents[next_node] = 1
                stack.append(next_node)
    return Subgraph(edges, n_dependents, leaves, reached_ends, obstacle, first_sequence_nr)


def divide(outputs: list[Tensor], inputs: dict[Edge, Tensor]) -> list[Region]:
    """The regions behind ``outputs``. A region comes after those that it is computed from.

    Regions may not share a node, not even a leaf, and may have one end each: otherwise torch's engine would
    continue from an end to a leaf. If the graph cannot be divided so, there is one region.
    """
    whole = explore(map(edge_of, outputs), inputs)
    by_edge = {edge_of(output): output for output in outputs}
    inner = _inner_tensors(whole, by_edge) if len(outputs) > 1 else {}
    edges = list(map(edge_of, outputs))
    single = Region(outputs, edges, whole, {i for i, edge in enumerate(edges) if edge in inner})
    if not inner:
        return [single]
    groups: dict[Node, list[Tensor]] = {}
    for (node, _), output in sorted(inner.items(), key=lambda item: item[0][0]._sequence_nr()):
        groups.setdefault(node, []).append(output)
    regions: list[Region] = []
    known_nodes: set[Node] = set()
    known_ends = set(inputs)
    for group in (*groups.values(), [output for edge, output in by_edge.items() if edge not in inner]):
        edges = list(map(edge_of, group))
        graph = explore(edges, {edge: x for edge, x in (inputs | inner).items() if edge not in edges})
        is_separate = known_nodes.isdisjoint(graph.edges) and known_ends.issuperset(graph.ends)
        if len(graph.ends) > 1 or not is_separate:
            return [single]
        known_nodes.update(graph.edges)
        known_ends.update(edges)
        regions.append(Region(group, edges, graph, set()))
    return regions


def inputs_overlap(regions: list[Region], inputs: dict[Edge, Tensor]) -> bool:
    """Whether torch's engine would continue from an input to another, or to leaves that the model uses."""
    if not inputs:
        return False
    graph = explore(inputs, {})
    leaves = {node for region in regions for node in region.graph.leaves}
    return not leaves.isdisjoint(graph.leaves) or bool(_inner_tensors(graph, inputs))


def _inner_tensors(graph: Subgraph, tensors: dict[Edge, Tensor]) -> dict[Edge, Tensor]:
    """Those of ``tensors`` that other tensors in the graph are computed from."""
    inner: set[Any] = {edge for edges in graph.edges.values() for edge in edges}
    return {edge: x for edge, x in tensors.items() if edge in inner}
