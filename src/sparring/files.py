"""Files that are complete or absent: written beside and renamed, swept after a kill, verified by SHA-256."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

PART = re.compile(r".+\.(\d+)\.part")  # NAME.PID.part: a file that process PID is writing
BLOCK = 1 << 20


class CheckpointWarning(UserWarning):
    """Something a user should know of a checkpoint: it is damaged and was left for the one before it, say."""


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Yield the path to write to. It is renamed to ``path`` at the end, and removed if the block raises."""
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        yield part
        os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def sweep(folder: Path, name: str | None = None, *, running: bool = False) -> None:
    """Remove the ``*.PID.part`` files in a folder that killed processes left.

    Args:
        folder: Where to look. Folders below it are left alone.
        name: Remove only parts of the file with this name.
        running: Also remove parts of processes that are running. Only for a caller that holds the folder's
            lock: a process with this number is then another one, which got the number of the dead one.
    """
    if not folder.is_dir():
        return
    for path in folder.iterdir():
        match = PART.fullmatch(path.name)
        if match is None or (name is not None and path.name != f"{name}.{match[1]}.part"):
            continue
        if running or not is_running(int(match[1])):
            path.unlink(missing_ok=True)


def is_running(pid: int) -> bool:
    """Whether a process other than this one has this number."""
    if pid == os.getpid():
        return False  # containers give each process the same number; this one writes nothing when it sweeps
    if os.name != "posix":
        return True  # there, signal 0 would end the process
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:  # somebody else's process
        return True
    return True


def file_digest(path: Path) -> str:
    """SHA-256 of a file's content."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        for block in iter(lambda: file.read(BLOCK), b""):
            digest.update(block)
    return digest.hexdigest()


def file_names(folder: Path) -> list[str]:
    """All files below a folder, by their path in it."""
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def changed_file(folder: Path, digests: Mapping[str, str]) -> str | None:
    """Say which file is not as it was when its digest was taken; None if all are."""
    for name, digest in digests.items():
        if "\0" in name or Path(name).is_absolute() or ".." in Path(name).parts:
            return f"{name!r} is not the name of a file in it"
        try:
            if not (folder / name).is_file():  # nothing to wait for: not a pipe, not a device
                return f"{name} is missing, or no regular file"
            if file_digest(folder / name) != digest:
                return f"{name} has changed since it was written"
        except OSError as error:
            return f"{name} cannot be read ({error.strerror})"
    return None
