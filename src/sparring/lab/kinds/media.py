"""What kinds of tasks on images and sounds share: files with one sample each, and pictures for a report."""

from __future__ import annotations

import base64
import io
from collections.abc import Hashable
from pathlib import Path
from typing import Any

from sparring.lab.errors import UserError
from sparring.lab.kinds.base import Kind
from sparring.lab.kinds.encoder import Sample
from sparring.lab.untrusted import reason

PICTURE_SIDE = 96  # largest width and height of a picture in a report
PICTURE_START = "data:image/png;base64,"


class MediaKind(Kind):
    """Base of the kinds whose samples hold an image or a sound in their first field, and one label."""

    reads_text = False

    def key(self, sample: Sample) -> Hashable:
        return bytes(sample[self.fields[0]].numpy().tobytes())

    def parse_input(self, text: str, task: str, processor: Any) -> Sample:
        path = Path(text).expanduser()
        if not path.is_file():
            raise UserError(
                f"{path}: no such file; {task} is about {self} files, so predict takes their paths"
            )
        try:
            sample = self.read_file(path, getattr(processor, "height", None))
        except UserError:
            raise
        except Exception as error:  # decoders raise anything for a damaged file
            raise UserError(f"{path}: cannot be read as {self}: {reason(error)}") from None
        return {**sample, "file": str(path)}

    def show(self, sample: Sample, index: int) -> tuple[str, str]:
        return str(sample.get("name") or f"{self.noun.removesuffix('s')} {index + 1}"), str(sample["label"])


def png(values: Any) -> str:
    """Bytes of shape (H, W, 1 or 3) as the address of an ``<img>``."""
    import numpy as np
    from PIL import Image

    array = values[..., 0] if values.shape[-1] == 1 else values[..., :3]
    image = Image.fromarray(np.ascontiguousarray(array))
    image.thumbnail((PICTURE_SIDE, PICTURE_SIDE))
    file = io.BytesIO()
    image.save(file, "PNG", optimize=True)
    return PICTURE_START + base64.b64encode(file.getvalue()).decode()
