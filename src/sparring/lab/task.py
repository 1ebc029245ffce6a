"""What a task is: three lists of samples of one kind, where they come from, and the figure that decides.

A sample is a plain dict in the form of its kind, as one line of JSONL holds it. A task is a function that loads them, registered:
one file under ``tasks/`` is enough for the command line, the tests and the report to see it.
"""

from __future__ import annotations

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
from sparring.lab.errors import UserError as UserError
from sparring.lab.untrusted import check_text
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
