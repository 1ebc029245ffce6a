"""Images and sounds on disk: folders with a class a folder, or arrays (npz.py). What cannot be read is named and counted.

root/class/name.png                          dev and test are split off
root/train/class/name.wav, root/test/…       parts as given
root/train.npz, dev.npz, test.npz, meta.json arrays: images and labels, or audio, offsets and labels
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from sparring.lab.kinds import Kind, list_kinds
from sparring.lab.readers.hub import SPLIT_NAMES
from sparring.lab.readers.npz import kind_of_npz, read_npz
from sparring.lab.readers.published import Noted
from sparring.lab.task import DataError, Sample, Splits
from sparring.lab.untrusted import check_text, printable, reason

NAMED = 5  # unreadable files that are named


def kind_of(folder: Path) -> Kind | None:
    """Whether a folder holds images or sounds: by the arrays in it, or by the endings of the files below it."""
    if (folder / "train.npz").is_file():
        return kind_of_npz(folder / "train.npz")
    kinds = {ending: candidate for candidate in list_kinds() for ending in candidate.endings}
    return next((kinds[path.suffix.lower()] for path in _files(folder) if path.suffix.lower() in kinds), None)


def read_folder(folder: Path, kind: Kind, side: int | None = None) -> Noted:
    """The splits there are, and what to know of them."""
    if (folder / "train.npz").is_file():
        return read_npz(folder, kind)
    parts = {
        part: found
        for part, names in SPLIT_NAMES.items()
        for found in [_one_of(folder, names)]
        if found is not None
    }
    roots = parts if "train" in parts else {"train": folder}
    splits: Splits = {}
    bad: list[str] = []
    for part, root in roots.items():
        splits[part] = list(_samples(root, kind, side, bad))
    if not splits["train"]:
        raise DataError(
            f"{folder}: no readable {kind} below it; expected a folder for each class, "
            f"such as {folder.name}/cat/1{kind.endings[0]}"
            + (f"; left out: {'; '.join(bad[:NAMED])}" if bad else "")
        )
    notes = [
        f"{sum(map(len, splits.values()))} files in {len({s['label'] for s in splits['train']})} folders, a class each"
    ]
    notes += kind.file_notes(side)
    if bad:
        more = f" and {len(bad) - NAMED} more" if len(bad) > NAMED else ""
        notes.append(f"{len(bad)} file(s) could not be read and are left out: {'; '.join(bad[:NAMED])}{more}")
    return Noted({part: samples for part, samples in splits.items() if samples}, tuple(notes))


def _one_of(folder: Path, names: Sequence[str]) -> Path | None:
    return next((folder / name for name in names if (folder / name).is_dir()), None)


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.is_file() and not path.name.startswith("."))


def _samples(root: Path, kind: Kind, side: int | None, bad: list[str]) -> Iterator[Sample]:
    """``root/class/…/name``: the folder right below the root is the class."""
    for path in _files(root):
        below = path.relative_to(root)
        if path.suffix.lower() not in kind.endings or len(below.parts) < 2:
            continue
        try:
            check_text(str(below), "its name")
            sample = kind.read_file(path, side)
        except Exception as error:  # whatever a damaged file makes a decoder raise
            bad.append(printable(f"{below} ({reason(error, 60)})"))
            continue
        yield {**sample, "label": below.parts[0], "name": str(below)}
