"""Tasks: named data sets, each with three splits of samples of one kind.

A sample is a dict with the fields of its kind, as one line of JSONL holds it. A task is a function that
loads the splits. One file under ``datasets/`` that registers it is enough for all commands.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import Tensor

from sparring.lab.errors import DataError as DataError  # loaders import everything from here
from sparring.lab.errors import UserError as UserError
from sparring.lab.errors import option
from sparring.lab.kinds import Kind
from sparring.lab.kinds.encoder import Encoder
from sparring.lab.kinds.encoder import Sample as Sample
from sparring.lab.models.settings import Model, ModelOptions
from sparring.lab.untrusted import check_text

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
        check_text(str(folder or ""), f"the folder of data sets ({option('data_dir')} or SPARRING_DATA)")
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
    folders: tuple[str, ...] = ()  # that may hold the data
    package: str | None = None  # that holds the data, so that no file is needed
    top_k: int | None = None  # multi-label: predict the k largest logits; None: every logit above 0
    max_length: int = 128  # largest number of tokens of a text, for usual tokenizers
    settings: Mapping[str, Any] = field(default_factory=dict)  # defaults of runs on this task

    @property
    def embedded(self) -> bool:
        """Whether a package holds the data."""
        return self.package is not None

    def listing(self) -> dict[str, Any]:
        """What ``datasets/tasks.json`` has of it, from which ``sparring tasks`` answers without torch."""
        facts = {"name": self.name, "kind": self.kind.name, "about": self.about, "home": self.home}
        return {**facts, "sizes": list(self.sizes), "folders": list(self.folders), "package": self.package}
