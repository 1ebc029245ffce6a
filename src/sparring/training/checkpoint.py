"""Checkpoint files that are complete and verified or absent, and the state of all random number generators.

A checkpoint is the output of ``torch.save``, followed by one line with its SHA-256. Both are in one file,
so a kill cannot separate them. A file without that line is refused: otherwise one flipped bit in the line
would turn the verification off.
"""

from __future__ import annotations

import errno
import hashlib
import io
import mmap
import os
import pickle
import random
import sys
import warnings
from pathlib import Path
from typing import Any

import torch

from sparring.files import CheckpointWarning, atomic_write, sweep

NAME = "checkpoint.pt"
PREVIOUS = "checkpoint-previous.pt"
DAMAGED = "checkpoint-damaged.pt"
MARK = b"\nsparring-checkpoint sha256:"
TRAILER_SIZE = len(MARK) + 64 + 1  # the mark, the digest in hexadecimal, a line end


class _HashingFile(io.RawIOBase):
    """A file that hashes what is written to it."""

    def __init__(self, file: Any) -> None:
        self.file = file
        self.digest = hashlib.sha256()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.digest.update(data)
        return int(self.file.write(data))


def save(folder: Path, state: dict[str, Any]) -> None:
    """Write a checkpoint. Whenever the process is killed, ``load`` finds this state or the one before.

    The folder must exist: one that was deleted during a run is an error, and is not created again.
    """
    try:
        with atomic_write(folder / NAME) as part:
            write(part, state)
            if (folder / NAME).exists():
                os.replace(folder / NAME, folder / PREVIOUS)
    except FileNotFoundError:
        reason = "the folder was removed while its run was under way"
        raise FileNotFoundError(errno.ENOENT, reason, str(folder)) from None
    except RuntimeError as error:  # torch's zip writer raises it for a full disk, and hides an interrupt
        if isinstance(error.__context__, KeyboardInterrupt):
            raise error.__context__ from None
        raise OSError(f"{folder}: {error}") from None


def write(path: Path, state: dict[str, Any]) -> None:
    """Write a state and its checksum to a file."""
    with path.open("wb") as file:
        hashing = _HashingFile(file)
        torch.save(state, hashing)  # type: ignore[arg-type]
        file.write(MARK + hashing.digest.hexdigest().encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


def read(path: Path) -> Any:
    """Read a state. Raises ValueError for a file that is damaged or of another program."""
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size - TRAILER_SIZE
        if size < 1:
            raise ValueError(f"{path}: too short, so it is damaged or no checkpoint of this program")
        file.seek(size)
        trailer = file.read()
        if not trailer.startswith(MARK):
            problem = "no checksum at its end, so it is damaged, of an earlier version or of another program"
            raise ValueError(f"{path}: {problem}")
        with mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) as payload:  # no copy in memory
            if trailer != MARK + hashlib.sha256(payload).hexdigest().encode() + b"\n":
                raise ValueError(f"{path}: damaged, it does not have the checksum it was written with")
            try:
                return torch.load(payload, map_location="cpu", weights_only=True)  # type: ignore[arg-type]
            except pickle.UnpicklingError:
                raise ValueError(
                    f"{path}: it holds more than tensors and plain values; nothing of it was run"
                ) from None
            except Exception as error:  # torch raises many types for a file that `write` did not write
                raise ValueError(f"{path}: cannot be read: {' '.join(str(error).split())[:200]}") from None


def load(folder: Path) -> tuple[str, Any] | None:
    """The file name and the state of the last good checkpoint; None where there is no file.

    A damaged checkpoint is renamed to ``checkpoint-damaged.pt``, so that the next `save` does not replace
    the good one with it, and the one before is loaded, with a `CheckpointWarning`. Raises ValueError if
    none is good.
    """
    sweep(folder, NAME)
    errors: list[str] = []
    for name in (NAME, PREVIOUS):
        try:
            state = read(folder / name)
        except FileNotFoundError:
            continue
        except (OSError, ValueError) as error:
            errors.append(str(error))
            continue
        if errors:
            message = f"{errors[0]}; the run goes on from {name}, the one before"
            warnings.warn(message, CheckpointWarning, stacklevel=2)
            os.replace(folder / NAME, folder / DAMAGED)
        return name, state
    if errors:
        raise ValueError("no checkpoint can be read: " + "; ".join(errors))
    return None


def remove(folder: Path) -> None:
    """Delete all checkpoints in a folder."""
    for name in (NAME, PREVIOUS, DAMAGED):
        (folder / name).unlink(missing_ok=True)
    sweep(folder, NAME)


def random_state() -> dict[str, Any]:
    """The state of the generators of Python, torch and NumPy."""
    state: dict[str, Any] = {"python": random.getstate(), "torch": torch.get_rng_state()}
    if torch.cuda.is_available():
        state["cuda"] = torch.cuda.get_rng_state_all()
    if "numpy" in sys.modules:
        name, keys, *rest = sys.modules["numpy"].random.get_state()
        state["numpy"] = (name, keys.tolist(), *rest)
    return state


def set_random_state(state: dict[str, Any]) -> None:
    random.setstate(state["python"])
    torch.set_rng_state(state["torch"])
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state_all(state["cuda"])
    if "numpy" in state:
        import numpy

        numpy.random.set_state(state["numpy"])
