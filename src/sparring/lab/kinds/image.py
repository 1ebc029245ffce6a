"""Images with one label each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sparring.lab.errors import DataError, option
from sparring.lab.kinds.base import register_kind
from sparring.lab.kinds.encoder import Encoder, Features, Labels, Sample, Samples
from sparring.lab.kinds.media import MediaKind, png
from sparring.lab.models.settings import Model, ModelDefaults, ModelOptions

SIDE = 64  # width and height of images from files, unless --image-size says otherwise
DECODERS = ("PNG", "JPEG", "BMP", "GIF", "WEBP", "TIFF", "PPM")  # no others: pillow passes EPS to Ghostscript


class ImageEncoder(Encoder):
    """One row of logits per image. The processor is an `ImageProcessor`."""

    def encode(self, samples: Samples) -> list[Features]:
        return [{"image": sample["image"], **self.target(sample)} for sample in samples]

    def collate_inputs(self, features: Sequence[Features]) -> dict[str, Tensor]:
        return {"pixel_values": self.processor([feature["image"] for feature in features])}

    def collate_for_training(self, features: Sequence[Features]) -> dict[str, Tensor]:
        batch = self.collate(features)
        return {**batch, "pixel_values": self.processor.augmented(batch["pixel_values"])}


@register_kind
class ImageKind(MediaKind):
    """An image, (channels, height, width), and one of several labels."""

    name = "image"
    fields = ("image", "label")
    noun = "images"
    endings = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
    arrays = ("images", "labels")
    task_settings = {"augment": "crop"}
    encoder_class = ImageEncoder
    auto_class = "AutoModelForImageClassification"
    models = {
        "tiny": ModelDefaults(epochs=8, lr=3e-3, pieces=4, from_scratch=True),
        "resnet": ModelDefaults(epochs=15, lr=2e-3, from_scratch=True),
        "convnext": ModelDefaults(epochs=15, lr=2e-3, from_scratch=True),
        "efficientnet-lite0": ModelDefaults(epochs=5, lr=5e-5),
    }
    pretrained = "efficientnet-lite0"
    model_options = ("image_size", "augment")

    def read_file(self, path: Path, size: int | None = None) -> Sample:
        """The middle square of an image, scaled to (3, size, size) bytes."""
        try:
            from PIL import Image
        except ImportError:
            raise DataError("reading images needs pillow: pip install 'sparring[lab]'") from None
        side = size or SIDE
        with Image.open(path, formats=DECODERS) as image:
            image.draft("RGB", (side, side))  # a JPEG is decoded no larger than needed
            return {"image": to_square(image, side)}

    def file_notes(self, size: int | None) -> list[str]:
        return [f"images cut to squares and scaled to {size or SIDE} pixels ({option('image_size')})"]

    def read_arrays(self, arrays: Mapping[str, Any], sample_rate: int, path: Path) -> list[Sample]:
        """(N, H, W) or (N, H, W, C) to (C, H, W) each: bytes, or finite numbers as float32."""
        import numpy as np

        images = arrays["images"]
        if images.ndim not in (3, 4) or 0 in images.shape[1:]:
            shapes = "(N, height, width) or (N, height, width, channels)"
            raise DataError(f"{path}: images must be {shapes}, got {images.shape}")
        if images.dtype.kind not in "iuf":
            raise DataError(
                f"{path}: images must be bytes (uint8) or real numbers, got {images.dtype}; "
                "convert them, as in (255 * images).astype('uint8')"
            )
        if images.dtype != np.uint8:
            with np.errstate(over="ignore"):
                images = images.astype(np.float32)
            _check_finite(images, path)
        tensor = torch.from_numpy(np.ascontiguousarray(images))
        tensor = tensor.permute(0, 3, 1, 2).contiguous() if tensor.ndim == 4 else tensor.unsqueeze(1)
        return [{"image": image} for image in tensor]

    def picture(self, sample: Sample) -> str | None:
        image = sample["image"]
        values = image if image.dtype == torch.uint8 else image.float().clamp(0, 1) * 255
        return png(values.byte().permute(1, 2, 0).numpy())

    def create_model(self, name: str, train: Samples, labels: Labels, options: ModelOptions) -> Model:
        from sparring.lab.models import vision

        return vision.build(name, [sample["image"] for sample in train], labels, options)

    def load_processor(self, folder: Path, trust: bool) -> Any:
        from sparring.lab.models.images import ImageProcessor

        return ImageProcessor.from_pretrained(folder)


def to_tensor(image: Any) -> Tensor:
    """A pillow image as (3, height, width) bytes."""
    import numpy as np  # not at the top: tasks are listed also where only torch is installed

    return torch.from_numpy(np.array(image.convert("RGB"))).permute(2, 0, 1).contiguous()


def to_square(image: Any, side: int) -> Tensor:
    """The middle square of a pillow image, scaled to (3, side, side) bytes."""
    from PIL import ImageOps

    return to_tensor(ImageOps.fit(ImageOps.exif_transpose(image).convert("RGB"), (side, side)))


def _check_finite(images: Any, path: Path) -> None:
    import numpy as np

    finite = np.isfinite(images).all(axis=tuple(range(1, images.ndim)))
    if not finite.all():
        bad = np.flatnonzero(~finite)
        more = f", as do {len(bad) - 1} more samples" if len(bad) > 1 else ""
        raise DataError(
            f"{path}: {path.stem} sample {bad[0]} holds numbers that are not finite as float32{more}; "
            "repair them, or leave the samples out"
        )
