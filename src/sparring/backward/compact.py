"""``compact``: exact backward passes on surviving samples only, for any torch model.

A loss such as AS-Softmax gives many samples a gradient of exactly zero. An ordinary backward pass computes
with these zeros through the whole model. A compacted model leaves them out::

    model(x)                                           loss.backward()

    forward pre-hook    notes inputs and hooks         _RegionFunction.backward receives the gradient of y
        |                                                  |
    model.forward       torch records the graph            |-- few zero rows, hooks, retain_graph, ...:
        |                                                  |       torch's engine runs the graph as always
    forward hook        explores the graph, passes         |
        |               outputs through an autograd        |-- otherwise: GraphWalk runs the graph's nodes
        y               Function, _RegionFunction                  on the surviving rows of the gradient

``backward_hook``: the forward hooks, the autograd Function and the choice between the two ways;
``obstacles``: why a forward pass keeps torch's own backward; ``hooks``: detection of hooks, which only
torch's engine calls; ``regions``: the graph behind the outputs; ``surviving_rows``: gradients of surviving
rows; ``graph_walk``: the walk, and its fallback to torch's engine; ``node_rules``: how a node is run on
surviving rows, with rules in ``layer_rules`` and ``shape_rules``; ``stats``: what was skipped, and why not.
"""

from __future__ import annotations

from typing import Any

from torch import nn
from torch.utils.hooks import RemovableHandle

from sparring.backward.backward_hook import BackwardHook, hook_of
from sparring.backward.obstacles import check_not_sharded

MIN_DROPPED = 1 / 16  # with a smaller share of zero rows, a full backward is as quick


class Compaction:
    """The handle that ``compact`` returns. ``remove()``, or the end of a ``with`` block, undoes it."""

    def __init__(self, model: nn.Module, hook: BackwardHook, handles: list[RemovableHandle]) -> None:
        self.model = model
        self.hook = hook
        self.stats = hook.stats
        self._handles = handles

    def remove(self) -> None:
        """Give the model its ordinary backward back."""
        for handle in self._handles:
            handle.remove()

    def __enter__(self) -> Compaction:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    def __call__(self, *_: Any, **__: Any) -> None:
        raise TypeError(
            "skip.compact changes the model in place and returns a handle to undo it. Call the model itself"
        )


def compact(model: nn.Module, *, min_dropped: float = MIN_DROPPED) -> Compaction:
    """Run the backward passes of ``model`` on samples with a non-zero gradient only. Works in place.

    The surviving samples are read off the gradient of the outputs, whose first dimension must be the samples.
    The losses of this package give won and ignored rows a gradient of exactly zero; any other loss that does
    so works too. Layers that treat samples independently (linear, convolution, attention, LayerNorm,
    embedding, activations, dropout, reshaping) run on survivors. Operations that mix samples (BatchNorm in
    training mode) or that are not known run on all samples (``stats.in_full``). The gradients are those of an
    ordinary backward pass. Hooks are called as often as without ``compact``, and with the same gradients.

    A backward pass with few zero rows, with ``retain_graph`` or ``inputs``, or through hooks on activations
    or modules is left to torch (``stats.reasons``).

    Args:
        model: Any module. For a `DistributedDataParallel` it is the module inside.
        min_dropped: The share of zero rows up to which a backward pass is left to torch.

    Returns:
        A handle with ``stats`` and ``remove()``. If the model is compacted already, it undoes nothing.

    Raises:
        ValueError: FSDP has sharded the model.

    Example:
        >>> import sparring, torch
        >>> _ = torch.manual_seed(0)
        >>> model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 3))
        >>> loss = sparring.ASSoftmaxLoss(delta=0.1)
        >>> x = torch.randn(16, 4)
        >>> y = model(x).argmax(1)  # some of these samples are won
        >>> with compact(model) as compaction:
        ...     loss(model(x), y).backward()
        >>> compaction.stats.n_samples, compaction.stats.n_samples_backward < 16
        (16, True)
    """
    model = model.module if isinstance(model, nn.parallel.DistributedDataParallel) else model
    check_not_sharded(model)
    if (hook := hook_of(model)) is not None:
        return Compaction(model, hook, [])  # the handle of the first call undoes it
    hook = BackwardHook(min_dropped)
    handles = [
        model.register_forward_pre_hook(hook.before, with_kwargs=True),
        model.register_forward_hook(hook, with_kwargs=True, always_call=True),
    ]
    for child in model.children():
        if any(parameter.requires_grad for parameter in child.parameters()):
            handles.append(child.register_forward_pre_hook(hook.before_child))
            break  # the first trainable child is enough to notice calls of model.forward
    return Compaction(model, hook, handles)
