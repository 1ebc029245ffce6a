"""CIFAR-100 (Krizhevsky 2009): photographs of 32 by 32 points in 100 classes."""

from __future__ import annotations

import io
import pickle
import tarfile
from pathlib import Path
from typing import Any

import torch

from sparring.lab.kinds.image import to_tensor
from sparring.lab.readers.hub import hub_splits
from sparring.lab.readers.npz import read_npz
from sparring.lab.readers.published import Noted, load_published
from sparring.lab.task import Data, DataError, Sample, Splits, Where, register
from sparring.lab.untrusted import read_bytes, reason

ARCHIVE = "cifar-100-python"
NAMES = ("train", "test", "meta")


class _Type:
    """Stands in for ``numpy.dtype`` in a pickle."""

    def __init__(self, code: str | bytes, *_: Any) -> None:
        self.code = code if isinstance(code, str) else code.decode()

    def __setstate__(self, state: Any) -> None:
        """Byte order and flags, of which bytes have none."""


class _Bytes:
    """Stands in for ``numpy.ndarray`` in a pickle: keeps the parts of an array of bytes. numpy's own way to build an array
    from such parts trusts them."""

    def __setstate__(self, state: Any) -> None:
        _, self.shape, kind, self.fortran, self.content = state
        if not isinstance(kind, _Type) or kind.code != "u1" or not isinstance(self.content, bytes):
            raise pickle.UnpicklingError("expected an array of bytes")

    def array(self) -> Any:
        import numpy as np

        return (
            np.frombuffer(self.content, np.uint8)
            .reshape(self.shape, order="F" if self.fortran else "C")
            .copy()
        )


def _reconstruct(*_: Any) -> _Bytes:
    return _Bytes()


def _encode(text: str, encoding: str) -> bytes:
    """How Python 3 writes bytes into a pickle of protocol 2."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"expected bytes written as latin1, got {encoding!r:.40}")
    return text.encode("latin1")


STAND_INS = {
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy", "ndarray"): _Bytes,
    ("numpy", "dtype"): _Type,
    ("_codecs", "encode"): _encode,
}


class _Arrays(pickle.Unpickler):
    """A pickle can run anything. These files hold arrays, lists and words: the few names that they need are ours, all
    others are refused."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in STAND_INS:
            raise pickle.UnpicklingError(f"it wants to run {module}.{name}")
        return STAND_INS[module, name]


def original(folder: Path) -> Splits | Noted | None:
    """Arrays in .npz; or the publisher's archive, packed or unpacked: pickles named train, test and meta."""
    if (folder / "train.npz").is_file():
        return read_npz(folder, "image")
    for root in (folder / ARCHIVE, folder):
        if (root / "train").is_file() and (root / "meta").is_file():
            return _pickles({name: read_bytes(root / name) for name in NAMES}, str(root))
    packed = folder / f"{ARCHIVE}.tar.gz"
    if not packed.is_file():
        return None
    unpacked = io.BytesIO(read_bytes(packed))
    try:
        with tarfile.open(fileobj=unpacked, mode="r:") as archive:
            files = {name: archive.extractfile(f"{ARCHIVE}/{name}") for name in NAMES}
            content = {name: file.read() for name, file in files.items() if file is not None}
    except Exception as error:  # whatever a damaged archive makes tarfile raise
        raise DataError(f"{packed}: not the publisher's archive: {reason(error)}") from None
    return _pickles(content, str(packed))


def _pickles(found: dict[str, bytes], place: str) -> Splits:
    try:
        content = {name: _Arrays(io.BytesIO(raw), encoding="bytes").load() for name, raw in found.items()}
        names = [name.decode() for name in _entry(content["meta"], b"fine_label_names", list)]
        return {part: _samples(content[part], names) for part in ("train", "test")}
    except Exception as error:  # whatever a damaged pickle makes the unpickler raise
        raise DataError(f"{place}: not the publisher's pickles: {reason(error)}") from None


def _entry(content: Any, key: bytes, kind: type) -> Any:
    if not isinstance(content, dict) or not isinstance(content.get(key), kind):
        what = "an array of bytes" if kind is _Bytes else "a list"
        raise ValueError(f"expected a dict that holds {what} under {key.decode()}")
    return content[key]


def _samples(content: Any, names: list[str]) -> list[Sample]:
    images = torch.from_numpy(_entry(content, b"data", _Bytes).array().reshape(-1, 3, 32, 32))
    labels = _entry(content, b"fine_labels", list)
    if not all(isinstance(label, int) and 0 <= label < len(names) for label in labels):
        raise ValueError(f"expected labels from 0 to {len(names) - 1}")
    return [{"image": image, "label": names[label]} for image, label in zip(images, labels, strict=True)]


def hub() -> Splits:
    def sample(row: dict[str, Any]) -> Sample:
        return {"image": to_tensor(row["img"]), "label": row["fine_label"]}

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
