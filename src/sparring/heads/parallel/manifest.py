"""Checksums of a checkpoint folder, in a manifest beside its files. All ranks call these functions together.

All get the same answer. Each rank hashes its share of the files, so a large checkpoint takes as long as the
largest share.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import torch.distributed as dist

from sparring.files import changed_file, file_digest, file_names
from sparring.heads.parallel.collectives import is_initialized

NAME = "manifest.json"
T = TypeVar("T")


def write(folder: Path) -> None:
    """Write the manifest of a folder that every rank has finished writing to."""
    names = _first(lambda: [name for name in file_names(folder) if name != NAME])
    shares = _gather({name: file_digest(folder / name) for name in _share(names)})
    if _rank() == 0:
        digests = {name: digest for share in shares for name, digest in share.items()}
        (folder / NAME).write_text(_text(digests), encoding="utf-8")  # the folder is renamed when it is whole


def verify(folder: Path) -> str | None:
    """Say what is wrong with a folder; None if every file is as it was written."""
    digests, problem = _first(lambda: _read(folder))
    if problem is not None:
        return str(problem)
    mine = changed_file(folder, {name: digests[name] for name in _share(sorted(digests))})
    return next((problem for problem in _gather(mine) if problem is not None), None)


def _read(folder: Path) -> tuple[dict[str, str], str | None]:
    """The digests by file name, and what is wrong with them."""
    try:
        text = (folder / NAME).read_text(encoding="utf-8")
        digests = json.loads(text)["sha256"]
        damaged = text != _text(digests) or not all(isinstance(digest, str) for digest in digests.values())
    except FileNotFoundError:
        return {}, f"it has no {NAME}, so nothing can be verified"
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        damaged = True
    if damaged:
        return {}, f"{NAME} is damaged"
    further = [name for name in file_names(folder) if name != NAME and name not in digests]
    return digests, f"{further[0]} is not in its {NAME}" if further else None


def _text(digests: dict[str, str]) -> str:
    return json.dumps({"sha256": digests}, indent=1, sort_keys=True) + "\n"


def _rank() -> int:
    return dist.get_rank() if is_initialized() else 0


def _share(names: list[str]) -> list[str]:
    return names[_rank() :: dist.get_world_size()] if is_initialized() else names


def _first(value: Callable[[], T]) -> T:
    """What the first rank finds."""
    box: list[Any] = [value() if _rank() == 0 else None]
    if is_initialized():
        dist.broadcast_object_list(box, 0)
    return box[0]  # type: ignore[no-any-return]


def _gather(value: T) -> list[T]:
    """What each rank finds."""
    if not is_initialized():
        return [value]
    values: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(values, value)
    return values
