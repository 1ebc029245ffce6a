"""Arrays in ``.npz`` files, checked before anything is trained on them.

train.npz, dev.npz, test.npz   ``images`` (N, H, W) or (N, H, W, C) and ``labels``; or ``audio``, all clips one after
                               another, ``offsets`` (N + 1) and ``labels``; ``names`` of the clips if there are any
meta.json                      ``label_names`` (or ``labels``) where labels are numbers, ``sample_rate`` of sounds

Labels are words, or numbers into the names in meta.json.
"""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sparring.lab.kinds import Kind, get_kind, list_kinds
from sparring.lab.kinds.wav import check_rate
from sparring.lab.readers.published import Noted
from sparring.lab.task import SPLITS, DataError, Sample, Splits
from sparring.lab.untrusted import check_text, check_unpacked, read_json_object, reason


@dataclass(frozen=True)
class Meta:
    """What meta.json says."""

    label_names: tuple[str, ...] | None
    sample_rate: int = 16000


def kind_of_npz(path: Path) -> Kind | None:
    """image or audio, by the names of the arrays."""
    names = _names(path)
    return next((form for form in list_kinds() if form.arrays and form.arrays[0] in names), None)


def read_npz(folder: Path, kind: Kind | str) -> Noted:
    """The splits in a folder. Every array is checked; what is wrong is named with its file and sample."""
    kind = get_kind(kind)
    meta = read_meta(folder / "meta.json")
    splits: Splits = {}
    for split in SPLITS:
        path = folder / f"{split}.npz"
        if path.is_file():
            splits[split] = _samples(path, kind, meta)
    return Noted(splits, ())


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


def _load(path: Path, kind: Kind) -> dict[str, Any]:
    """The arrays of a kind. Pickled objects are never loaded."""
    import numpy as np

    names = _names(path)
    if missing := [name for name in kind.arrays if name not in names]:
        raise DataError(
            f"{path}: expected the arrays {', '.join(kind.arrays)}; {', '.join(missing)} is missing, "
            f"there are {', '.join(names[:20]) or 'none'}"
        )
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {
                name: np.asarray(archive[name])
                for name in (*kind.arrays, *kind.optional_arrays)
                if name in names
            }
    except Exception as error:  # whatever damaged bytes make zipfile, zlib or numpy raise
        raise _unreadable(path, error) from None


def _unreadable(path: Path, error: Exception) -> DataError:
    return DataError(
        f"{path}: not to be read as arrays: {reason(error)}; write it with numpy.savez, without object arrays"
    )


# ------------------------------------------------------------ the arrays


def _samples(path: Path, kind: Kind, meta: Meta) -> list[Sample]:
    arrays = _load(path, kind)
    samples = kind.read_arrays(arrays, meta.sample_rate, path)
    labels = _labels(arrays["labels"], len(samples), meta.label_names, path)
    samples = [{**sample, "label": label} for sample, label in zip(samples, labels, strict=True)]
    if "names" in arrays:
        names = _words(arrays["names"], "names", path)
        if len(names) != len(samples):
            raise DataError(f"{path}: {len(samples)} samples, but {len(names)} names")
        samples = [{**sample, "name": name} for sample, name in zip(samples, names, strict=True)]
    return samples


def _labels(labels: Any, n_samples: int, names: Sequence[str] | None, path: Path) -> list[str]:
    import numpy as np

    if labels.ndim != 1 or not set(labels.dtype.kind) <= set("iubUS"):
        raise DataError(
            f"{path}: labels must be one row of whole numbers or words, got {labels.dtype} {labels.shape}"
        )
    if len(labels) != n_samples:
        raise DataError(f"{path}: {n_samples} samples, but {len(labels)} labels")
    if labels.dtype.type in (np.str_, np.bytes_):
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
    import numpy as np

    if array.ndim != 1 or array.dtype.type not in (np.str_, np.bytes_):
        raise DataError(f"{path}: {what} must be one row of words, got {array.dtype} {array.shape}")
    try:
        words = [word.decode() if isinstance(word, bytes) else word for word in array.tolist()]
    except ValueError as error:  # not UTF-8, or no character of Unicode
        raise DataError(f"{path}: {what} must be words: {reason(error)}") from None
    return [check_text(word, f"{path}: {what}, sample {i}") for i, word in enumerate(words)]
