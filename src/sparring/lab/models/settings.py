"""What a caller can choose about a model, and the training settings that suit it. Imports nothing heavy."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple


@dataclass(frozen=True)
class ModelOptions:
    """Options of a model. A kind of task accepts some of them; None and False mean "not set".

    Attributes:
        layers: Keep only the first layers of a pre-trained encoder.
        freeze_embeddings: Do not train the embeddings.
        pooling: "mean" puts the classification head on the mean of the tokens.
        image_size: Height and width that images are resized to.
        augment: Augmentation of training images: "off", "crop" or "flip".
        beams: Number of beams in text generation.
        max_target_length: Largest number of tokens of a generated text.
        trust_remote_code: Allow code that comes with a model to run.
    """

    layers: int | None = None
    freeze_embeddings: bool = False
    pooling: str | None = None
    image_size: int | None = None
    augment: str | None = None
    beams: int | None = None
    max_target_length: int | None = None
    trust_remote_code: bool = False


class ModelDefaults(NamedTuple):
    """Training settings of a model that is built by name."""

    epochs: int
    lr: float
    pieces: int = (
        1  # its tokens per token of a usual tokenizer: tasks give their maximum length in the latter
    )
    from_scratch: bool = False


class Model(NamedTuple):
    """A network and what prepares its inputs: a tokenizer, an image processor or a feature extractor."""

    net: Any
    processor: Any


def label_names(labels: Sequence[str]) -> dict[str, Any]:
    """The labels as a config of transformers takes them."""
    return {"id2label": dict(enumerate(labels)), "label2id": {label: i for i, label in enumerate(labels)}}
