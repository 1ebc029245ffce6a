"""Images and sounds on disk: folders with a class a folder, or arrays (npz.py). What cannot be read is named and counted.

root/class/name.png                          dev and test are split off
root/train/class/name.wav, root/test/…       parts as given
root/train.npz, dev.npz, test.npz, meta.json arrays: images and labels, or audio, offsets and labels
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sparring.lab.readers.hub import SPLIT_NAMES
from sparring.lab.readers.npz import kind_of_npz, read_npz
from sparring.lab.readers.published import NotedSplits
from sparring.lab.readers.wav import read_wav
from sparring.lab.task import DataError, Sample, Splits
from sparring.lab.untrusted import check_text, printable, reason

IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
SOUNDS = (".wav",)
DECODERS = ("PNG", "JPEG", "BMP", "GIF", "WEBP", "TIFF", "PPM")  # no others: pillow hands EPS to Ghostscript
SIDE = 64  # of an image from a folder, unless told otherwise
MAX_NAMED = 5  # unreadable files that a note names
Reader = Callable[[Path], Sample]


def kind_of(folder: Path) -> str | None:
    """Whether a folder holds images or sounds: by the arrays in it, or by the endings of the files below it."""
    if (folder / "train.npz").is_file():
        return kind_of_npz(folder / "train.npz")
    for path in _files(folder):
        ending = path.suffix.lower()
        if ending in (*IMAGES, *SOUNDS):
            return "image" if ending in IMAGES else "audio"
    return None


def read_folder(folder: Path, kind: str, side: int | None = None) -> NotedSplits:
    """The splits there are, and what to know of them."""
    if (folder / "train.npz").is_file():
        return read_npz(folder, kind)
    read: Reader = (lambda path: read_image(path, side or SIDE)) if kind == "image" else read_wav
    endings = IMAGES if kind == "image" else SOUNDS
    parts = {
        part: path for part, names in SPLIT_NAMES.items() if (path := _one_of(folder, names)) is not None
    }
    roots = parts if "train" in parts else {"train": folder}
    unreadable = UnreadableFiles()
    splits: Splits = {part: _samples(root, endings, read, unreadable) for part, root in roots.items()}
    if not splits["train"]:
        raise DataError(
            f"{folder}: no readable {kind} below it; expected a folder for each class, "
            f"such as {folder.name}/cat/1{endings[0]}" + "".join(f"; {note}" for note in unreadable.notes())
        )
    n_files, n_classes = sum(map(len, splits.values())), len({s["label"] for s in splits["train"]})
    notes = [f"{n_files} files in {n_classes} folders, a class each"]
    if kind == "image":
        notes.append(f"images cut to squares and made {side or SIDE} points wide (--image-size)")
    present = {part: samples for part, samples in splits.items() if samples}
    return NotedSplits(present, (*notes, *unreadable.notes()))


class UnreadableFiles:
    """Collects files that cannot be read, so that the others can be used."""

    def __init__(self) -> None:
        self.problems: list[str] = []

    @contextmanager
    def skipping(self, name: str) -> Iterator[None]:
        """Collect the file if the block raises an exception."""
        try:
            yield
        except Exception as error:  # a damaged file can make a decoder raise anything
            self.problems.append(printable(f"{name} ({reason(error, 60)})"))

    def __str__(self) -> str:
        n_more = len(self.problems) - MAX_NAMED
        return "; ".join(self.problems[:MAX_NAMED]) + (f" and {n_more} more" if n_more > 0 else "")

    def notes(self) -> tuple[str, ...]:
        """A note that names the files, if there are any."""
        n_files = len(self.problems)
        return (f"{n_files} file(s) could not be read and are left out: {self}",) if n_files else ()


def _one_of(folder: Path, names: Sequence[str]) -> Path | None:
    return next((folder / name for name in names if (folder / name).is_dir()), None)


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.is_file() and not path.name.startswith("."))


def _samples(root: Path, endings: Sequence[str], read: Reader, unreadable: UnreadableFiles) -> list[Sample]:
    """The samples ``root/class/…/name``: the folder right below the root is the class."""
    samples = []
    for path in _files(root):
        below = path.relative_to(root)
        if path.suffix.lower() in endings and len(below.parts) > 1:
            with unreadable.skipping(str(below)):
                check_text(str(below), "its name")
                samples.append({**read(path), "label": below.parts[0], "name": str(below)})
    return samples


def read_image(path: Path, side: int) -> Sample:
    """The middle square, ``side`` points wide: (3, side, side) bytes."""
    try:
        from PIL import Image, ImageOps
    except ImportError:
        raise DataError(
            "images are read by pillow, which is not installed: pip install 'sparring[lab]'"
        ) from None
    with Image.open(path, formats=DECODERS) as image:
        image.draft("RGB", (side, side))  # a JPEG is decoded no larger than needed
        square = ImageOps.fit(ImageOps.exif_transpose(image).convert("RGB"), (side, side))
    return {"image": pixels(square)}


def pixels(image: Any) -> Tensor:
    """(3, height, width) bytes of a pillow image."""
    import numpy as np  # not with torch alone, with which the tasks' names must still be listed

    return torch.from_numpy(np.array(image.convert("RGB"))).permute(2, 0, 1).contiguous()
