"""A ninth kind in one file: points in the plane and the quadrant they lie in.

The test registers it, in place of the decorator, so that other tests do not see it.
"""

from __future__ import annotations

import json
import random
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForSequenceClassification, PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import SequenceClassifierOutput

from sparring.lab.kinds import Kind, get_kind
from sparring.lab.kinds.encoder import Encoder, Features, Sample
from sparring.lab.models.settings import Model, ModelDefaults, ModelOptions, label_names
from sparring.lab.task import Data, Where


class PointConfig(PretrainedConfig):
    model_type = "toy-points"


class PointModel(PreTrainedModel):
    """Two layers on the coordinates."""

    config_class = PointConfig
    main_input_name = "points"

    def __init__(self, config: PointConfig) -> None:
        super().__init__(config)
        self.layers = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, len(config.id2label or ())))
        self.post_init()

    def _init_weights(self, module: nn.Module) -> None:
        """As torch initialises them."""

    def forward(self, points: Tensor, **_: Any) -> SequenceClassifierOutput:
        return SequenceClassifierOutput(logits=self.layers(points))


AutoConfig.register(PointConfig.model_type, PointConfig)
AutoModelForSequenceClassification.register(PointConfig, PointModel)


class PointProcessor:
    """Nothing to prepare; it saves and loads as any processor does."""

    def save_pretrained(self, folder: str | Path) -> None:
        (Path(folder) / "points.json").write_text(json.dumps({"dimensions": 2}))


class PointEncoder(Encoder):
    def encode(self, samples: Sequence[Sample]) -> list[Features]:
        return [{"point": list(map(float, sample["point"])), **self.target(sample)} for sample in samples]

    def collate_inputs(self, features: Sequence[Features]) -> dict[str, Tensor]:
        return {"points": torch.tensor([feature["point"] for feature in features])}


class PointKind(Kind):
    """A point, two numbers as texts, and a label."""

    name = "point"
    fields = ("point", "label")
    list_fields = ("point",)
    noun = "points"
    reads_text = False
    encoder_class = PointEncoder
    auto_class = "AutoModelForSequenceClassification"
    models = {"tiny": ModelDefaults(epochs=8, lr=3e-2, from_scratch=True)}  # noqa: RUF012

    def key(self, sample: Sample) -> Hashable:
        return tuple(sample["point"])

    def parse_inputs(
        self, inputs: Sequence[str], seconds: Sequence[str] | None, task: str, processor: Any
    ) -> list[Sample]:
        return [{"point": text.split(",")} for text in inputs]

    def show(self, sample: Sample, index: int) -> tuple[str, str]:
        return f"({', '.join(sample['point'])})", sample["label"]

    def _build(
        self, name: str, train: Sequence[Sample], labels: Sequence[str], options: ModelOptions
    ) -> Model:
        return Model(PointModel(PointConfig(**label_names(labels))), PointProcessor())

    def _load_processor(self, folder: Path, trust: bool) -> Any:
        assert (folder / "points.json").is_file()
        return PointProcessor()


def _samples(n: int, seed: int) -> list[Sample]:
    draw = random.Random(seed)
    points = [(draw.uniform(-1, 1), draw.uniform(-1, 1)) for _ in range(n)]
    return [
        {
            "point": [f"{x:.3f}", f"{y:.3f}"],
            "label": f"{'north' if y > 0 else 'south'}-{'east' if x > 0 else 'west'}",
        }
        for x, y in points
    ]


def load(where: Where) -> Data:
    return Data(get_kind("point"), _samples(160, 0), _samples(40, 1), _samples(40, 2), source="made")
