"""What a task is: three lists of samples of one kind, where they come from, and the figure that decides.

A sample is a plain dict in the form of its kind, as one line of JSONL holds it. A task is a function that loads them, registered:
one file under ``tasks/`` is enough for the command line, the tests and the report to see it.
"""

from __future__ import annotations

import dataclasses
import difflib
import hashlib
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import Tensor

from sparring.lab.errors import DataError as DataError  # the loaders take everything from here
from sparring.lab.errors import MissingDataError
from sparring.lab.errors import UserError as UserError
from sparring.lab.untrusted import check_text, reason
from sparring.losses import list_losses

Sample = dict[str, Any]
Splits = dict[str, list[Sample]]  # by "train", "dev", "test"
SPLITS = ("train", "dev", "test")


@dataclass(frozen=True)
class Kind:
    """One way of classifying: the fields of its samples, and whether a row has one label or any number."""

    name: str
    fields: tuple[str, ...]
    multilabel: bool = False

    @property
    def losses(self) -> list[str]:
        """The losses that fit."""
        return [name for name in list_losses() if name.startswith("multilabel-") == self.multilabel]


KINDS = {
    kind.name: kind
    for kind in (
        Kind("multi-class", ("text", "label")),
        Kind("pair", ("text", "text_b", "label")),
        Kind("token", ("tokens", "tags")),
        Kind("spelling", ("source", "target")),
        Kind("multi-label", ("text", "labels"), multilabel=True),
        Kind("image", ("image", "label")),
        Kind("audio", ("audio", "label")),
        Kind("generation", ("source", "target")),
    )
}

TO_TEXT = ("spelling", "generation")  # a text becomes another: no labels


@dataclass(frozen=True)
class Data:
    """What a task loads."""

    kind: str
    train: list[Sample]
    dev: list[Sample]
    test: list[Sample]
    source: str  # a folder, a package or a name on the hub
    notes: tuple[str, ...] = ()  # what a reader of the numbers should know

    @cached_property
    def labels(self) -> list[str]:
        """The classes, sorted. Spelling: the characters of the training sentences, as in the paper. Generation: none, its classes are
        the tokenizer's."""
        if self.kind == "generation":
            return []
        if self.kind == "spelling":
            return sorted(
                {character for sample in self.train for character in sample["source"] + sample["target"]}
            )
        return sorted(
            {
                label
                for part in (self.train, self.dev, self.test)
                for sample in part
                for label in labels_of(self.kind, sample)
            }
        )

    @cached_property
    def fingerprint(self) -> str:
        """Of the samples themselves: an edited file is other data."""
        digest = hashlib.sha256()
        for part in (self.train, self.dev, self.test):
            digest.update(f"{len(part)};".encode())
            for sample in part:
                arrays = [value for value in sample.values() if isinstance(value, Tensor)]
                digest.update(json.dumps(plain(sample), sort_keys=True).encode())
                for array in arrays:
                    digest.update(array.numpy().tobytes())
        return digest.hexdigest()


def plain(sample: Sample) -> Sample:
    """What can be written as JSON: a sample without its pixels or sounds."""
    return {name: value for name, value in sample.items() if not isinstance(value, Tensor)}


def has_spans(labels: Sequence[str]) -> bool:
    """Whether tags mark spans: O and B-, I-, E-, S- and the like.

    >>> has_spans(["B-PER", "I-PER", "O"]), has_spans(["de", "fr"])
    (True, False)
    """
    return any(label != "O" for label in labels) and all(
        label == "O" or re.match(r"[BIESLU]-.", label) for label in labels
    )


def labels_of(kind: str, sample: Sample) -> list[str]:
    return list(
        sample["tags"]
        if kind == "token"
        else sample["labels"]
        if kind == "multi-label"
        else [sample["label"]]
    )


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
    kind: str
    about: str
    load: Callable[[Where], Data]
    metric: str  # the figure that decides, one of those metrics.py has for the kind
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
        if facts["kind"] not in KINDS:
            raise ValueError(f'task "{name}" has kind "{facts["kind"]}", expected one of {", ".join(KINDS)}')
        _TASKS[name] = Task(name=name, load=load, **facts)
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
            "kind": task.kind,
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
