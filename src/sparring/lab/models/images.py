"""Processor of images, on torch alone: size, normalisation, and random augmentation in training."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from sparring.files import atomic_write

FILE = "preprocessor_config.json"  # as transformers names it


@dataclass(frozen=True)
class ImageProcessor:
    """Images to the inputs of a network. ``AutoImageProcessor`` of transformers can load what it saves.

    Attributes:
        height, width: Size that images are scaled to.
        mean, std: Of each channel, where black is 0 and white 1.
        augment: In training, "crop" shifts images by up to an eighth of their size; "flip" also mirrors half
            of them.
    """

    height: int
    width: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    augment: str = "off"

    @classmethod
    def of(cls, images: Sequence[Tensor], size: int | None = None, augment: str = "off") -> ImageProcessor:
        """For a network trained from scratch: size, mean and standard deviation of the training images.

        Images of floating-point numbers are not normalised.
        """
        channels, height, width = images[0].shape
        if size is not None:
            height = width = size
        if images[0].dtype != torch.uint8:
            return cls(height, width, (0.0,) * channels, (1.0,) * channels, augment)
        pixels = torch.stack([image.float().flatten(1)[:, ::7] for image in images[:2000]]) / 255
        by_channel = pixels.transpose(0, 1).flatten(1)
        mean, std = by_channel.mean(1).tolist(), (by_channel.std(1) + 1e-6).tolist()
        return cls(height, width, tuple(mean), tuple(std), augment)

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
            part.write_text(json.dumps(content, indent=2) + "\n")

    def __call__(self, images: Sequence[Tensor]) -> Tensor:
        """Images of any size, (C, H, W) each, to (N, C, height, width)."""
        return torch.stack([self._prepare(image) for image in images])

    def _prepare(self, image: Tensor) -> Tensor:
        values = image.float() / 255 if image.dtype == torch.uint8 else image
        if len(values) != len(self.mean):  # grey images among coloured ones, or the other way round
            values = values.mean(0, keepdim=True).expand(len(self.mean), *values.shape[1:])
        size = (self.height, self.width)
        if values.shape[1:] != size:
            values = F.interpolate(values[None], size, mode="bilinear", antialias=True)[0]
        return (values - torch.tensor(self.mean)[:, None, None]) / torch.tensor(self.std)[:, None, None]

    def augmented(self, images: Tensor) -> Tensor:
        """A batch in which each image is shifted and mirrored at random."""
        if self.augment == "off":
            return images
        n, _, height, width = images.shape
        space = max(1, min(height, width) // 8)
        padded = F.pad(images, (space,) * 4, mode="reflect")
        offsets = zip(*torch.randint(2 * space + 1, (2, n)).tolist(), strict=True)
        crops = [
            image[:, top : top + height, left : left + width]
            for image, (top, left) in zip(padded, offsets, strict=True)
        ]
        shifted = torch.stack(crops)
        if self.augment == "flip":
            shifted = torch.where(torch.rand(n, 1, 1, 1) < 0.5, shifted.flip(-1), shifted)
        return shifted
