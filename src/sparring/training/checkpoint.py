"""Checkpoints that are whole or not there: written beside, then renamed; and the state of every random number generator."""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path
from typing import Any

import torch

NAME, PREVIOUS = "checkpoint.pt", "checkpoint-previous.pt"


def save(folder: Path, state: dict[str, Any]) -> None:
    """At every moment, a kill included, ``load`` finds this state or the one before."""
    folder.mkdir(parents=True, exist_ok=True)
    beside = folder / f"{NAME}.{os.getpid()}.part"
    try:
        with beside.open("wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
    except BaseException as error:
        beside.unlink(missing_ok=True)
        if isinstance(error, RuntimeError):  # torch's zip writer says so of a full disk, and hides an interrupt
            raise error.__context__ if isinstance(error.__context__, KeyboardInterrupt) else OSError(f"{folder}: {error}") from None
        raise
    if (folder / NAME).exists():
        os.replace(folder / NAME, folder / PREVIOUS)
    os.replace(beside, folder / NAME)


def load(folder: Path) -> dict[str, Any] | None:
    """The last good checkpoint, None where there is none."""
    errors = []
    for path in (folder / NAME, folder / PREVIOUS):
        if path.exists():
            try:
                return torch.load(path, map_location="cpu", weights_only=True)  # type: ignore[no-any-return]
            except Exception as error:  # a damaged file: whatever reading it raises
                errors.append(f"{path}: {error}")
    if errors:
        raise ValueError("no checkpoint could be read; move them away to start anew. " + "; ".join(errors))
    return None


def random_state() -> dict[str, Any]:
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
