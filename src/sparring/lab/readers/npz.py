"""Arrays in ``.npz`` files, checked before anything is trained on them.

train.npz, dev.npz, test.npz   ``images`` (N, H, W) or (N, H, W, C) and ``labels``; or ``audio``, all clips one after
                               another, ``offsets`` (N + 1) and ``labels``; ``names`` of the clips if there are any
meta.json                      ``label_names`` (or ``labels``) where labels are numbers, ``sample_rate`` of sounds

Labels are words, or numbers into the names in meta.json.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sparring.lab.readers.published import NotedSplits
from sparring.lab.readers.wav import check_rate, sixteen_bits
from sparring.lab.task import SPLITS, DataError, Sample, Splits
from sparring.lab.untrusted import check_text, check_unpacked, read_json_object, reason

ARRAYS = {"image": ("images", "labels"), "audio": ("audio", "offsets", "labels")}
OPTIONAL = ("names",)
LOUDEST = 2.0  # a little above 1 is clipped, as in WAV files; far above, the numbers have another scale


@dataclass(frozen=True)
class Meta:
    """What meta.json says."""

    label_names: tuple[str, ...] | None
    sample_rate: int = 16000


def kind_of_npz(path: Path) -> str | None:
    """image or audio, by the names of the arrays."""
    names = _names(path)
    return "image" if "images" in names else "audio" if "audio" in names else None


def read_npz(folder: Path, kind: str) -> NotedSplits:
    """The splits in a folder. Every array is checked; what is wrong is named with its file and sample."""
    meta = read_meta(folder / "meta.json")
    splits: Splits = {}
    for split in SPLITS:
        path = folder / f"{split}.npz"
        if path.is_file():
            splits[split] = _samples(path, kind, meta)
    return NotedSplits(splits, ())


def read_meta(path: Path) -> Meta:
    """meta.json, or the defaults where there is none."""
    if not path.exists():
        return Meta(None)
    content = read_json_object(path)
    key = "label_names" if content.get("label_names") else "labels"
    names = content.get(key) or None
    if names is not None:
        if not isinstance(names, list) or any(type(name) not in (str, int) for name in names):
            raise DataError(
                f'{path}: "{key}" must be a list of names, such as ["cat", "dog"], got {names!r:.80}'
            )
        names = tuple(map(str, names))
        if len(set(names)) < len(names):
            raise DataError(f'{path}: "{key}" must hold different names, got {names!r:.80}')
    rate = content.get("sample_rate", Meta.sample_rate)
    try:
        return Meta(names, check_rate(int(rate) if isinstance(rate, float) and rate.is_integer() else rate))
    except ValueError as error:
        raise DataError(f'{path}: "sample_rate": {error}') from None


# ------------------------------------------------------------ the archive


def _names(path: Path) -> list[str]:
    """The arrays in a .npz file, which is a zip archive of .npy files."""
    try:
        with zipfile.ZipFile(path) as archive:
            check_unpacked(path, path.stat().st_size, sum(info.file_size for info in archive.infolist()))
            return [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]
    except DataError:
        raise
    except Exception as error:  # whatever a damaged archive makes zipfile raise
        raise _unreadable(path, error) from None


def _load(path: Path, kind: str) -> dict[str, Any]:
    """The arrays of a kind. Pickled objects are never loaded."""
    import numpy as np

    names = _names(path)
    if missing := [name for name in ARRAYS[kind] if name not in names]:
        raise DataError(
            f"{path}: expected the arrays {', '.join(ARRAYS[kind])}; {', '.join(missing)} is missing, "
            f"there are {', '.join(names[:20]) or 'none'}"
        )
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: np.asarray(archive[name]) for name in (*ARRAYS[kind], *OPTIONAL) if name in names}
    except Exception as error:  # whatever damaged bytes make zipfile, zlib or numpy raise
        raise _unreadable(path, error) from None


def _unreadable(path: Path, error: Exception) -> DataError:
    return DataError(
        f"{path}: not to be read as arrays: {reason(error)}; write it with numpy.savez, without object arrays"
    )


# ------------------------------------------------------------ the arrays


def _samples(path: Path, kind: str, meta: Meta) -> list[Sample]:
    arrays = _load(path, kind)
    is_image = kind == "image"
    contents = list(
        _images(arrays["images"], path) if is_image else _clips(arrays["audio"], arrays["offsets"], path)
    )
    labels = _labels(arrays["labels"], len(contents), meta.label_names, path)
    if is_image:
        return [{"image": image, "label": label} for image, label in zip(contents, labels, strict=True)]
    samples: list[Sample] = [
        {"audio": clip, "rate": meta.sample_rate, "label": label}
        for clip, label in zip(contents, labels, strict=True)
    ]
    if "names" in arrays:
        names = _words(arrays["names"], "names", path)
        if len(names) != len(samples):
            raise DataError(f"{path}: {len(samples)} samples, but {len(names)} names")
        samples = [{**sample, "name": name} for sample, name in zip(samples, names, strict=True)]
    return samples


def _images(images: Any, path: Path) -> Iterator[Tensor]:
    """(C, H, W) each: bytes as they are, other numbers as float32, all of them finite."""
    import numpy as np

    if images.ndim not in (3, 4) or 0 in images.shape[1:]:
        raise DataError(
            f"{path}: images must be (N, height, width) or (N, height, width, channels), got {images.shape}"
        )
    if images.dtype.kind not in "iuf":
        raise DataError(
            f"{path}: images must be bytes (uint8) or real numbers, got {images.dtype}; convert them, as in (255 * images).astype('uint8')"
        )
    if images.dtype != np.uint8:
        with np.errstate(over="ignore"):
            images = images.astype(np.float32)
        _check_finite(images, path)
    tensor = torch.from_numpy(np.ascontiguousarray(images))
    yield from tensor.permute(0, 3, 1, 2).contiguous() if tensor.ndim == 4 else tensor.unsqueeze(1)


def _check_finite(images: Any, path: Path) -> None:
    import numpy as np

    finite = np.isfinite(images).all(axis=tuple(range(1, images.ndim)))
    if not finite.all():
        bad = np.flatnonzero(~finite)
        more = f", as do {len(bad) - 1} more samples" if len(bad) > 1 else ""
        raise DataError(
            f"{path}: {path.stem} sample {bad[0]} holds numbers that are not finite as float32{more}; repair them, or leave the samples out"
        )


def _clips(audio: Any, offsets: Any, path: Path) -> Iterator[Tensor]:
    """16-bit samples of each clip."""
    import numpy as np

    if audio.ndim != 1 or not (audio.dtype.kind in "if" or audio.dtype == np.uint8):
        raise DataError(
            f"{path}: audio must be one row of int16 samples, or of numbers between -1 and 1, got {audio.dtype} {audio.shape}"
        )
    if offsets.ndim != 1 or offsets.dtype.kind not in "iu" or not len(offsets):
        raise DataError(
            f"{path}: offsets must be one row of whole numbers, one more than samples, got {offsets.dtype} {offsets.shape}"
        )
    bounds = [int(offset) for offset in offsets]
    for i, (begin, end) in enumerate(pairwise(bounds)):
        if not 0 <= begin < end <= len(audio):
            raise DataError(
                f"{path}: {path.stem} sample {i} must lie within the {len(audio)} values of audio, got offsets {begin} to {end}"
            )
        clip = audio[begin:end]
        if clip.dtype.kind == "f" and np.abs(clip[np.isfinite(clip)]).max(initial=0) > LOUDEST:
            raise DataError(
                f"{path}: {path.stem} sample {i}: numbers of a sound lie between -1 and 1; or convert it to int16"
            )
        try:
            yield torch.from_numpy(clip.copy()) if clip.dtype == np.int16 else sixteen_bits(clip)
        except ValueError as error:
            raise DataError(f"{path}: {path.stem} sample {i}: {error}") from None


def _labels(labels: Any, n_samples: int, names: Sequence[str] | None, path: Path) -> list[str]:
    if labels.ndim != 1 or labels.dtype.kind not in "iubUS":
        raise DataError(
            f"{path}: labels must be one row of whole numbers or words, got {labels.dtype} {labels.shape}"
        )
    if len(labels) != n_samples:
        raise DataError(f"{path}: {n_samples} samples, but {len(labels)} labels")
    if labels.dtype.kind in "US":
        return _words(labels, "labels", path)
    numbers = labels.tolist()
    if names is None:
        return [str(number) for number in numbers]
    for i, number in enumerate(numbers):
        if not 0 <= number < len(names):
            raise DataError(
                f"{path}: label {number} of sample {i} has no name in meta.json, which has {len(names)}"
            )
    return [names[number] for number in numbers]


def _words(array: Any, what: str, path: Path) -> list[str]:
    if array.ndim != 1 or array.dtype.kind not in "US":
        raise DataError(f"{path}: {what} must be one row of words, got {array.dtype} {array.shape}")
    try:
        words = [word.decode() if isinstance(word, bytes) else word for word in array.tolist()]
    except ValueError as error:  # not UTF-8, or no character of Unicode
        raise DataError(f"{path}: {what} must be words: {reason(error)}") from None
    return [check_text(word, f"{path}: {what}, sample {i}") for i, word in enumerate(words)]
