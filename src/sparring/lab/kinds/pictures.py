"""A sample to look at, as a picture that fits into a page: an image as it is, a sound as its spectrum."""

from __future__ import annotations

import base64
import io
from typing import Any

import numpy as np
import torch

from sparring.lab.task import Sample

SIDE = 96  # the most points a picture has on a side
MOST = 60  # pictures of a run: of its hardest samples
START = "data:image/png;base64,"


def picture(sample: Sample) -> str | None:
    """A PNG as the address of an ``<img>``; None for samples that are read, not looked at."""
    if "image" in sample:
        image = sample["image"]
        values = image if image.dtype == torch.uint8 else image.float().clamp(0, 1) * 255
        return _png(values.byte().permute(1, 2, 0).numpy())
    if "audio" in sample:
        from sparring.lab.models.sounds import Sounds

        spectrum = Sounds(rate=sample["rate"])(sample["audio"], sample["rate"]).T.flip(0)  # low sounds below
        low, high = spectrum.quantile(0.02), spectrum.quantile(0.999)
        return _png(((spectrum - low) / (high - low + 1e-6)).clamp(0, 1).mul(255).byte().numpy()[..., None])
    return None


def _png(values: Any) -> str:
    """(H, W, 1 or 3) bytes."""
    from PIL import Image

    made = Image.fromarray(np.ascontiguousarray(values[..., 0] if values.shape[-1] == 1 else values[..., :3]))
    made.thumbnail((SIDE, SIDE))
    file = io.BytesIO()
    made.save(file, "PNG", optimize=True)
    return START + base64.b64encode(file.getvalue()).decode()
