"""Texts with a tag for each token. Spelling shares the encoding: there, tokens are characters."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from sparring.lab.kinds.base import register_kind, shorten
from sparring.lab.kinds.encoder import IGNORE, Features, Labels, Sample, Samples
from sparring.lab.kinds.metrics import span_metrics, tag_metrics
from sparring.lab.kinds.text import TextEncoder, TextKind

OUTSIDE = "O"  # the tag of tokens outside all spans


def has_spans(labels: Labels) -> bool:
    """Whether tags mark spans: O and B-, I-, E-, S- and so on.

    >>> has_spans(["B-PER", "I-PER", "O"]), has_spans(["de", "fr"])
    (True, False)
    """
    return any(label != OUTSIDE for label in labels) and all(
        label == OUTSIDE or re.match(r"[BIESLU]-.", label) for label in labels
    )


class PerTokenEncoder(TextEncoder):
    """One row of logits per word. The row stands at the first piece of the word; other pieces are ignored."""

    def words(self, sample: Sample) -> Sequence[str]:
        """The words of a sample, as the tokenizer gets them."""
        raise NotImplementedError

    def targets(self, sample: Sample) -> Sequence[str] | None:
        """One label per word; None if the sample has no target."""
        raise NotImplementedError

    def tokenize(self, samples: Samples) -> Any:
        words = [list(self.words(sample)) for sample in samples]
        return self.tokenizer(words, is_split_into_words=True, truncation=True, max_length=self.max_length)

    def encode_chunk(self, samples: Samples) -> list[Features]:
        tokens = self.tokenize(samples)
        features = self.inputs(tokens, len(samples))
        for i, (sample, feature) in enumerate(zip(samples, features, strict=True)):
            feature["positions"] = first_pieces(tokens.word_ids(i))
            targets = self.targets(sample)
            if targets is not None:
                feature["labels"] = [IGNORE] * len(feature["input_ids"])
                for word, position in feature["positions"].items():
                    # a label that the training data does not have cannot be predicted
                    feature["labels"][position] = self.index.get(targets[word], IGNORE)
        return features

    def collate_targets(self, targets: Sequence[Any], batch: Mapping[str, Tensor]) -> Tensor:
        rows = torch.full(batch["input_ids"].shape, IGNORE)
        left = self.tokenizer.padding_side == "left"
        for row, labels in zip(rows, targets, strict=True):
            start = len(row) - len(labels) if left else 0
            row[start : start + len(labels)] = torch.tensor(labels)
        return rows

    def decode(self, logits: Tensor, samples: Samples, features: Sequence[Features]) -> Iterator[Any]:
        left = self.tokenizer.padding_side == "left"
        for row, sample, feature in zip(logits.argmax(-1).tolist(), samples, features, strict=True):
            shift = len(row) - len(feature["input_ids"]) if left else 0
            labels = {
                word: self.labels[row[position + shift]] for word, position in feature["positions"].items()
            }
            yield self.prediction(sample, labels)

    def prediction(self, sample: Sample, labels: Mapping[int, str]) -> Any:
        """The prediction for a sample, from the labels by word; words that were cut off have none."""
        raise NotImplementedError


class TokenEncoder(PerTokenEncoder):
    """One tag per token."""

    def __post_init__(self) -> None:
        super().__post_init__()
        # a tokenizer of characters must see where words end
        self.gap = " " if " " in self.tokenizer.tokenize("a b") else ""

    def words(self, sample: Sample) -> Sequence[str]:
        return [token + self.gap for token in sample["tokens"]]

    def targets(self, sample: Sample) -> Sequence[str] | None:
        return sample.get("tags")

    def prediction(self, sample: Sample, labels: Mapping[int, str]) -> Any:
        return [labels.get(word, OUTSIDE) for word in range(len(sample["tokens"]))]

    def word_places(self, place: Tensor, features: Sequence[Features]) -> Tensor:
        """The words at which these positions stand, (…, samples); -1 stays -1."""
        words = [{position: word for word, position in f["positions"].items()} for f in features]
        rows = [
            [table.get(position, -1) for table, position in zip(words, row, strict=True)]
            for row in place.tolist()
        ]
        return torch.tensor(rows, dtype=place.dtype).view_as(place)


def first_pieces(words: Sequence[int | None]) -> dict[int, int]:
    """The position of the first piece of each word."""
    return {word: position for position, word in reversed(list(enumerate(words))) if word is not None}


@register_kind
class TokenKind(TextKind):
    """A list of tokens and one tag for each."""

    name = "token"
    fields = ("tokens", "tags")
    target = "tags"
    list_fields = ("tokens", "tags")
    equal_lengths = ("tokens", "tags")
    one_label = False
    roles = {"text": "tokens", "label": "tags"}
    description = 'column "{label}" has one of {n_labels} tags for each token of column "{text}"'
    column_names = {
        "text": frozenset({"tokens", "words"}),
        "label": frozenset({"tags", "nertags", "postags", "chunktags", "labels"}),
    }
    has_separator = True
    separator = " "
    words = True
    encoder_class = TokenEncoder
    auto_class = "AutoModelForTokenClassification"
    model_options = ("layers", "freeze_embeddings", "freeze_layers")

    def recognises(self, columns: Any) -> bool:
        text, label = columns.roles.get("text"), columns.roles.get("label")
        if text is not None:
            return bool(columns.holds_lists(text))
        if not columns.find(*self.column_names["text"]):
            return False
        tags = self.column_names["label"]
        if label is None:
            return bool(columns.find(*tags))
        return bool(columns.is_named(label, tags) or columns.holds_lists(label))

    def texts(self, train: Samples) -> list[str]:
        return [" ".join(sample["tokens"]) for sample in train]

    def parse_input(self, text: str, task: str, processor: Any) -> Sample:
        return {"tokens": text.split()}

    def metrics(self, labels: Labels) -> tuple[str, ...]:
        return ("f1", "precision", "recall", "accuracy") if has_spans(labels) else ("accuracy", "macro_f1")

    def score(self, samples: Samples, predicted: Sequence[Any], labels: Labels) -> dict[str, float]:
        if has_spans(labels):
            return span_metrics(self.targets(samples), predicted)
        return tag_metrics(self.targets(samples), predicted, labels)

    def class_pairs(self, sample: Sample, predicted: Any) -> Iterator[tuple[str | None, str | None]]:
        yield from zip(sample["tags"], predicted, strict=False)

    def mistakes(self, sample: Sample, predicted: Any) -> list[str]:
        rows = zip(sample["tokens"], sample["tags"], predicted, strict=False)
        return [f"{token}: {tag} → {wrong}" for token, tag, wrong in rows if wrong != tag]

    def show(self, sample: Sample, index: int) -> tuple[str, str]:
        pairs = zip(sample["tokens"], sample["tags"], strict=True)
        tagged = [f"{token}/{tag}" for token, tag in pairs if tag != OUTSIDE]
        return shorten(" ".join(sample["tokens"])), shorten(" ".join(tagged))

    def doubt(self, sample: Sample, labels: Labels, rival: int, place: int) -> tuple[str, str]:
        return f"{sample['tokens'][place]}/{sample['tags'][place]}", labels[rival]
