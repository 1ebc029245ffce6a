"""Images to tensors: sizes, channels' mean and spread, and what training does to an image each time anew. On torch alone."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from sparring.lab.kinds.encode import Encoder, Features
from sparring.lab.task import Sample

FILE = "preprocessor_config.json"  # Hugging Face's name for it


@dataclass(frozen=True)
class Pixels:
    """How a network wants its images. It saves in Hugging Face's form, so that ``AutoImageProcessor`` finds the same numbers."""

    height: int
    width: int
    mean: tuple[float, ...]  # of each channel, where black is 0 and white 1
    std: tuple[float, ...]
    augment: str = "off"  # in training: crop, a place of the image moved by up to an eighth; flip, that and half of them mirrored

    @classmethod
    def of(cls, images: Sequence[Tensor], size: int | None = None, augment: str = "off") -> Pixels:
        """For a network trained from scratch: of the images themselves. Arrays of numbers (not of bytes) are taken as they are."""
        channels, height, width = images[0].shape
        if size is not None:
            height = width = size
        if images[0].dtype != torch.uint8:
            return cls(height, width, (0.0,) * channels, (1.0,) * channels, augment)
        some = (
            torch.stack([image.float().flatten(1)[:, ::7] for image in images[:2000]])
            .div(255)
            .transpose(0, 1)
            .flatten(1)
        )  # (C, …)
        return cls(height, width, tuple(some.mean(1).tolist()), tuple((some.std(1) + 1e-6).tolist()), augment)

    @classmethod
    def from_pretrained(cls, folder: str | Path) -> Pixels:
        found = json.loads((Path(folder) / FILE).read_text())
        return cls(
            found["size"]["height"],
            found["size"]["width"],
            tuple(found["image_mean"]),
            tuple(found["image_std"]),
            found.get("augment", "off"),
        )

    def save_pretrained(self, folder: str | Path) -> None:
        from sparring.lab.runs.records import write_json

        theirs = {
            "image_processor_type": "ViTImageProcessor",
            "do_resize": True,
            "do_rescale": True,
            "do_normalize": True,
        }
        own = asdict(self)
        size = {"height": own.pop("height"), "width": own.pop("width")}
        write_json(
            Path(folder) / FILE,
            {
                **theirs,
                "size": size,
                "image_mean": own.pop("mean"),
                "image_std": own.pop("std"),
                "augment": self.augment,
            },
        )

    def __call__(self, images: Sequence[Tensor]) -> Tensor:
        """(C, H, W) each, of any size, to (N, C, height, width)."""
        return torch.stack([self._one(image) for image in images])

    def _one(self, image: Tensor) -> Tensor:
        values = image.float() / 255 if image.dtype == torch.uint8 else image
        if len(values) != len(self.mean):  # grey images among coloured ones, or the other way round
            values = values.mean(0, keepdim=True).expand(len(self.mean), *values.shape[1:])
        if values.shape[1:] != (self.height, self.width):
            values = F.interpolate(values[None], (self.height, self.width), mode="bilinear", antialias=True)[
                0
            ]
        return (values - torch.tensor(self.mean)[:, None, None]) / torch.tensor(self.std)[:, None, None]

    def augmented(self, images: Tensor) -> Tensor:
        """A batch, each image moved and mirrored by chance."""
        if self.augment == "off":
            return images
        n, _, height, width = images.shape
        space = max(1, min(height, width) // 8)
        padded = F.pad(images, (space,) * 4, mode="reflect")
        tops, lefts = torch.randint(2 * space + 1, (2, n)).tolist()
        moved = torch.stack(
            [
                p[:, t : t + height, left : left + width]
                for p, t, left in zip(padded, tops, lefts, strict=True)
            ]
        )
        if self.augment == "flip":
            moved = torch.where(torch.rand(n, 1, 1, 1) < 0.5, moved.flip(-1), moved)
        return moved


class ImageEncoder(Encoder):
    """A row of classes an image. ``tokenizer`` is a `Pixels`."""

    def __init__(self, kind: str, labels: Sequence[str], pixels: Pixels, max_length: int = 0) -> None:
        super().__init__(kind, labels, None, max_length)
        self.pixels = pixels

    def encode(self, samples: Sequence[Sample]) -> list[Features]:
        return [{"image": sample["image"], **self._label(sample)} for sample in samples]

    def collate(self, features: Sequence[Features]) -> dict[str, Tensor]:
        batch: dict[str, Any] = {"pixel_values": self.pixels([feature["image"] for feature in features])}
        if "labels" in features[0]:
            batch["labels"] = torch.tensor([feature["labels"] for feature in features])
        return batch

    def collate_for_training(self, features: Sequence[Features]) -> dict[str, Tensor]:
        batch = self.collate(features)
        return {**batch, "pixel_values": self.pixels.augmented(batch["pixel_values"])}

    def lengths(self, features: Sequence[Features]) -> list[int] | None:
        return None
