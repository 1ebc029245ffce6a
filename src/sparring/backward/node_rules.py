"""What torch's backward nodes do to samples that are independent of each other.

Every operation recorded by autograd is a node with a name (``AddmmBackward0``) and saved tensors. A rule here knows one kind of
node well enough to run torch's own backward of it on the survivors alone: which saved tensors run over the
samples and along which dimension, and along which one each resulting gradient does. A node without a rule, or whose rule
declines (returns None), is run in full by the caller. So a missing rule costs time, never exactness.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

from sparring.backward.surviving_rows import Grad, Survivors

Node = Any  # torch.autograd.graph.Node: its saved tensors are attributes made by torch's code generator
Values = Sequence[Tensor | None]
Outs = Sequence[Grad | None]
Rule = Callable[[Node, Values, Survivors, int], Outs | None]


_RULES: dict[str, Rule] = {}


@cache
def rule_for(name: str) -> Rule | None:
    """The rule for a kind of node. Overloads (``MulBackward0`` by tensor, ``MulBackward1`` by scalar) share one.

    Only torch's own nodes have a number: a Function somebody called ``Mul`` in Python gives a ``MulBackward``.
    """
    return _RULES.get(re.sub(r"Backward\d+$", "", name))


def rule(*names: str) -> Callable[[Rule], Rule]:
    def register(rule: Rule) -> Rule:
        _RULES.update(dict.fromkeys(names, rule))
        return rule

    return register


# ---------------------------------------------------------------- running torch's own node on the survivors


class _Saved:
    """A hook on one saved tensor: it comes out with the survivors only, while ``armed``."""

    def __init__(self, rows: Survivors, dim: int) -> None:
        self.rows, self.dim, self.armed = rows, dim, False

    def unpack(self, x: Tensor) -> Tensor:
        return self.rows.take(x, self.dim) if self.armed else x


def _identity(x: Tensor) -> Tensor:
    return x


def run_on(
    node: Node, values: Values, rows: Survivors, saved: dict[str, int]
) -> tuple[Tensor | None, ...] | None:
    """torch's backward of ``node`` with the named saved tensors cut to the survivors; None where that is not possible: one is
    hooked already, or sparse."""
    hooks = []
    for name, dim in saved.items():
        x = getattr(
            node, "_saved_" + name
        )  # raises where it was modified in place; with a hook on it nobody would notice
        if x is None or x.layout is not torch.strided:
            return None
        hook = _Saved(rows, dim)
        try:
            getattr(node, "_raw_saved_" + name).register_hooks(_identity, hook.unpack)
        except RuntimeError:  # hooked already
            return None
        hooks.append(hook)
    for hook in hooks:
        hook.armed = True
    try:
        return run(node, values)
    finally:
        for hook in hooks:
            hook.armed = False


def run(node: Node, values: Values) -> tuple[Tensor | None, ...]:
    """torch's backward of ``node``, called by hand: one gradient per edge of ``node.next_functions``."""
    if isinstance(node, torch.autograd.function.BackwardCFunction):
        return _run_python(node, values)
    outs = node(*values)
    return outs if isinstance(outs, tuple) else (outs,)


def _run_python(node: Node, values: Values) -> tuple[Tensor | None, ...]:
    """A Function written in Python: its backward answers for every argument, also for those that have no edge."""
    metas = node._input_metadata
    given = [
        torch.zeros(m.shape, dtype=m.dtype, device=m.device) if v is None else v
        for v, m in zip(values, metas, strict=True)
    ]
    outs = node.apply(*given)
    outs = outs if isinstance(outs, tuple) else (outs,)
    outs = outs[: len(node.needs_input_grad)]  # further ones may be None
    needed = iter([out for out, need in zip(outs, node.needs_input_grad, strict=True) if need])
    return tuple(None if edge[0] is None else next(needed) for edge in node.next_functions)


def grads(outs: Values | None, rows: Survivors, dims: int | Sequence[int | None]) -> Outs | None:
    """Each edge's gradient: along which dimension it holds the survivors, None for what all samples share."""
    if outs is None:
        return None
    if isinstance(dims, int):
        return [None if out is None else Grad(out, rows, dims) for out in outs]
    return [
        None if out is None else Grad(out) if d is None else Grad(out, rows, d)
        for out, d in zip(outs, dims, strict=True)
    ]


def saved_by(node: Node) -> dict[str, Tensor]:
    """The node's saved tensors by name, those it needs for this graph only."""
    tensors = {name: getattr(node, attribute) for name, attribute in _saved_names(node.__class__)}
    return {name: x for name, x in tensors.items() if isinstance(x, Tensor)}


@cache
def _saved_names(kind: Any) -> list[tuple[str, str]]:
    names = [name.removeprefix("_raw_saved_") for name in dir(kind) if name.startswith("_raw_saved_")]
    return [(name, f"_saved_{name}") for name in names]


def signed(number: int) -> int:
    """Negative dimensions are read back as unsigned 64-bit numbers."""
    return number - 2**64 if number >= 2**63 else number


def dims_of(numbers: int | Sequence[int], ndim: int) -> tuple[int, ...]:
    many = (numbers,) if isinstance(numbers, int) else numbers
    return tuple(signed(number) % ndim for number in many)


def shape_of(node: Node) -> tuple[int, ...]:
    """Shape of the node's (first) result in the forward."""
    return tuple(node._input_metadata[0].shape)


def cut(shape: Sequence[int], rows: Survivors, dim: int) -> list[int]:
    return [*shape[:dim], shape[dim] // rows.n * rows.k, *shape[dim + 1 :]]
