"""What prevents skipping for a whole forward pass: hooks, sharded parameters, function transforms, ..."""

from __future__ import annotations

from collections import UserDict
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from sparring.backward import hooks
from sparring.backward.regions import Edge, Region, edge_of, inputs_overlap


class ForwardState(NamedTuple):
    """What was true when a forward pass began. A model may write its outputs into a dictionary of inputs."""

    inputs: list[Tensor]  # those that require gradients
    hooks: hooks.Snapshot
    first_sequence_nr: int  # nodes that the forward pass creates have this number or a higher one
    saving_is_hooked: bool

    @classmethod
    def capture(cls, arguments: Any) -> ForwardState:
        leaves = tree_leaves(arguments)
        leaves += [x for leaf in leaves if isinstance(leaf, UserDict) for x in leaf.values()]
        inputs = [x for x in leaves if isinstance(x, Tensor) and x.requires_grad]
        with torch.enable_grad():
            probe: Any = torch.zeros((), requires_grad=True).neg()  # saves nothing, so no saving hook sees it
        return cls(inputs, hooks.snapshot(), probe.grad_fn._sequence_nr() + 1, hooks.saving_is_hooked())

    def input_edges(self) -> dict[Edge, Tensor]:
        return {edge_of(x): x for x in self.inputs if x.grad_fn is not None}


def find_obstacle(module: nn.Module, forward: ForwardState, regions: list[Region]) -> str:
    """The reason why this forward pass keeps torch's own backward, or "". Raises ValueError for FSDP."""
    if forward.saving_is_hooked or hooks.snapshot().n_saving != forward.hooks.n_saving:
        return "saved tensors are hooked"
    if torch.is_anomaly_enabled():
        return "anomaly detection"
    if module._is_full_backward_hook is False or nn.modules.module._global_is_full_backward_hook is False:
        return "hooks"  # of the deprecated form, which torch puts on the last node
    for region in regions:
        graph = region.graph
        if graph.obstacle:
            return graph.obstacle
        if any(getattr(leaf, "_is_flat_param", False) for leaf in graph.leaves.values()):
            raise _refusal("FullyShardedDataParallel")
        if any(_has_base(type(leaf).__mro__, "DTensor") for leaf in graph.leaves.values()):
            return "DTensor parameters"
        if graph.first_sequence_nr < forward.first_sequence_nr:
            return "activations from before the forward"  # with hooks, or shared with other forward passes
        if hooks.find(graph.inner_nodes(), since=forward.hooks):
            return "hooks"
    if inputs_overlap(regions, forward.input_edges()):
        return "inputs made of the model's own parameters, or of each other"
    return ""


def is_transformed() -> bool:
    """Whether torch.func, forward-mode AD or torch.jit.trace is active, which compute gradients otherwise."""
    return (
        torch._C._get_tracing_state() is not None
        or torch._C._functorch.peek_interpreter_stack() is not None
        or torch.autograd.forward_ad._current_level >= 0
    )


def storage_of(x: Tensor) -> Any:
    """A key that is equal for tensors that share memory."""
    is_plain = type(x) in (Tensor, nn.Parameter) and x.layout is torch.strided and not x.is_nested
    return x.untyped_storage()._cdata if is_plain else id(x)


def check_not_sharded(model: nn.Module) -> None:
    """Raise ValueError for FSDP modules. Each forward pass checks it: a model may be sharded later."""
    for module in model.modules():
        if _has_base(type(module).__mro__, "FSDP", "FullyShardedDataParallel"):
            raise _refusal(type(module).__name__)


@cache
def _has_base(bases: tuple[type, ...], *names: str) -> bool:
    return any(name in base.__name__ for base in bases for name in names)


def _refusal(name: str) -> ValueError:
    return ValueError(
        f"skip.compact needs parameters that are whole, got {name}, which gathers them in backward hooks. "
        'Use DistributedDataParallel, or skip="two-pass"'
    )
