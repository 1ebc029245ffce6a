"""Read folders of images or sounds: a folder for each class, or arrays (npz.py).

root/class/name.png                           dev and test are split off
root/train/class/name.wav, root/test/…        splits as they are
root/train.npz, dev.npz, test.npz, meta.json  images and labels, or audio, offsets and labels
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sparring.lab.kinds import Kind, list_kinds
from sparring.lab.readers.hub import SPLIT_NAMES
from sparring.lab.readers.npz import kind_of_npz, read_npz
from sparring.lab.readers.published import NotedSplits
from sparring.lab.task import DataError, Sample
from sparring.lab.untrusted import check_text, printable, reason

MAX_NAMED = 5  # unreadable files that a note names


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

    def notes(self) -> tuple[str, ...]:
        """A note that names the files, if there are any."""
        if not self.problems:
            return ()
        n_more = len(self.problems) - MAX_NAMED
        names = "; ".join(self.problems[:MAX_NAMED]) + (f" and {n_more} more" if n_more > 0 else "")
        return (f"{len(self.problems)} file(s) could not be read and are left out: {names}",)


def kind_of(folder: Path) -> Kind | None:
    """The kind of the arrays in a folder or of the files below it; None if there are neither."""
    if (folder / "train.npz").is_file():
        return kind_of_npz(folder / "train.npz")
    kinds = {ending: candidate for candidate in list_kinds() for ending in candidate.endings}
    return next((kinds[path.suffix.lower()] for path in _files(folder) if path.suffix.lower() in kinds), None)


def read_folder(folder: Path, kind: Kind, image_size: int | None = None) -> NotedSplits:
    """Read the splits of a folder; files that cannot be read are left out and named in a note."""
    if (folder / "train.npz").is_file():
        return read_npz(folder, kind)
    paths = [(split, folder / name) for split, names in SPLIT_NAMES.items() for name in reversed(names)]
    roots = {split: path for split, path in paths if path.is_dir()}
    if "train" not in roots:
        roots = {"train": folder}
    unreadable = UnreadableFiles()
    splits = {split: _read_samples(root, kind, image_size, unreadable) for split, root in roots.items()}
    if not splits["train"]:
        raise DataError(
            f"{folder}: no readable {kind} below it; expected a folder for each class, "
            f"such as {folder.name}/cat/1{kind.endings[0]}"
            + "".join(f"; {note}" for note in unreadable.notes())
        )
    n_files = sum(map(len, splits.values()))
    n_classes = len({sample["label"] for sample in splits["train"]})
    notes = [f"{n_files} files in {n_classes} folders, a class each", *kind.file_notes(image_size)]
    present = {split: samples for split, samples in splits.items() if samples}
    return NotedSplits(present, (*notes, *unreadable.notes()))


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.is_file() and not path.name.startswith("."))


def _read_samples(
    root: Path, kind: Kind, image_size: int | None, unreadable: UnreadableFiles
) -> list[Sample]:
    """Read ``root/class/…/name``: the folder right below the root is the class."""
    samples = []
    for path in _files(root):
        name = path.relative_to(root)
        if path.suffix.lower() in kind.endings and len(name.parts) > 1:
            with unreadable.skipping(str(name)):
                check_text(str(name), "its name")
                sample = kind.read_file(path, image_size)
                samples.append({**sample, "label": name.parts[0], "name": str(name)})
    return samples
