"""Read arrays in ``.npz`` files, which are checked before a model is trained on them.

train.npz, dev.npz, test.npz  ``images`` (N, H, W) or (N, H, W, C) and ``labels``; or ``audio`` (N, samples)
                              and ``labels``; or all clips in one row of ``audio``, ``offsets`` (N + 1) and
                              ``labels``; optional ``names`` of the clips
meta.json                     ``label_names`` (or ``labels``) if labels are numbers, ``sample_rate`` of sounds
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sparring.lab.kinds import Kind, get_kind, list_kinds
from sparring.lab.models.wav import check_rate
from sparring.lab.readers.published import NotedSplits
from sparring.lab.task import SPLITS, DataError, Sample
from sparring.lab.untrusted import archive_names, check_text, read_json_object, reason


@dataclass(frozen=True)
class Meta:
    """The content of meta.json."""

    label_names: list[str] | None = None
    sample_rate: int = 16000


def kind_of_npz(path: Path) -> Kind | None:
    """The kind whose first array is in the file."""
    names = _array_names(path)
    candidates = (candidate for candidate in list_kinds() if candidate.arrays)
    return next((candidate for candidate in candidates if candidate.arrays[0] in names), None)


def read_npz(folder: Path, kind: Kind | str) -> NotedSplits:
    """Read the splits in a folder. An error names the file and the sample."""
    meta = _read_meta(folder / "meta.json")
    paths = {split: folder / f"{split}.npz" for split in SPLITS}
    present = {split: path for split, path in paths.items() if path.is_file()}
    return NotedSplits({split: _read_samples(present[split], get_kind(kind), meta) for split in present}, ())


def _read_meta(path: Path) -> Meta:
    if not path.exists():
        return Meta()
    content = read_json_object(path)
    key = "label_names" if content.get("label_names") else "labels"
    names = content.get(key) or None
    if names is not None:
        if not isinstance(names, list) or any(type(name) not in (str, int) for name in names):
            raise DataError(f'{path}: "{key}" must be a list such as ["cat", "dog"], got {names!r:.80}')
        names = list(map(str, names))
        if len(set(names)) < len(names):
            raise DataError(f'{path}: "{key}" must hold different names, got {names!r:.80}')
    rate = content.get("sample_rate", Meta.sample_rate)
    try:
        return Meta(names, check_rate(int(rate) if isinstance(rate, float) and rate.is_integer() else rate))
    except ValueError as error:
        raise DataError(f'{path}: "sample_rate": {error}') from None


def _array_names(path: Path) -> list[str]:
    """The arrays in a .npz file, which is a zip archive of .npy files."""
    try:
        return [name.removesuffix(".npy") for name in archive_names(path) if name.endswith(".npy")]
    except DataError:
        raise
    except Exception as error:  # a damaged archive can make zipfile raise anything
        raise _unreadable(path, error) from None


def _read_arrays(path: Path, kind: Kind) -> dict[str, Any]:
    """Read the arrays of a kind. Pickled objects are never loaded."""
    import numpy as np

    present = _array_names(path)
    if missing := [name for name in kind.arrays if name not in present]:
        raise DataError(
            f"{path}: expected the arrays {', '.join(kind.arrays)}; {', '.join(missing)} is missing, "
            f"there are {', '.join(present[:20]) or 'none'}"
        )
    names = [name for name in (*kind.arrays, *kind.optional_arrays) if name in present]
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: np.asarray(archive[name]) for name in names}
    except Exception as error:  # damaged bytes can make zipfile, zlib or numpy raise anything
        raise _unreadable(path, error) from None


def _unreadable(path: Path, error: Exception) -> DataError:
    advice = "write it with numpy.savez, without object arrays"
    return DataError(f"{path}: not to be read as arrays: {reason(error)}; {advice}")


def _read_samples(path: Path, kind: Kind, meta: Meta) -> list[Sample]:
    arrays = _read_arrays(path, kind)
    samples = kind.read_arrays(arrays, meta.sample_rate, path)
    fields = {"label": _labels(arrays["labels"], meta.label_names, path)}
    if "names" in arrays:
        fields["name"] = _strings(arrays["names"], "names", path)
    for field, values in fields.items():
        if len(values) != len(samples):
            raise DataError(f"{path}: {len(samples)} samples, but {len(values)} {field}s")
        for sample, value in zip(samples, values, strict=True):
            sample[field] = value
    return samples


def _labels(labels: Any, names: list[str] | None, path: Path) -> list[str]:
    """Labels are strings, or numbers; these are indices of the names in meta.json, if it has any."""
    import numpy as np

    if labels.ndim == 1 and labels.dtype.type in (np.str_, np.bytes_):
        return _strings(labels, "labels", path)
    if labels.ndim != 1 or not (labels.dtype == bool or np.issubdtype(labels.dtype, np.integer)):
        form = f"{labels.dtype} {labels.shape}"
        raise DataError(f"{path}: labels must be one row of whole numbers or words, got {form}")
    numbers = labels.tolist()
    if names is None:
        return [str(number) for number in numbers]
    for i, number in enumerate(numbers):
        if not 0 <= number < len(names):
            label = f"label {number} of sample {i}"
            raise DataError(f"{path}: {label} has no name in meta.json, which has {len(names)}")
    return [names[number] for number in numbers]


def _strings(array: Any, what: str, path: Path) -> list[str]:
    import numpy as np

    if array.ndim != 1 or array.dtype.type not in (np.str_, np.bytes_):
        raise DataError(f"{path}: {what} must be one row of words, got {array.dtype} {array.shape}")
    try:
        words = [word.decode() if isinstance(word, bytes) else word for word in array.tolist()]
    except ValueError as error:  # not UTF-8, or not Unicode
        raise DataError(f"{path}: {what} must be words: {reason(error)}") from None
    return [check_text(word, f"{path}: {what}, sample {i}") for i, word in enumerate(words)]
