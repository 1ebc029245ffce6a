"""Texts with any number of labels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from sparring.lab.kinds.base import register_kind, shorten
from sparring.lab.kinds.encoder import Features, Labels, Sample, Samples
from sparring.lab.kinds.metrics import multilabel_metrics
from sparring.lab.kinds.text import TextEncoder, TextKind


class MultiLabelEncoder(TextEncoder):
    """Targets are rows of 0 and 1."""

    def target(self, sample: Sample) -> Features:
        return {"labels": [self.index[label] for label in sample["labels"]]} if "labels" in sample else {}

    def collate_targets(self, targets: Sequence[Any], batch: Mapping[str, Tensor]) -> Tensor:
        rows = torch.zeros(len(targets), len(self.labels), dtype=torch.long)
        for row, positives in zip(rows, targets, strict=True):
            row[positives] = 1
        return rows

    def positives(self, logits: Tensor) -> Tensor:
        """Which labels are predicted: every logit above 0, or the ``top_k`` largest."""
        if self.top_k is None:
            return logits > 0
        largest = logits.topk(min(self.top_k, logits.shape[-1]), -1).indices
        return torch.zeros_like(logits, dtype=torch.bool).scatter(-1, largest, True)

    def decode(self, logits: Tensor, samples: Samples, features: Sequence[Features]) -> Iterator[Any]:
        for row in self.positives(logits).cpu():
            yield [self.labels[i] for i in row.nonzero().squeeze(1).tolist()]


@register_kind
class MultiLabelKind(TextKind):
    """A text and any number of labels, also none."""

    name = "multi-label"
    fields = ("text", "labels")
    target = "labels"
    list_fields = ("labels",)
    one_label = False
    multilabel = True
    calibrated = False
    roles = {"text": "text", "label": "labels"}
    description = 'column "{label}" holds any of {n_labels} values'
    has_separator = True
    encoder_class = MultiLabelEncoder

    def metrics(self, labels: Labels) -> tuple[str, ...]:
        return ("micro_f1", "macro_f1")

    def score(self, samples: Samples, predicted: Sequence[Any], labels: Labels) -> dict[str, float]:
        return multilabel_metrics(self.targets(samples), predicted, labels)

    def class_pairs(self, sample: Sample, predicted: Any) -> Iterator[tuple[str | None, str | None]]:
        for label in sorted({*sample["labels"], *predicted}):
            yield label if label in sample["labels"] else None, label if label in predicted else None

    def mistakes(self, sample: Sample, predicted: Any) -> list[str]:
        """``+label`` for one too many, ``−label`` for one that is missing."""
        pairs = self.class_pairs(sample, predicted)
        return [f"+{wrong}" if true is None else f"−{true}" for true, wrong in pairs if wrong != true]

    def show(self, sample: Sample, index: int) -> tuple[str, str]:
        return shorten(sample["text"]), shorten(", ".join(sample["labels"]))

    def doubt(self, sample: Sample, labels: Labels, rival: int, place: int) -> tuple[str, str]:
        return labels[place], labels[rival]
