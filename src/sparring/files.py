"""Files that are complete or absent: written under another name and renamed, verified by SHA-256."""

import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

PART = re.compile(r".+\.(\d+)\.part")  # NAME.PID.part: a file that process PID is writing


class CheckpointWarning(UserWarning):
    """A problem of a checkpoint that a user should know, such as a damaged file that was not used."""


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


def write_text(path: Path, text: str) -> None:
    """Write a text file, and create its folder. The file is complete or absent, also after a kill."""
    path.parent.mkdir(parents=True, exist_ok=True)
    sweep(path.parent, path.name)
    with atomic_write(path) as part:
        part.write_text(text, encoding="utf-8")


def sweep(folder: Path, name: str | None = None, *, running: bool = False) -> None:
    """Remove the ``*.PID.part`` files that killed processes left in a folder.

    Args:
        folder: Where to look. Folders below it are not changed.
        name: Remove only parts of the file with this name.
        running: Also remove parts whose process number is in use. Only for a caller that holds the folder's
            lock: the number then belongs to another process than the one that wrote the part.
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
        return False  # in containers, each process has the same number; this one is not writing now
    if os.name != "posix":
        return True  # signal 0 would end the process
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:  # a process of another user
        return True
    return True


def file_digest(path: Path) -> str:
    """SHA-256 of a file's content."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def file_names(folder: Path) -> list[str]:
    """The paths of all files below a folder, relative to it."""
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def changed_file(folder: Path, digests: Mapping[str, str]) -> str | None:
    """Describe the first file whose content does not have the digest, or return None."""
    for name, digest in digests.items():
        if "\0" in name or Path(name).is_absolute() or ".." in Path(name).parts:
            return f"{name!r} is not the name of a file in it"
        try:
            if not (folder / name).is_file():  # reading a pipe or a device could block
                return f"{name} is missing, or not a regular file"
            if file_digest(folder / name) != digest:
                return f"{name} has changed since it was written"
        except OSError as error:
            return f"{name} cannot be read ({error.strerror})"
    return None
