"""What kinds of tasks on texts share: tokenizing, padding, and the models that read texts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from sparring.lab.kinds.base import Kind
from sparring.lab.kinds.encoder import Encoder, Features, Labels, Samples
from sparring.lab.models.settings import Model, ModelDefaults, ModelOptions
from sparring.lab.models.text.frozen import HIDDEN, pad_hidden

CHUNK = 500  # samples tokenized at once, because a tokenizer keeps what it cuts off until it returns
NO_INPUTS = ("labels", "positions", HIDDEN)  # features that are not for the model


class TextEncoder(Encoder):
    """One row of logits per text."""

    input_names: tuple[str, ...] = ("input_ids", "attention_mask", "token_type_ids")

    def __post_init__(self) -> None:
        super().__post_init__()
        self.tokenizer = self.processor
        if self.max_length is None:
            self.max_length = self.tokenizer.model_max_length

    def encode(self, samples: Samples) -> list[Features]:
        return [
            feature
            for start in range(0, len(samples), CHUNK)
            for feature in self.encode_chunk(samples[start : start + CHUNK])
        ]

    def encode_chunk(self, samples: Samples) -> list[Features]:
        tokens = self.tokenize(samples)
        return [
            {**inputs, **self.target(sample)}
            for sample, inputs in zip(samples, self.inputs(tokens, len(samples)), strict=True)
        ]

    def inputs(self, tokens: Any, n: int) -> list[Features]:
        """The model's inputs for each of n samples."""
        names = [name for name in self.input_names if name in tokens]
        return [{name: tokens[name][i] for name in names} for i in range(n)]

    def tokenize(self, samples: Samples) -> Any:
        return self.tokenizer(
            [sample["text"] for sample in samples], truncation=True, max_length=self.max_length
        )

    def collate_inputs(self, features: Sequence[Features]) -> dict[str, Tensor]:
        inputs = [
            {name: value for name, value in feature.items() if name not in NO_INPUTS} for feature in features
        ]
        padded = dict(self.tokenizer.pad(inputs, return_tensors="pt"))
        return padded | pad_hidden(features, self.tokenizer.padding_side)

    def lengths(self, features: Sequence[Features]) -> list[int] | None:
        return [len(feature["input_ids"]) for feature in features]


class TextKind(Kind):
    """Base of the kinds that read texts: a small model from scratch, or any pre-trained encoder."""

    vocabulary_fields: tuple[str, ...] = ("text",)  # the training texts from which a vocabulary is made
    words = False  # whether a text is given as a list of words
    encoder_class = TextEncoder
    auto_class = "AutoModelForSequenceClassification"
    models = {
        "tiny": ModelDefaults(epochs=8, lr=3e-3, pieces=4, from_scratch=True),
        "minilm": ModelDefaults(epochs=5, lr=3e-4),
        "m3e-small": ModelDefaults(epochs=5, lr=3e-4),
    }
    pretrained = "minilm"
    model_options: tuple[str, ...] = ("layers", "freeze_embeddings", "freeze_layers", "pooling")

    def texts(self, train: Samples) -> list[str]:
        """All training texts, from which a vocabulary is made."""
        return [sample[field] for sample in train for field in self.vocabulary_fields]

    def create_model(self, name: str, train: Samples, labels: Labels, options: ModelOptions) -> Model:
        from sparring.lab.models import build

        if name == "tiny":
            return build.tiny_text_model(self.auto_class, self.texts(train), labels)
        return build.pretrained_text_model(name, self.auto_class, labels, options, words=self.words)

    def load_processor(self, folder: Path, trust: bool) -> Any:
        from transformers import AutoTokenizer

        return AutoTokenizer.from_pretrained(folder, trust_remote_code=trust)

    def limit_length(self, model: Model, max_length: int) -> int:
        from sparring.lab.models.build import longest_input

        limit = min(max_length, longest_input(model))
        model.processor.model_max_length = limit  # saved with the tokenizer
        return limit
