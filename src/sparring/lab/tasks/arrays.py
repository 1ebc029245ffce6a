"""Images and sounds on disk: folders with a class a folder, and arrays in ``.npz`` files. What cannot be read is named and counted.

root/class/name.png                          dev and test are split off
root/train/class/name.wav, root/test/…       parts as given
root/train.npz, dev.npz, test.npz, meta.json arrays: images and labels, or audio, offsets and labels
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sparring.lab.tasks.base import SPLITS, DataError, Sample, Splits
from sparring.lab.tasks.hub import SPLIT_NAMES
from sparring.lab.tasks.published import Noted

IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
SOUNDS = (".wav",)
SIDE = 64  # of an image from a folder, unless told otherwise
NAMED = 5  # unreadable files that are named
Reader = Callable[[Path], Sample]


def kind_of(folder: Path) -> str | None:
    """Whether a folder holds images or sounds: by the arrays in it, or by the endings of the files below it."""
    if (folder / "train.npz").is_file():
        import numpy as np

        with np.load(folder / "train.npz") as arrays:
            return "image" if "images" in arrays else "audio" if "audio" in arrays else None
    for path in _files(folder):
        ending = path.suffix.lower()
        if ending in (*IMAGES, *SOUNDS):
            return "image" if ending in IMAGES else "audio"
    return None


def read_folder(folder: Path, kind: str, side: int | None = None) -> Noted:
    """The splits there are, and what to know of them."""
    if (folder / "train.npz").is_file():
        return read_npz(folder, kind)
    read: Reader = (lambda path: read_image(path, side or SIDE)) if kind == "image" else read_wav
    endings = IMAGES if kind == "image" else SOUNDS
    parts = {part: found for part, names in SPLIT_NAMES.items() for found in [_one_of(folder, names)] if found is not None}
    roots = parts if "train" in parts else {"train": folder}
    splits: Splits = {}
    bad: list[str] = []
    for part, root in roots.items():
        splits[part] = list(_samples(root, endings, read, bad))
    if not splits["train"]:
        raise DataError(f"{folder}: no readable {kind} below it; expected a folder for each class, such as {folder.name}/cat/1{endings[0]}")
    notes = [f"{sum(map(len, splits.values()))} files in {len({s['label'] for s in splits['train']})} folders, a class each"]
    if kind == "image":
        notes.append(f"images cut to squares and made {side or SIDE} points wide (--image-size)")
    if bad:
        more = f" and {len(bad) - NAMED} more" if len(bad) > NAMED else ""
        notes.append(f"{len(bad)} file(s) could not be read and are left out: {'; '.join(bad[:NAMED])}{more}")
    return Noted({part: samples for part, samples in splits.items() if samples}, tuple(notes))


def _one_of(folder: Path, names: Sequence[str]) -> Path | None:
    return next((folder / name for name in names if (folder / name).is_dir()), None)


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.is_file() and not path.name.startswith("."))


def _samples(root: Path, endings: Sequence[str], read: Reader, bad: list[str]) -> Iterator[Sample]:
    """``root/class/…/name``: the folder right below the root is the class."""
    for path in _files(root):
        below = path.relative_to(root)
        if path.suffix.lower() not in endings or len(below.parts) < 2:
            continue
        try:
            sample = read(path)
        except Exception as error:  # whatever a damaged file makes a decoder raise
            bad.append(f"{below} ({' '.join(str(error).split())[:60] or type(error).__name__})")
            continue
        yield {**sample, "label": below.parts[0], "name": str(below)}


def read_image(path: Path, side: int) -> Sample:
    """The middle square, ``side`` points wide: (3, side, side) bytes."""
    try:
        from PIL import Image, ImageOps
    except ImportError:
        raise DataError("images are read by pillow, which is not installed: pip install 'sparring[lab]'") from None
    with Image.open(path) as image:
        image.draft("RGB", (side, side))  # a JPEG is decoded no larger than needed
        square = ImageOps.fit(ImageOps.exif_transpose(image).convert("RGB"), (side, side))
    return {"image": points(square)}


def points(image: Any) -> Tensor:
    """Of a pillow image: (3, height, width) bytes."""
    import numpy as np  # not with torch alone, with which the tasks' names must still be listed

    return torch.from_numpy(np.array(image.convert("RGB"))).permute(2, 0, 1).contiguous()


def read_wav(path: Path) -> Sample:
    """One channel, the mean of all: 16-bit samples, and how many a second."""
    import warnings

    from scipy.io import wavfile

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of chunks that are not sound
        rate, sound = wavfile.read(path)
    if not len(sound):
        raise ValueError("no sound in it")
    return {"audio": sixteen_bits(sound), "rate": int(rate)}


def sixteen_bits(sound: Any) -> Tensor:
    """Whatever a WAV file holds, (n,) or (n, channels): 8 bits without a sign, 16 or 32 with one, or numbers between -1 and 1."""
    import numpy as np

    values = np.asarray(sound)
    if values.dtype == np.uint8:
        values = (values.astype(np.float64) - 128) / 128
    elif values.dtype.kind == "i":
        values = values.astype(np.float64) / np.iinfo(values.dtype).max
    values = values.mean(1) if values.ndim > 1 else values
    if not np.isfinite(values).all():
        raise ValueError("numbers in it are not finite")
    return torch.from_numpy((np.clip(values, -1, 1) * 32767).round().astype(np.int16))


# ------------------------------------------------------------ arrays


def read_npz(folder: Path, kind: str) -> Noted:
    """``images`` (N, H, W) or (N, H, W, C) and ``labels``; or ``audio``, all clips one after another, ``offsets`` (N + 1) and ``labels``.
    Labels are words, or numbers into the names in meta.json."""
    import numpy as np

    meta = _meta(folder)
    names = meta.get("label_names") or meta.get("labels")
    splits: Splits = {}
    for part in SPLITS:
        path = folder / f"{part}.npz"
        if not path.is_file():
            continue
        try:
            with np.load(path, allow_pickle=False) as arrays:
                splits[part] = list(_arrays(dict(arrays), kind, names, meta, path))
        except (OSError, ValueError, EOFError) as error:
            raise DataError(f"{path}: not to be read as arrays: {error}") from None
    return Noted(splits, ())


def _meta(folder: Path) -> dict[str, Any]:
    try:
        found = json.loads((folder / "meta.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except json.JSONDecodeError as error:
        raise DataError(f"{folder / 'meta.json'}: not JSON: {error}") from None
    return found if isinstance(found, dict) else {}


def _arrays(arrays: dict[str, Any], kind: str, names: Sequence[str] | None, meta: dict[str, Any], path: Path) -> Iterator[Sample]:
    wanted = ("images", "labels") if kind == "image" else ("audio", "offsets", "labels")
    if missing := [name for name in wanted if name not in arrays]:
        raise DataError(f"{path}: expected the arrays {', '.join(wanted)}; {', '.join(missing)} is missing, there are {', '.join(arrays)}")
    labels = arrays["labels"]
    n = len(arrays["images"]) if kind == "image" else len(arrays["offsets"]) - 1
    if len(labels) != n:
        raise DataError(f"{path}: {n} samples, but {len(labels)} labels")
    if kind == "image":
        images = torch.from_numpy(arrays["images"])
        images = images.permute(0, 3, 1, 2).contiguous() if images.ndim == 4 else images.unsqueeze(1)
    rate = int(meta.get("sample_rate", 16000))
    for i, label in enumerate(labels.tolist()):
        if isinstance(label, int) and names is not None and not 0 <= label < len(names):
            raise DataError(f"{path}: label {label} of sample {i} has no name in meta.json, which has {len(names)}")
        own = {"label": str(names[label]) if isinstance(label, int) and names is not None else str(label)}
        if kind == "image":
            yield {"image": images[i], **own}
        else:
            sound = torch.from_numpy(arrays["audio"][arrays["offsets"][i] : arrays["offsets"][i + 1]].copy())
            yield {"audio": sound, "rate": rate, **own, **({"name": str(arrays["names"][i])} if "names" in arrays else {})}
