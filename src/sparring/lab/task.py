"""Tasks: named data sets, each with three splits of samples of one kind.

A sample is a dict with the fields of its kind, as one line of JSONL holds it. A task is a function that
loads the splits. `register` lists it, so that one file under ``datasets/`` is enough for the command line,
tests and report.
"""

from __future__ import annotations

import dataclasses
import difflib
import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import Tensor

from sparring.lab.errors import DataError as DataError  # loaders import everything from here
from sparring.lab.errors import MissingDataError
from sparring.lab.errors import UserError as UserError
from sparring.lab.kinds import Kind, get_kind
from sparring.lab.kinds.encoder import Encoder
from sparring.lab.kinds.encoder import Sample as Sample
from sparring.lab.models.settings import Model, ModelOptions
from sparring.lab.untrusted import check_text, reason

Splits = dict[str, list[Sample]]  # by "train", "dev", "test"
SPLITS = ("train", "dev", "test")


@dataclass(frozen=True)
class Data:
    """The samples of a task."""

    kind: Kind
    train: list[Sample]
    dev: list[Sample]
    test: list[Sample]
    source: str  # the folder, package or name on the hub that they come from
    notes: tuple[str, ...] = ()  # what a reader of results should know about them

    @cached_property
    def labels(self) -> list[str]:
        """The classes, sorted; empty if they are the tokenizer's."""
        return self.kind.collect_labels(self.train, self.dev, self.test)

    @cached_property
    def fingerprint(self) -> str:
        """A digest of all samples: changed data has another one."""
        digest = hashlib.sha256()
        for split in (self.train, self.dev, self.test):
            digest.update(f"{len(split)};".encode())
            for sample in split:
                digest.update(json.dumps(plain(sample), sort_keys=True).encode())
                for value in sample.values():
                    if isinstance(value, Tensor):
                        digest.update(value.numpy().tobytes())
        return digest.hexdigest()

    def build_model(self, name: str, options: ModelOptions | None = None) -> Model:
        """A model for these samples; see `Kind.build_model`."""
        return self.kind.build_model(name, self.train, self.labels, options)

    def encoder(self, processor: Any, max_length: int | None = None, **settings: Any) -> Encoder:
        """An encoder for these samples; see `Kind.encoder`."""
        return self.kind.encoder(self.labels, processor, max_length, **settings)


def plain(sample: Sample) -> Sample:
    """A sample without its images or sounds, so that it can be written as JSON."""
    return {name: value for name, value in sample.items() if not isinstance(value, Tensor)}


@dataclass(frozen=True)
class Where:
    """Where to look for data."""

    data_dir: Path | None = None  # holds one folder per task
    hub: bool = True  # whether the Hugging Face hub may be used

    @classmethod
    def default(cls, data_dir: str | Path | None = None) -> Where:
        """The given folder, or ``$SPARRING_DATA``; no hub if ``HF_HUB_OFFLINE`` is set."""
        folder = data_dir or os.environ.get("SPARRING_DATA")
        check_text(str(folder or ""), "the folder of data sets (--data-dir or SPARRING_DATA)")
        offline = os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE")
        return cls(Path(folder).expanduser() if folder else None, hub=not offline)


@dataclass(frozen=True)
class Task:
    """A data set by name."""

    name: str
    kind: Kind
    about: str
    load: Callable[[Where], Data]
    metric: str  # selects models; one of the kind's
    home: str  # where the data comes from
    sizes: tuple[int, ...] = ()  # published sizes of train, dev and test
    aliases: tuple[str, ...] = ()  # other names, such as that of its folder
    embedded: bool = False  # a package holds the data, so that no file is needed
    top_k: int | None = None  # multi-label: predict the k largest logits; None: every logit above 0
    max_length: int = 128  # largest number of tokens of a text, for usual tokenizers
    settings: Mapping[str, Any] = field(default_factory=dict)  # defaults of runs on this task


_TASKS: dict[str, Task] = {}


def register(name: str, **facts: Any) -> Callable[[Callable[[Where], Data]], Callable[[Where], Data]]:
    """Decorator of a loader: list it as a task.

    Args:
        name: The name of the task.
        facts: The other attributes of `Task`; ``kind`` may be a name.

    Example:
        >>> @register("mine", kind="multi-class", about="…", metric="accuracy", home="…")  # doctest: +SKIP
        ... def load(where: Where) -> Data:
        ...     return load_published(where, "multi-class", ["mine"], original)
    """

    def bind(load: Callable[[Where], Data]) -> Callable[[Where], Data]:
        try:
            kind = get_kind(facts["kind"])
        except ValueError as error:
            raise ValueError(f'task "{name}": {error}') from None
        _TASKS[name] = Task(name=name, load=load, **{**facts, "kind": kind})
        return load

    return bind


def list_tasks() -> list[Task]:
    """All tasks, sorted by name."""
    return [_TASKS[name] for name in sorted(_TASKS)]


def known(name: str) -> bool:
    """Whether there is a task of this name or alias."""
    return any(name in (task.name, *task.aliases) for task in _TASKS.values())


def get_task(name: str) -> Task:
    """The task of a name or alias.

    Raises:
        UserError: There is no such task.
    """
    for task in _TASKS.values():
        if name in (task.name, *task.aliases):
            return task
    spellings = {existing.replace("_", "-"): existing for existing in _TASKS}
    similar = difflib.get_close_matches(name.lower().replace("_", "-"), spellings, n=1)
    hint = f'; did you mean "{spellings[similar[0]]}"?' if similar else "."
    raise UserError(f'no task named "{name}"{hint} Known: {", ".join(sorted(_TASKS))}')


def survey(tasks: Sequence[Task], where: Where) -> list[dict[str, Any]]:
    """For each task whether its data is here, without the hub; its sizes, or the published ones."""
    rows = []
    for task in tasks:
        row: dict[str, Any] = {
            "name": task.name,
            "kind": task.kind.name,
            "about": task.about,
            "home": task.home,
            "notes": [],
            "here": False,
            "sizes": list(task.sizes) or None,
            "classes": None,
        }
        try:
            data = task.load(dataclasses.replace(where, hub=False))
            row["here"] = True
            row["sizes"] = [len(data.train), len(data.dev), len(data.test)]
            row["classes"] = len(data.labels) or None
            row["where"] = data.source
            row["notes"] = list(data.notes)
        except Exception as error:  # one broken folder must not hide the other tasks
            row["error"] = (
                str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {reason(error)}"
            )
            missing = isinstance(error, MissingDataError)
            row["where"] = "not here" if missing else f"broken: {row['error']}"
        rows.append(row)
    return rows
