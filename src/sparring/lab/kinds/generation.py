"""Text to text: source and target to tensors, what the decoder says token by token to a loss, and back to text by generating it.

The classes are the vocabulary. Where the loss has a fused form it is given the network's output layer and what that takes, so that
nobody holds a logit for every token and piece.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from sparring.heads.linear import LinearLoss
from sparring.lab.kinds.encode import IGNORE, Encoder, Features
from sparring.lab.models import seq2seq
from sparring.lab.task import Sample
from sparring.losses import Loss
from sparring.training.batches import class_second

UNFUSED = ("am-softmax",)  # it wants cosines


class GenerationEncoder(Encoder):
    """A row of pieces a token of the target, each after those before it (teacher forcing)."""

    def __init__(
        self,
        kind: str,
        labels: Sequence[str],
        tokenizer: Any,
        max_length: int,
        max_target_length: int | None = None,
    ) -> None:
        super().__init__(kind, labels, tokenizer, max_length)
        self.max_target_length = max_target_length or max_length
        self.forward = self._teach
        self._tried: tuple[Any, nn.Linear | None] = (None, None)  # a network, and its output layer
        self._fused = False  # forward gives what the output layer takes

    # ------------------------------------------------------------ samples to batches

    def _encode(self, samples: Sequence[Sample]) -> list[Features]:
        sources = self.tokenizer(
            [sample["source"] for sample in samples], truncation=True, max_length=self.max_length
        )
        names = [name for name in ("input_ids", "attention_mask") if name in sources]
        features: list[Features] = [{name: sources[name][i] for name in names} for i in range(len(samples))]
        if all("target" in sample for sample in samples):
            targets = [sample["target"] for sample in samples]
            ids = self.tokenizer(text_target=targets, truncation=True, max_length=self.max_target_length)[
                "input_ids"
            ]
            for feature, own in zip(features, ids, strict=True):
                feature["labels"] = own
        return features

    def collate(self, features: Sequence[Features]) -> dict[str, Tensor]:
        """Padded tensors; of labels with what losses ignore."""
        inputs = [
            {name: value for name, value in feature.items() if name != "labels"} for feature in features
        ]
        batch = dict(self.tokenizer.pad(inputs, return_tensors="pt"))
        if "labels" in features[0]:
            labels = [torch.tensor(feature["labels"]) for feature in features]
            batch["labels"] = nn.utils.rnn.pad_sequence(labels, batch_first=True, padding_value=IGNORE)
        return batch

    def lengths(self, features: Sequence[Features]) -> list[int] | None:
        return [len(feature["input_ids"]) + len(feature.get("labels", ())) for feature in features]

    # ------------------------------------------------------------ to a loss

    def objective(self, net: nn.Module, loss: Loss) -> Loss | LinearLoss:
        """The loss on the network's own output layer; the loss alone where it or the network has no such form."""
        if self._tried[0] is not net:
            self._tried = (net, seq2seq.output_layer(net))
        layer = self._tried[1]
        self._fused = layer is not None and loss.name not in UNFUSED
        return LinearLoss.on(layer, loss) if layer is not None and self._fused else loss

    def _teach(self, net: nn.Module, batch: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """(N, T, H) features or (N, C, T) logits, by the last `objective`, and (N, T) targets."""
        labels = batch["labels"]
        inputs: dict[str, Any] = {name: value for name, value in batch.items() if name != "labels"}
        inputs |= {"decoder_input_ids": seq2seq.shifted(net, labels), "use_cache": False}
        if not self._fused:
            return class_second(net(**inputs).logits, labels)
        with seq2seq.headless(net):
            return net(**inputs).logits, labels

    # ------------------------------------------------------------ to text

    def predict(
        self,
        net: nn.Module,
        batch: Mapping[str, Tensor],
        given: Tensor,
        samples: Sequence[Sample],
        features: Sequence[Features],
    ) -> Iterator[Any]:
        """Not what teacher forcing would say, but what the network says by itself."""
        yield from self.generate(net, batch)

    @torch.no_grad()
    def generate(self, net: Any, batch: Mapping[str, Tensor]) -> list[str]:
        """As the network's own settings say: how many beams, how long."""
        ids = net.generate(**{name: value for name, value in batch.items() if name != "labels"})
        return [text.strip() for text in self.tokenizer.batch_decode(ids, skip_special_tokens=True)]
