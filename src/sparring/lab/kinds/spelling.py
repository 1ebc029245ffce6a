"""Spelling correction: sentences whose target has as many characters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sparring.lab.kinds.base import register_kind
from sparring.lab.kinds.encoder import Labels, Sample, Samples
from sparring.lab.kinds.metrics import correction_metrics
from sparring.lab.kinds.text import TextKind
from sparring.lab.kinds.token import PerTokenEncoder
from sparring.lab.models.settings import Model, ModelDefaults, ModelOptions


class SpellingEncoder(PerTokenEncoder):
    """One row of logits per character."""

    def words(self, sample: Sample) -> Sequence[str]:
        return str(sample["source"])

    def targets(self, sample: Sample) -> Sequence[str] | None:
        return sample.get("target")

    def prediction(self, sample: Sample, labels: Mapping[int, str]) -> Any:
        """Characters that were cut off, or that are no class, stay as they are."""
        return "".join(
            labels.get(i, character) if character in self.index else character
            for i, character in enumerate(sample["source"])
        )


@register_kind
class SpellingKind(TextKind):
    """A sentence and its correction, as long. The classes are the characters of the training data."""

    name = "spelling"
    fields = ("source", "target")
    target = "target"
    equal_lengths = ("source", "target")
    one_label = False
    labelled = False
    calibrated = False
    roles = {"text": "source", "label": "target"}
    description = 'columns "{text}" and "{label}" with as many characters'
    column_names = {"text": frozenset({"source"}), "label": frozenset({"target"})}
    vocabulary_fields = ("source", "target")
    words = True
    encoder_class = SpellingEncoder
    auto_class = "AutoModelForTokenClassification"
    models = {  # lengths of these tasks are counted in characters
        **TextKind.models,
        "tiny": ModelDefaults(epochs=8, lr=3e-3, pieces=1, from_scratch=True),
    }
    model_options = ("layers", "freeze_embeddings", "freeze_layers")

    def recognises(self, columns: Any) -> bool:
        """Sources and targets have equal lengths, but for a few mistakes, which are reported then."""
        names = columns.source_and_target()
        if names is None:
            return False
        rows = [[len(str(row.get(name))) for name in names] for _, row in columns.table.rows]
        return sum(source == target for source, target in rows) >= 0.95 * len(rows)

    def collect_labels(self, *splits: Samples) -> list[str]:
        """The characters of the training sentences, as in the paper."""
        return sorted(
            {character for sample in splits[0] for character in sample["source"] + sample["target"]}
        )

    def metrics(self, labels: Labels) -> tuple[str, ...]:
        return ("correction_f1", "correction_precision", "correction_recall", "detection_f1")

    def score(self, samples: Samples, predicted: Sequence[Any], labels: Labels) -> dict[str, float]:
        sources = [sample["source"] for sample in samples]
        return correction_metrics(sources, self.targets(samples), predicted)

    def class_pairs(self, sample: Sample, predicted: Any) -> Iterator[tuple[str | None, str | None]]:
        """Only characters that were changed, or should have been."""
        rows = zip(sample["source"], sample["target"], predicted, strict=False)
        return ((true, changed) for source, true, changed in rows if not source == true == changed)

    def mistakes(self, sample: Sample, predicted: Any) -> list[str]:
        return [f"{true} → {wrong}" for true, wrong in self.class_pairs(sample, predicted) if wrong != true]

    def create_model(self, name: str, train: Samples, labels: Labels, options: ModelOptions) -> Model:
        from sparring.lab.models.build import start_from_embeddings

        model = super().create_model(name, train, labels, options)
        start_from_embeddings(model, labels)
        return model
