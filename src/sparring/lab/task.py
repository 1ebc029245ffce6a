"""Tasks: named data sets, each with three splits of samples of one kind.

A sample is a dict with the fields of its kind, as one line of JSONL holds it. A task is a function that loads the
splits. `register` lists it, so that one file under ``datasets/`` is enough for the command line, tests and report.
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
    """The samples of a task.

    Attributes:
        kind: The kind of the samples.
        train, dev, test: The splits.
        source: The folder, package or name on the hub that they come from.
        notes: What a reader of results should know about them.
    """

    kind: Kind
    train: list[Sample]
    dev: list[Sample]
    test: list[Sample]
    source: str
    notes: tuple[str, ...] = ()

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
    """Where to look for data: a folder that holds one folder per task, and whether the hub may be asked."""

    data_dir: Path | None = None
    hub: bool = True

    @classmethod
    def default(cls, data_dir: str | Path | None = None) -> Where:
        """The folder given, else ``$SPARRING_DATA``; no hub where ``HF_HUB_OFFLINE`` is set."""
        folder = data_dir or os.environ.get("SPARRING_DATA")
        check_text(str(folder or ""), "the folder of data sets (--data-dir or SPARRING_DATA)")
        return cls(
            Path(folder).expanduser() if folder else None,
            os.environ.get("HF_HUB_OFFLINE", "").upper() not in ("1", "ON", "YES", "TRUE"),
        )


@dataclass(frozen=True)
class Task:
    """A data set by name."""

    name: str
    kind: Kind
    about: str
    load: Callable[[Where], Data]
    metric: str  # the figure that decides, one of the kind's metrics
    home: str  # where the data comes from
    sizes: tuple[int, ...] = ()  # train, dev, test as published
    aliases: tuple[str, ...] = ()  # other names it goes by: its folder's, where that differs
    embedded: bool = False  # comes with a package, no file needed
    top_k: int | None = None  # multi-label: predict the k largest; None: every logit above 0
    max_length: int = 128
    settings: Mapping[str, Any] = field(default_factory=dict)  # defaults of the run that are this task's own


_TASKS: dict[str, Task] = {}


def register(name: str, **facts: Any) -> Callable[[Callable[[Where], Data]], Callable[[Where], Data]]:
    """Decorator of a loader: list it as a task."""

    def bind(load: Callable[[Where], Data]) -> Callable[[Where], Data]:
        try:
            kind = get_kind(facts["kind"])
        except ValueError as error:
            raise ValueError(f'task "{name}": {error}') from None
        _TASKS[name] = Task(name=name, load=load, **{**facts, "kind": kind})
        return load

    return bind


def list_tasks() -> list[Task]:
    return [_TASKS[name] for name in sorted(_TASKS)]


def known(name: str) -> bool:
    return any(name in (task.name, *task.aliases) for task in _TASKS.values())


def get_task(name: str) -> Task:
    for task in _TASKS.values():
        if name in (task.name, *task.aliases):
            return task
    plain = {known.replace("_", "-"): known for known in _TASKS}
    near = difflib.get_close_matches(name.lower().replace("_", "-"), plain, n=1)
    hint = f'; did you mean "{plain[near[0]]}"?' if near else "."
    raise UserError(f'no task named "{name}"{hint} Known: {", ".join(sorted(_TASKS))}')


def survey(tasks: Sequence[Task], where: Where) -> list[dict[str, Any]]:
    """For each task whether it is here, without asking the hub: real sizes where it is, published ones where not."""
    rows = []
    for task in tasks:
        row: dict[str, Any] = {
            "name": task.name,
            "kind": task.kind.name,
            "about": task.about,
            "home": task.home,
            "notes": [],
        }
        try:
            data = task.load(dataclasses.replace(where, hub=False))
            sizes = [len(data.train), len(data.dev), len(data.test)]
            row |= {
                "here": True,
                "sizes": sizes,
                "classes": len(data.labels) or None,
                "where": data.source,
                "notes": list(data.notes),
            }
        except Exception as error:  # one broken folder must not hide the other tasks
            said = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {reason(error)}"
            why = "not here" if isinstance(error, MissingDataError) else f"broken: {said}"
            row |= {
                "here": False,
                "sizes": list(task.sizes) or None,
                "classes": None,
                "where": why,
                "error": said,
            }
        rows.append(row)
    return rows
