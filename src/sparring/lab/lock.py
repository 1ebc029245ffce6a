"""The lock of a run folder, so that one process at a time writes to it."""

import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from sparring.files import sweep
from sparring.lab.errors import UserError, option

try:
    import fcntl
except ImportError:  # Windows: no lock
    fcntl = None  # type: ignore[assignment]

NAME = "lock"


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """Hold the lock of a run folder. The folder is created, and parts of files that a kill left are removed.

    The operating system releases the lock when its process ends or is killed. In a distributed run, the first
    process holds the lock for all.
    """
    if fcntl is None or os.environ.get("RANK", "0") != "0":
        yield
        return
    file = _take(path)
    try:
        sweep(path, running=True)
        yield
    finally:
        if _is_file_at(
            file, path / NAME
        ):  # not a lock that another process created after this one was removed
            (path / NAME).unlink()
        file.close()


def _take(path: Path) -> IO[Any]:
    """Open and lock the file. Its holder removes it, so a lock is valid only while the file is in place."""
    while True:
        try:
            path.mkdir(parents=True, exist_ok=True)
            file = (path / NAME).open("a")
        except (FileNotFoundError, FileExistsError):
            if _is_no_folder(path):
                raise
            continue  # another process removed the folder in between
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            advice = f"wait for it, or use another {option('out')}"
            raise UserError(f"{path}: another process is at work on this run; {advice}") from None
        except BaseException:
            file.close()
            raise
        if _is_file_at(file, path / NAME):
            return file
        file.close()


def _is_no_folder(path: Path) -> bool:
    """Whether something else is there. One look: another process may remove the folder at any time."""
    try:
        return not stat.S_ISDIR(path.stat().st_mode)
    except FileNotFoundError:
        return False


def _is_file_at(file: IO[Any], path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def remove(path: Path) -> None:
    """Delete a folder that no other process is writing to. The lock is removed last."""
    with alone(path):
        for child in sorted(
            path.iterdir(), key=lambda child: child.name != "summary.json"
        ):  # first, since it means "done"
            if child.name == NAME:
                continue
            if child.is_dir() and not child.is_symlink():
                shutil.rmtree(child)
            else:
                child.unlink()
    with suppress(OSError):  # another process has started a run in it
        path.rmdir()
