"""CIFAR-100 (Krizhevsky 2009): photographs of 32 by 32 pixels in 100 classes.

The publisher's files are pickles, and a pickle can execute anything. These hold arrays of bytes, lists and
strings: the few names that they refer to are replaced by harmless classes below, and all others are refused.
"""

import io
import pickle
import tarfile
from pathlib import Path
from typing import Any

import torch

from sparring.lab.datasets import register_published
from sparring.lab.kinds.image import to_tensor
from sparring.lab.readers.hub import HubSource
from sparring.lab.readers.npz import read_npz
from sparring.lab.readers.published import NotedSplits
from sparring.lab.task import DataError, Sample, Splits
from sparring.lab.untrusted import read_bytes, reason

ARCHIVE = "cifar-100-python"
NAMES = ("train", "test", "meta")


class _DType:
    """In place of ``numpy.dtype``."""

    def __init__(self, code: str | bytes, *_: Any) -> None:
        self.code = code if isinstance(code, str) else code.decode()

    def __setstate__(self, state: Any) -> None:
        """Ignore byte order and flags: single bytes have none."""


class _ByteArray:
    """In place of ``numpy.ndarray``, whose reconstruction does not check the parts that it is given."""

    def __setstate__(self, state: Any) -> None:
        _, self.shape, dtype, self.fortran, self.content = state
        if not isinstance(dtype, _DType) or dtype.code != "u1" or not isinstance(self.content, bytes):
            raise pickle.UnpicklingError("expected an array of bytes")

    def array(self) -> Any:
        import numpy as np

        order: Any = "F" if self.fortran else "C"
        return np.frombuffer(self.content, np.uint8).reshape(self.shape, order=order).copy()


def _reconstruct(*_: Any) -> _ByteArray:
    return _ByteArray()


def _encode(text: str, encoding: str) -> bytes:
    """Protocol 2 of Python 3 stores bytes as latin1 text."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"expected bytes written as latin1, got {encoding!r:.40}")
    return text.encode("latin1")


REPLACEMENTS = {
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy", "ndarray"): _ByteArray,
    ("numpy", "dtype"): _DType,
    ("_codecs", "encode"): _encode,
}


class ArrayUnpickler(pickle.Unpickler):
    """Loads arrays of bytes, lists, dicts and strings, and executes nothing from the file."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in REPLACEMENTS:
            raise pickle.UnpicklingError(f"it wants to run {module}.{name}")
        return REPLACEMENTS[module, name]


def original(folder: Path) -> Splits | NotedSplits | None:
    """Arrays in .npz; or the publisher's archive, packed or unpacked: pickles named train, test and meta."""
    if (folder / "train.npz").is_file():
        return read_npz(folder, "image")
    for root in (folder / ARCHIVE, folder):
        if (root / "train").is_file() and (root / "meta").is_file():
            return _splits({name: read_bytes(root / name) for name in NAMES}, str(root))
    archive = folder / f"{ARCHIVE}.tar.gz"
    return _splits(_unpack(archive), str(archive)) if archive.is_file() else None


def _unpack(path: Path) -> dict[str, bytes]:
    unpacked = io.BytesIO(read_bytes(path))
    try:
        with tarfile.open(fileobj=unpacked, mode="r:") as archive:
            files = {name: archive.extractfile(f"{ARCHIVE}/{name}") for name in NAMES}
            return {name: file.read() for name, file in files.items() if file is not None}
    except Exception as error:  # a damaged archive can make tarfile raise anything
        raise DataError(f"{path}: not the publisher's archive: {reason(error)}") from None


def _splits(pickles: dict[str, bytes], place: str) -> Splits:
    try:
        content = {
            name: ArrayUnpickler(io.BytesIO(raw), encoding="bytes").load() for name, raw in pickles.items()
        }
        labels = [name.decode() for name in _entry(content["meta"], b"fine_label_names", list)]
        return {split: samples(content[split], labels) for split in ("train", "test")}
    except Exception as error:  # a damaged pickle can make the unpickler raise anything
        raise DataError(f"{place}: not the publisher's pickles: {reason(error)}") from None


def _entry(content: Any, key: bytes, type_: type) -> Any:
    if not isinstance(content, dict) or not isinstance(content.get(key), type_):
        expected = "a list" if type_ is list else "an array of bytes"
        raise ValueError(f"expected a dict that holds {expected} under {key.decode()}")
    return content[key]


def samples(content: Any, names: list[str]) -> list[Sample]:
    """The samples in the content of a pickle."""
    images = torch.from_numpy(_entry(content, b"data", _ByteArray).array().reshape(-1, 3, 32, 32))
    labels = _entry(content, b"fine_labels", list)
    if not all(isinstance(label, int) and 0 <= label < len(names) for label in labels):
        raise ValueError(f"expected labels from 0 to {len(names) - 1}")
    return [{"image": image, "label": names[label]} for image, label in zip(images, labels, strict=True)]


register_published(
    "cifar100",
    kind="image",
    about="what is on a photograph of 32 by 32 points, 100 classes (Krizhevsky 2009)",
    metric="accuracy",
    home="https://www.cs.toronto.edu/~kriz/cifar.html",
    sizes=(50000, 0, 10000),
    settings={"augment": "flip", "batch_size": 64},
    original=original,
    hub=HubSource(
        "uoft-cs/cifar100",
        {"image": "img", "label": "fine_label"},
        classes="fine_label",
        convert={"image": to_tensor},
    ),
)
