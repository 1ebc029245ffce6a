"""What a loop needs to know about batches: how a model is called on one, its labels, its indices, and a part of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from sparring.training.revisit import INDEX

LABELS = ("labels", "label", "target")


def split_index(batch: Any) -> tuple[Any, Tensor]:
    """A collated batch of ``Indexed`` samples, and their indices."""
    if isinstance(batch, Mapping):
        return {name: value for name, value in batch.items() if name != INDEX}, batch[INDEX]
    return tuple(batch[:-1]), batch[-1]


def cut(batch: Any, samples: Tensor) -> Any:
    """The given samples of a batch: tensors and lists that run over its samples are cut, everything else stays."""
    values = list(batch.values()) if isinstance(batch, Mapping) else list(batch)
    n = next(len(value) for value in values if isinstance(value, Tensor) and value.ndim)

    def part(value: Any) -> Any:
        if isinstance(value, Tensor) and value.ndim and len(value) == n:
            return value.index_select(0, samples.to(value.device))
        if isinstance(value, list) and len(value) == n:
            return [value[i] for i in samples.tolist()]
        return value

    if isinstance(batch, Mapping):
        return {name: part(value) for name, value in batch.items()}
    return tuple(part(value) for value in batch)


def forward(model: nn.Module, batch: Any) -> tuple[Tensor, Tensor]:
    """Logits and targets, as our losses take them. The default of ``loop.train``; give another for other batches.

    A dict goes to the model as keywords without its ``labels``, and comes back with classes last, as Hugging Face does; a
    tuple's last element is the target, and classes come second, as in torch.
    """
    if not isinstance(batch, Mapping):
        *inputs, target = batch
        return _logits(model(*inputs)), target
    name = next((name for name in LABELS if name in batch), None)
    if name is None:
        raise ValueError(f"a batch of {', '.join(batch)} has none of {', '.join(LABELS)}; pass forward=, which returns logits and targets")
    logits, target = _logits(model(**{key: value for key, value in batch.items() if key != name})), batch[name]
    return (logits.movedim(-1, 1) if logits.ndim > 2 and logits.ndim == target.ndim + 1 else logits), target


def _logits(output: Any) -> Tensor:
    if isinstance(output, Tensor):
        return output
    logits = output.logits if hasattr(output, "logits") else output["logits"] if isinstance(output, Mapping) else output[0]
    if not isinstance(logits, Tensor):
        raise ValueError(
            f"the model returned {type(output).__name__}, which has no logits; pass forward=, which returns logits and targets"
        )
    return logits
