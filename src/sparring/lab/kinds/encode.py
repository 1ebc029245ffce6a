"""Samples to tensors: tokens with the targets of their kind, in batches, and back from logits to labels.

Everything a kind of task means for tensors is here: what the target is, what a prediction is, and how it is written down.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from sparring.heads.linear import LinearLoss
from sparring.lab.task import Sample
from sparring.losses import Loss
from sparring.training import batches

IGNORE = -100
CHUNK = 500  # samples tokenized at once: the tokenizer keeps much of each, also of what is cut off
Features = dict[str, Any]


def encoder_for(
    kind: str,
    labels: Sequence[str],
    tokenizer: Any,
    max_length: int,
    top_k: int | None = None,
    max_target_length: int | None = None,
) -> Encoder:
    """The one for a kind. ``tokenizer``: what `models.build` gave beside the network."""
    if kind == "generation":
        from sparring.lab.kinds.generation import GenerationEncoder

        return GenerationEncoder(kind, labels, tokenizer, max_length, max_target_length)
    if kind == "image":
        from sparring.lab.models.images import ImageEncoder

        return ImageEncoder(kind, labels, tokenizer, max_length)
    if kind == "audio":
        from sparring.lab.models.sounds import AudioEncoder

        return AudioEncoder(kind, labels, tokenizer, max_length)
    return Encoder(kind, labels, tokenizer, max_length, top_k)


class Encoder:
    """For one task: its kind, its labels and a tokenizer. This one is for texts; other kinds of samples have one of their own."""

    forward: Callable[[nn.Module, Any], tuple[Tensor, Tensor]] = staticmethod(
        batches.forward
    )  # as the loop takes it

    def __init__(
        self, kind: str, labels: Sequence[str], tokenizer: Any, max_length: int, top_k: int | None = None
    ) -> None:
        self.kind, self.labels, self.tokenizer = kind, list(labels), tokenizer
        self.max_length, self.top_k = max_length, top_k
        self.index = {label: i for i, label in enumerate(self.labels)}
        self.gap = (
            " " if tokenizer is not None and " " in tokenizer.tokenize("a b") else ""
        )  # characters need to see where words end

    # ------------------------------------------------------------ samples to features

    def encode(self, samples: Sequence[Sample]) -> list[Features]:
        """One dict a sample: ``input_ids`` and what else the model takes, and ``labels`` where the sample has a target."""
        return [
            feature
            for start in range(0, len(samples), CHUNK)
            for feature in self._encode(samples[start : start + CHUNK])
        ]

    def _encode(self, samples: Sequence[Sample]) -> list[Features]:
        tokens = self._tokens(samples)
        names = [name for name in ("input_ids", "attention_mask", "token_type_ids") if name in tokens]
        features: list[Features] = [{name: tokens[name][i] for name in names} for i in range(len(samples))]
        for i, (sample, feature) in enumerate(zip(samples, features, strict=True)):
            if self.kind in ("token", "spelling"):
                feature["positions"] = _first_pieces(tokens.word_ids(i))
            feature |= self._label(sample, feature)
        return features

    def _tokens(self, samples: Sequence[Sample]) -> Any:
        settings = {"truncation": True, "max_length": self.max_length}
        if self.kind == "token":
            words = [[token + self.gap for token in sample["tokens"]] for sample in samples]
            return self.tokenizer(words, is_split_into_words=True, **settings)
        if self.kind == "spelling":
            return self.tokenizer(
                [list(sample["source"]) for sample in samples], is_split_into_words=True, **settings
            )
        if self.kind == "pair":
            return self.tokenizer(
                [sample["text"] for sample in samples], [sample["text_b"] for sample in samples], **settings
            )
        return self.tokenizer([sample["text"] for sample in samples], **settings)

    def _label(self, sample: Sample, feature: Features | None = None) -> dict[str, Any]:
        if self.kind == "multi-label":
            return {"labels": [self.index[label] for label in sample["labels"]]} if "labels" in sample else {}
        if self.kind not in ("token", "spelling"):
            return {"labels": self.index[sample["label"]]} if "label" in sample else {}
        targets = sample.get("tags" if self.kind == "token" else "target")
        if targets is None or feature is None:
            return {}
        labels = [IGNORE] * len(feature["input_ids"])
        for word, position in feature["positions"].items():
            labels[position] = self.index.get(
                targets[word], IGNORE
            )  # a character no training sentence has cannot be predicted
        return {"labels": labels}

    # ------------------------------------------------------------ features to batches

    def collate(self, features: Sequence[Features]) -> dict[str, Tensor]:
        """Padded tensors. Multi-label targets are rows of 0 and 1."""
        inputs = [
            {k: v for k, v in feature.items() if k not in ("labels", "positions")} for feature in features
        ]
        batch = dict(self.tokenizer.pad(inputs, return_tensors="pt"))
        if "labels" not in features[0]:
            return batch
        labels = [feature["labels"] for feature in features]
        if self.kind == "multi-label":
            target = torch.zeros(len(labels), len(self.labels), dtype=torch.long)
            for row, positives in zip(target, labels, strict=True):
                row[positives] = 1
        elif self.kind in ("token", "spelling"):
            target = torch.full(batch["input_ids"].shape, IGNORE)
            left = self.tokenizer.padding_side == "left"
            for row, own in zip(target, labels, strict=True):
                row[len(row) - len(own) if left else 0 : len(row) if left else len(own)] = torch.tensor(own)
        else:
            target = torch.tensor(labels)
        return {**batch, "labels": target}

    def collate_for_training(self, features: Sequence[Features]) -> dict[str, Tensor]:
        """As `collate`; and what is done to samples each time anew, where a kind has such."""
        return self.collate(features)

    def objective(self, net: nn.Module, loss: Loss) -> Loss | LinearLoss:
        """What the loop minimises of what ``forward`` gives."""
        return loss

    def lengths(self, features: Sequence[Features]) -> list[int] | None:
        """Of the samples, so that similar ones can be batched; None where all are of one length."""
        return [len(feature["input_ids"]) for feature in features]

    # ------------------------------------------------------------ logits to labels

    def predict(
        self,
        net: nn.Module,
        batch: Mapping[str, Tensor],
        given: Tensor,
        samples: Sequence[Sample],
        features: Sequence[Features],
    ) -> Iterator[Any]:
        """For each sample of a batch what the network predicts; ``given`` is what ``forward`` gave for it."""
        return self.decode(
            given.movedim(1, -1) if given.ndim > 2 else given, samples, features
        )  # classes last again

    def decode(
        self, logits: Tensor, samples: Sequence[Sample], features: Sequence[Features]
    ) -> Iterator[Any]:
        """For each sample of a batch what is predicted: a label, a list of them, tags, or a sentence."""
        if self.kind == "multi-label":
            yield from (
                [self.labels[i] for i in row.nonzero().squeeze(1).tolist()]
                for row in self.chosen(logits).cpu()
            )
            return
        best = logits.argmax(-1).cpu()
        if self.kind not in ("token", "spelling"):
            yield from (self.labels[i] for i in best.tolist())
            return
        left = self.tokenizer.padding_side == "left"
        for row, sample, feature in zip(best.tolist(), samples, features, strict=True):
            shift = len(row) - len(feature["input_ids"]) if left else 0
            found = {
                word: self.labels[row[position + shift]] for word, position in feature["positions"].items()
            }
            if self.kind == "token":
                yield [
                    found.get(word, "O") for word in range(len(sample["tokens"]))
                ]  # what was cut off has no tag
            else:  # nor is a character corrected that was cut off or that the model does not know
                source = sample["source"]
                yield "".join(found.get(i, c) if c in self.index else c for i, c in enumerate(source))

    def chosen(self, logits: Tensor) -> Tensor:
        """Multi-label: every logit above 0, or the k largest where the task says so."""
        if self.top_k is None:
            return logits > 0
        return torch.zeros_like(logits, dtype=torch.bool).scatter(
            -1, logits.topk(min(self.top_k, logits.shape[-1]), -1).indices, True
        )


def _first_pieces(words: Sequence[int | None]) -> dict[int, int]:
    """Of each word, where its first piece stands."""
    return {word: position for position, word in reversed(list(enumerate(words))) if word is not None}
