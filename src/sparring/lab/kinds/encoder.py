"""`Encoder`: samples to batches, batches to a loss, and logits to predictions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from sparring.heads.linear import LinearLoss
from sparring.lab.models.text.frozen import call
from sparring.losses import Loss

Sample = dict[str, Any]
Samples = Sequence[Sample]
Labels = Sequence[str]
Features = dict[str, Any]
IGNORE = -100  # the target of positions that have none


@dataclass(eq=False)
class Encoder:
    """Converts the samples of one task for one model. This base class is for samples with one label.

    Attributes:
        labels: The classes of the task.
        processor: The tokenizer, image processor or feature extractor of the model.
        max_length: Largest number of tokens of a text.
        top_k: Multi-label: predict the k largest logits.
        max_target_length: Generation: largest number of tokens of a target.
    """

    labels: Labels
    processor: Any
    max_length: int | None = None
    top_k: int | None = None
    max_target_length: int | None = None

    def __post_init__(self) -> None:
        self.index = {label: i for i, label in enumerate(self.labels)}

    def encode(self, samples: Samples) -> list[Features]:
        """One dict per sample: the inputs of the model, and ``labels`` if the sample has a target."""
        raise NotImplementedError

    def target(self, sample: Sample) -> Features:
        """The class index as ``labels``; nothing for a sample without a label."""
        return {"labels": self.index[sample["label"]]} if "label" in sample else {}

    def collate(self, features: Sequence[Features]) -> dict[str, Tensor]:
        """A batch of tensors, with ``labels`` if the features have them."""
        batch = self.collate_inputs(features)
        if "labels" in features[0]:
            batch["labels"] = self.collate_targets([feature["labels"] for feature in features], batch)
        return batch

    def collate_inputs(self, features: Sequence[Features]) -> dict[str, Tensor]:
        """The inputs of the model, padded."""
        raise NotImplementedError

    def collate_targets(self, targets: Sequence[Any], batch: Mapping[str, Tensor]) -> Tensor:
        """The targets as one tensor; ``batch`` holds the inputs."""
        return torch.tensor(targets)

    def collate_for_training(self, features: Sequence[Features]) -> dict[str, Tensor]:
        """As `collate`, with random augmentation where a kind has one."""
        return self.collate(features)

    def lengths(self, features: Sequence[Features]) -> list[int] | None:
        """Lengths of the samples, so that similar ones can share a batch; None if all are equal."""
        return None

    def objective(self, net: nn.Module, loss: Loss) -> Loss | LinearLoss:
        """What training minimises, given the outputs of `forward`."""
        return loss

    def forward(self, net: nn.Module, batch: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Call the network on a batch. Returns logits with the classes second, and targets."""
        inputs = {name: value for name, value in batch.items() if name != "labels"}
        logits: Tensor = call(net, inputs).logits
        return (logits.movedim(-1, 1) if logits.ndim > 2 else logits), batch["labels"]

    def decode(self, logits: Tensor, samples: Samples, features: Sequence[Features]) -> Iterator[Any]:
        """The prediction for each sample, from logits with the classes last."""
        return (self.labels[i] for i in logits.argmax(-1).tolist())

    def predict(
        self,
        net: nn.Module,
        batch: Mapping[str, Tensor],
        logits: Tensor | None,
        samples: Samples,
        features: Sequence[Features],
    ) -> Iterable[Any]:
        """The prediction for each sample of a batch; ``logits`` with the classes last, if they are known."""
        assert logits is not None
        return self.decode(logits, samples, features)

    def word_places(self, place: Tensor, features: Sequence[Features]) -> Tensor:
        """What the places in the history of a run mean for a sample: words, where rows are their pieces."""
        return place

    def probabilities(self, logits: Tensor, n: int = 5) -> dict[str, float]:
        """The n most probable labels of one sample."""
        best = torch.softmax(logits.float(), -1).topk(min(n, len(self.labels)))
        pairs = zip(best.indices.tolist(), best.values.tolist(), strict=True)
        return {self.labels[i]: round(value, 4) for i, value in pairs}
