"""What a loop needs to know about batches: the indices of their samples, a part of one, and how a model is called on one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import default_collate

from sparring.training.sampler import Indexed

Part = tuple[Any, Tensor]  # a batch, or some samples of one, and their indices
LABELS = ("labels", "label", "target")


class Paired(Indexed):
    """Samples untouched, their indices beside them, for ``Collate``."""

    def __getitem__(self, index: int) -> tuple[Any, int]:
        return self.dataset[index], index


class Collate:
    """Makes a batch of the samples as any collate function expects them, and keeps their indices beside it."""

    def __init__(self, collate: Callable[[list[Any]], Any] | None) -> None:
        self.collate = collate or default_collate

    def __call__(self, pairs: list[tuple[Any, int]]) -> tuple[Any, Tensor]:
        samples, indices = zip(*pairs, strict=True)
        return self.collate(list(samples)), torch.tensor(indices)


def cut(batch: Any, samples: Tensor, n: int) -> Any:
    """The given samples of a batch of n: tensors and lists that run over its samples are cut, however deep; everything else stays."""
    if isinstance(batch, Tensor):
        return batch.index_select(0, samples.to(batch.device)) if batch.ndim and len(batch) == n else batch
    if isinstance(batch, Mapping):
        return {name: cut(value, samples, n) for name, value in batch.items()}
    if (
        isinstance(batch, list)
        and len(batch) == n
        and not any(isinstance(value, (Tensor, Mapping, list, tuple)) for value in batch)
    ):
        return [batch[i] for i in samples.tolist()]
    if isinstance(batch, (list, tuple)):
        return tuple(cut(value, samples, n) for value in batch)
    return batch


def cut_part(part: Part, samples: Tensor) -> Part:
    batch, index = part
    return cut(batch, samples, len(index)), index[samples]


def forward(model: nn.Module, batch: Any) -> tuple[Tensor, Tensor]:
    """Logits and targets, as our losses take them. The default of ``loop.train``; give another for other batches.

    A dict goes to the model as keywords without its ``labels``, and comes back with classes last, as Hugging Face does; a
    tuple's last element is the target, and classes come second, as in torch.
    """
    if not isinstance(batch, Mapping):
        *inputs, target = batch
        return logits_of(model(*inputs)), target
    name = next((name for name in LABELS if name in batch), None)
    if name is None:
        raise ValueError(
            f"a batch of {', '.join(batch)} has none of {', '.join(LABELS)}; pass forward=, which returns logits and targets"
        )
    return class_second(
        logits_of(model(**{key: value for key, value in batch.items() if key != name})), batch[name]
    )


def class_second(logits: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Logits with classes last, as Hugging Face has them, the way our losses take them."""
    return (logits.movedim(-1, 1) if logits.ndim > 2 and logits.ndim == target.ndim + 1 else logits), target


def logits_of(output: Any) -> Tensor:
    """What a model returned, without what is around it."""
    if isinstance(output, Tensor):
        return output
    logits = (
        output.logits
        if hasattr(output, "logits")
        else output["logits"]
        if isinstance(output, Mapping)
        else output[0]
    )
    if not isinstance(logits, Tensor):
        raise ValueError(
            f"the model returned {type(output).__name__}, which has no logits; pass forward=, which returns logits and targets"
        )
    return logits
