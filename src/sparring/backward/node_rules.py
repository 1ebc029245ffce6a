"""How one node of autograd's graph is run on surviving rows.

Each operation that autograd records is a node with a name (``AddmmBackward0``) and saved tensors. A rule for
a kind of node knows which saved tensors contain the samples, along which dimension, and along which dimension
each resulting gradient contains them. With this, torch's own backward of the node runs on the surviving rows.
A rule returns None for a node that mixes samples. The caller runs such a node, and a node without a rule, in
full: a missing rule costs time, never exactness.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor

from sparring.backward.surviving_rows import CompactGrad, SurvivingRows

Node = Any  # torch.autograd.graph.Node: its saved tensors are attributes made by torch's code generator
Values = Sequence[Any]  # a tensor or None for each output, or for each input, of a node
Grads = Sequence[CompactGrad | None]  # one for each edge in ``node.next_functions``


@dataclass(slots=True)
class NodeVisit:
    """A node and the gradients of its outputs. They hold the surviving rows along ``dim``."""

    node: Node
    grads: Values
    rows: SurvivingRows
    dim: int

    @property
    def shape(self) -> tuple[int, ...]:
        """The full shape of the node's first output."""
        return tuple(self.node._input_metadata[0].shape)

    def dims(self, numbers: int | Sequence[int], ndim: int | None = None) -> tuple[int, ...]:
        """Dimensions that the node saved, counted from the front. ``ndim``: by default that of the output."""
        ndim = len(self.shape) if ndim is None else ndim
        return tuple(signed(number) % ndim for number in ([numbers] if isinstance(numbers, int) else numbers))

    def saved(self) -> dict[str, Tensor]:
        """The saved tensors by name, those that this graph needs."""
        tensors = {name: getattr(self.node, "_saved_" + name) for name in _saved_names(self.node.__class__)}
        return {name: x for name, x in tensors.items() if isinstance(x, Tensor)}

    def run(
        self, dims: int | Sequence[int | None] | None, saved: dict[str, int] | None = None
    ) -> Grads | None:
        """Run torch's backward of the node, with the named saved tensors cut to surviving rows.

        ``dims`` and the values of ``saved`` are the dimensions that contain the samples, in the resulting
        gradients (None: not at all) and in saved tensors. Returns None if a saved tensor cannot be cut.
        """
        rows = self.rows  # the hooks below stay on the node, so they must not refer to it
        is_running: list[bool] = []
        for name, dim in (saved or {}).items():
            x = getattr(self.node, "_saved_" + name)  # raises if modified in place; with a hook nothing would
            if x is None or x.layout is not torch.strided:
                return None
            try:
                getattr(self.node, "_raw_saved_" + name).register_hooks(
                    lambda x: x, lambda x, dim=dim: rows.take(x, dim) if is_running else x
                )
            except RuntimeError:  # torch allows one pair of hooks
                return None
        is_running.append(True)
        try:
            return self.results(run_node(self.node, self.grads), dims)
        finally:
            is_running.clear()

    def results(self, values: Values, dims: int | Sequence[int | None] | None) -> Grads:
        """The resulting gradients, with ``dims`` as in ``run``."""
        dims = [dims] * len(values) if dims is None or isinstance(dims, int) else dims
        return [
            None if x is None else CompactGrad(x) if dim is None else CompactGrad(x, self.rows, dim)
            for x, dim in zip(values, dims, strict=True)
        ]


@cache
def _saved_names(node_type: Any) -> list[str]:
    return [name.removeprefix("_raw_saved_") for name in dir(node_type) if name.startswith("_raw_saved_")]


def signed(number: int) -> int:
    """Negative numbers are read back from nodes as unsigned 64-bit numbers."""
    return number - 2**64 if number >= 2**63 else number


def run_node(node: Node, grads: Values) -> Values:
    """Call torch's backward of a node: one gradient per edge of ``node.next_functions``."""
    is_custom_function = isinstance(node, torch.autograd.function.BackwardCFunction)
    if not is_custom_function:
        values = node(*grads)
        return values if isinstance(values, tuple) else (values,)
    grads = [
        torch.zeros(meta.shape, dtype=meta.dtype, device=meta.device) if grad is None else grad
        for grad, meta in zip(grads, node._input_metadata, strict=True)
    ]
    values = node.apply(*grads)  # one gradient per argument, also for those without an edge
    values = values if isinstance(values, tuple) else (values,)
    values = values[: len(node.needs_input_grad)]  # it may return more Nones than there are arguments
    needed = iter([x for x, needs in zip(values, node.needs_input_grad, strict=True) if needs])
    return [None if edge[0] is None else next(needed) for edge in node.next_functions]


NodeRule = Callable[[NodeVisit], Grads | None]

_RULES: dict[str, NodeRule] = {}


def rule(names: str) -> Callable[[NodeRule], NodeRule]:
    """Register a rule for nodes of these names, which are separated by spaces."""

    def register(function: NodeRule) -> NodeRule:
        _RULES.update(dict.fromkeys(names.split(), function))
        return function

    return register


@cache
def kind_of(name: str) -> str:
    """ "Mul" for ``MulBackward0`` and ``MulBackward1``, not for ``MulBackward`` (of a Python Function)."""
    return re.sub(r"Backward\d+$", "", name)


def rule_for(node: Node) -> NodeRule | None:
    return _RULES.get(kind_of(node.name()))
