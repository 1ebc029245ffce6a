"""Batches: selecting samples from one, and passing one to a model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

LABELS = ("labels", "label", "target")


class Batch(NamedTuple):
    """A batch and the indices of its samples."""

    data: Any  # None: every sample rests in this epoch
    indices: Tensor  # of its samples in the data set
    check: bool = False  # forward pass only
    n_done: int = 0  # planned batches of the epoch that are consumed with it
    last: bool = False  # of its epoch

    @classmethod
    def of(cls, data: Any) -> Batch:
        """A batch of samples without an index in a data set."""
        first = next((tensor for _, tensor in named_tensors(data)), None)
        if first is None:
            raise ValueError(
                "a batch must hold tensors whose first dimension runs over its samples;"
                f" got {type(data).__name__} without any"
            )
        return cls(data, torch.arange(len(first)))

    def select(self, samples: Tensor) -> Batch:
        """The samples at these positions."""
        data = select_samples(self.data, samples, len(self.indices))
        return self._replace(data=data, indices=self.indices[samples])


def named_tensors(data: Any, name: str = "") -> Iterator[tuple[str, Tensor]]:
    """The tensors of a batch that have dimensions, at any depth, with the key of the innermost dict."""
    if isinstance(data, Tensor):
        if data.ndim:
            yield name, data
    elif isinstance(data, Mapping):
        for key, value in data.items():
            yield from named_tensors(value, str(key))
    elif isinstance(data, (list, tuple)):
        for value in data:
            yield from named_tensors(value, name)


def select_samples(data: Any, samples: Tensor, n_samples: int) -> Any:
    """Select samples from every tensor and list of length ``n_samples`` in a batch; keep everything else."""
    if isinstance(data, Tensor):
        per_sample = data.ndim and len(data) == n_samples
        return data.index_select(0, samples.to(data.device)) if per_sample else data
    if isinstance(data, Mapping):
        return {name: select_samples(value, samples, n_samples) for name, value in data.items()}
    if not isinstance(data, (list, tuple)):
        return data
    nested = any(isinstance(value, (Tensor, Mapping, list, tuple)) for value in data)
    if isinstance(data, list) and len(data) == n_samples and not nested:
        return [data[i] for i in samples.tolist()]
    return tuple(select_samples(value, samples, n_samples) for value in data)


def forward(model: nn.Module, batch: Any) -> tuple[Tensor, Tensor]:
    """Run a model on a batch. The default ``forward`` of the training loop.

    Args:
        model: The model. batch: A dict, which is passed as keywords without its ``labels`` and whose logits
        have classes last, as in
            Hugging Face; or a tuple that ends in the target, whose logits have classes second, as in torch.

    Returns:
        Logits and targets, as the losses accept them.

    Raises:
        ValueError: For a dict without ``labels``, ``label`` or ``target``.
    """
    if not isinstance(batch, Mapping):
        *inputs, target = batch
        return logits_of(model(*inputs)), target
    name = next((name for name in LABELS if name in batch), None)
    if name is None:
        raise ValueError(
            f"a batch of {', '.join(batch)} has none of {', '.join(LABELS)}; pass forward=, a function that"
            " returns logits and targets"
        )
    inputs_by_name = {key: value for key, value in batch.items() if key != name}
    return class_second(logits_of(model(**inputs_by_name)), batch[name])


def class_second(logits: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Move the classes of token logits from the last dimension to the second one."""
    tokens = logits.ndim > 2 and logits.ndim == target.ndim + 1
    return (logits.movedim(-1, 1) if tokens else logits), target


def logits_of(output: Any) -> Tensor:
    """The logits in a model's output: a tensor, ``output.logits``, ``output["logits"]`` or ``output[0]``."""
    if isinstance(output, Tensor):
        return output
    if hasattr(output, "logits"):
        logits = output.logits
    else:
        logits = output["logits" if isinstance(output, Mapping) else 0]
    if not isinstance(logits, Tensor):
        raise TypeError(
            f"the model returned {type(output).__name__}, which holds no logits; pass forward=, a function"
            " that returns logits and targets"
        )
    return logits
