"""CIFAR-100 (Krizhevsky 2009): photographs of 32 by 32 points in 100 classes."""

from __future__ import annotations

import io
import pickle
import tarfile
from pathlib import Path
from typing import Any

import torch

from sparring.lab.tasks.arrays import points, read_npz
from sparring.lab.tasks.base import Data, DataError, Sample, Splits, Where, register
from sparring.lab.tasks.hub import hub_splits
from sparring.lab.tasks.published import Noted, load_published

ARCHIVE = "cifar-100-python"
ALLOWED = {
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("_codecs", "encode"),
}


class _Arrays(pickle.Unpickler):
    """A pickle can run anything; these files hold arrays, lists and words, and nothing else is let through."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in ALLOWED:
            raise pickle.UnpicklingError(f"it wants to run {module}.{name}")
        return super().find_class(module, name)


def original(folder: Path) -> Splits | Noted | None:
    """Arrays in .npz; or the publisher's archive, packed or unpacked: pickles named train, test and meta."""
    if (folder / "train.npz").is_file():
        return read_npz(folder, "image")
    for root in (folder / ARCHIVE, folder):
        if (root / "train").is_file() and (root / "meta").is_file():
            return _pickles({name: (root / name).read_bytes() for name in ("train", "test", "meta")}, str(root))
    packed = folder / f"{ARCHIVE}.tar.gz"
    if not packed.is_file():
        return None
    try:
        with tarfile.open(packed) as archive:
            return _pickles({name: archive.extractfile(f"{ARCHIVE}/{name}").read() for name in ("train", "test", "meta")}, str(packed))  # type: ignore[union-attr]
    except (tarfile.TarError, KeyError, OSError, EOFError) as error:
        raise DataError(f"{packed}: not the publisher's archive: {error}") from None


def _pickles(found: dict[str, bytes], place: str) -> Splits:
    try:
        content = {name: _Arrays(io.BytesIO(raw), encoding="bytes").load() for name, raw in found.items()}
        names = [name.decode() for name in content["meta"][b"fine_label_names"]]
        return {part: _samples(content[part], names) for part in ("train", "test")}
    except (pickle.UnpicklingError, KeyError, EOFError, ValueError, AttributeError, IndexError) as error:
        raise DataError(f"{place}: not the publisher's pickles: {error}") from None


def _samples(content: dict[bytes, Any], names: list[str]) -> list[Sample]:
    images = torch.from_numpy(content[b"data"].astype("uint8").reshape(-1, 3, 32, 32))
    return [{"image": image, "label": names[label]} for image, label in zip(images, content[b"fine_labels"], strict=True)]


def hub() -> Splits:
    def sample(row: dict[str, Any]) -> Sample:
        return {"image": points(row["img"]), "label": row["fine_label"]}

    return hub_splits("uoft-cs/cifar100", sample, classes="fine_label")


@register(
    "cifar100",
    kind="image",
    about="what is on a photograph of 32 by 32 points, 100 classes (Krizhevsky 2009)",
    metric="accuracy",
    home="https://www.cs.toronto.edu/~kriz/cifar.html",
    sizes=(50000, 0, 10000),
    settings={"augment": "flip", "batch_size": 64},
)
def load(where: Where) -> Data:
    return load_published(where, "image", ["cifar100"], original, hub)
