"""``compact``: a model's backward on surviving samples only, in place, and undone again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from sparring.backward.backward_hook import Gate, gate_of
from sparring.backward.sharding import check_modules

MIN_DROPPED = 1 / 16  # below this share of zero rows a full backward is as quick


class Compaction:
    """What ``compact`` returns: undoes it (``remove``, or at the end of a ``with``) and tells what happened (``stats``)."""

    def __init__(self, model: nn.Module, gate: Gate, undo: Callable[[], None]) -> None:
        self.model, self.gate, self.stats, self._undo = model, gate, gate.stats, undo

    def remove(self) -> None:
        """Give the model its ordinary backward back."""
        self._undo()

    def __enter__(self) -> Compaction:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    def __call__(self, *_: Any, **__: Any) -> None:
        raise TypeError(
            "skip.compact changes the model in place; go on calling the model itself, and keep this to undo it"
        )


def compact(model: nn.Module, *, min_dropped: float = MIN_DROPPED) -> Compaction:
    """Make ``model``'s backward run on the samples with a non-zero gradient only. In place, for any torch model.

    The survivors are read off the gradient of the model's outputs, whose first dimension must run over the samples: our
    losses give won and ignored rows a gradient of exactly zero, and any other loss that does so is as welcome. Layers that
    treat samples one by one (linear, convolution, attention, normalisation over features, embedding, activations, dropout,
    shapes) run on survivors; where samples meet (BatchNorm in training mode) or an operation is not known, the
    backward is a full one from there on, or until the zeros are back. ``stats.in_full`` counts these.

    A backward with fewer than ``min_dropped`` zero rows, with ``retain_graph``, or given ``inputs``, or through hooks on activations
    or modules, is torch's own: ``stats.reasons`` counts why. Hooks are called as often as without ``compact``, and with the same
    gradients. Models that FSDP has sharded are refused.

    >>> import sparring, torch
    >>> _ = torch.manual_seed(0)
    >>> model, loss = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 3)), sparring.ASSoftmaxLoss(delta=0.1)
    >>> x = torch.randn(16, 4)
    >>> y = model(x).argmax(1)  # some of these it has won already
    >>> with compact(model) as compaction:
    ...     loss(model(x), y).backward()
    >>> compaction.stats.n_samples, compaction.stats.n_samples_backward < 16
    (16, True)
    """
    model = model.module if isinstance(model, nn.parallel.DistributedDataParallel) else model
    check_modules(model)
    if (gate := gate_of(model)) is not None:
        return Compaction(model, gate, lambda: None)  # somebody else's to undo
    gate = Gate(min_dropped)
    handles = [
        model.register_forward_pre_hook(gate.before, with_kwargs=True),
        model.register_forward_hook(gate, with_kwargs=True, always_call=True),
    ]
    for child in model.children():
        if any(parameter.requires_grad for parameter in child.parameters()):
            handles.append(child.register_forward_pre_hook(gate.before_child))
            break  # one tells enough

    def undo() -> None:
        for handle in handles:
            handle.remove()

    return Compaction(model, gate, undo)
