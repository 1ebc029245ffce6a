"""Images to tensors: sizes, channels' mean and spread, and what training does to an image each time anew. On torch alone."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from sparring.files import atomic_write

FILE = "preprocessor_config.json"  # Hugging Face's name for it


@dataclass(frozen=True)
class ImageProcessor:
    """How a network wants its images. It saves in Hugging Face's form, so that ``AutoImageProcessor`` finds the same numbers."""

    height: int
    width: int
    mean: tuple[float, ...]  # of each channel, where black is 0 and white 1
    std: tuple[float, ...]
    augment: str = "off"  # in training: crop, a place of the image moved by up to an eighth; flip, that and half of them mirrored

    @classmethod
    def of(cls, images: Sequence[Tensor], size: int | None = None, augment: str = "off") -> ImageProcessor:
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
    def from_pretrained(cls, folder: str | Path) -> ImageProcessor:
        content = json.loads((Path(folder) / FILE).read_text())
        return cls(
            content["size"]["height"],
            content["size"]["width"],
            tuple(content["image_mean"]),
            tuple(content["image_std"]),
            content.get("augment", "off"),
        )

    def save_pretrained(self, folder: str | Path) -> None:
        content = {
            "image_processor_type": "ViTImageProcessor",
            "do_resize": True,
            "do_rescale": True,
            "do_normalize": True,
            "size": {"height": self.height, "width": self.width},
            "image_mean": self.mean,
            "image_std": self.std,
            "augment": self.augment,
        }
        with atomic_write(Path(folder) / FILE) as part:
            part.write_text(json.dumps(content, indent=1) + "\n")

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
