"""What a caller can choose about a model, and the training settings that suit it. Imports nothing heavy."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple


@dataclass(frozen=True)
class ModelOptions:
    """Options of a model. A kind of task accepts some of them; None and False mean "not set"."""

    layers: int | None = None  # keep only the first layers of a pre-trained encoder
    freeze_embeddings: bool = False
    freeze_layers: int | None = None  # do not train the embeddings and the first layers
    pooling: str | None = None  # "mean" puts the classification head on the mean of the tokens
    image_size: int | None = None  # height and width that images are scaled to
    augment: str | None = None  # training images: "off", "crop" or "flip"
    beams: int | None = None  # in text generation
    max_target_length: int | None = None  # largest number of tokens of a generated text
    trust_remote_code: bool = False  # allow code that comes with a model to run


class ModelDefaults(NamedTuple):
    """Training settings of a model that is built by name."""

    epochs: int
    lr: float
    pieces: int = 1  # its tokens per token of a usual tokenizer, by which tasks count their maximum length
    from_scratch: bool = False


class Model(NamedTuple):
    """A network and what prepares its inputs: a tokenizer, an image processor or a feature extractor."""

    net: Any
    processor: Any


def label_names(labels: Sequence[str]) -> dict[str, Any]:
    """The labels as a config of transformers takes them."""
    return {"id2label": dict(enumerate(labels)), "label2id": {label: i for i, label in enumerate(labels)}}
