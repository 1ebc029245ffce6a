"""Plans: what a run will do, and where it writes. Mistakes in settings are found before anything is built."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sparring.lab.datasets import Data, Sample, Task, UserError, Where, get_task, known
from sparring.lab.errors import option
from sparring.lab.models.build import content_digest
from sparring.lab.readers.columns import Columns
from sparring.lab.readers.user_data import is_user_data, open_user_data
from sparring.lab.runs.config import Config
from sparring.lab.runs.records import RunFolder
from sparring.lab.untrusted import file_name
from sparring.training.resting.scorecard import Scorecard

COLUMN_FLAGS = ("text_column", "text_b_column", "label_column", "label_separator", "kind", "missing")


@dataclass(frozen=True)
class Plan:
    """A run that has not started."""

    config: Config  # with all defaults filled in
    task: Task
    data: Data
    folder: RunFolder
    card: Scorecard | None = None  # in place of the one that the config asks for
    chosen: tuple[int, ...] | None = None  # train only on the samples with these indices
    anyway: bool = False  # continue an unfinished run even if its settings or data have changed

    @property
    def name(self) -> str:
        return f"{self.config.label} seed {self.config.seed}"

    def facts(self, sizes: Mapping[str, int]) -> dict[str, Any]:
        """What ``data.json`` says of the data; ``sizes`` are the numbers of samples that the run uses."""
        return {
            "task": self.task.name,
            "kind": self.data.kind.name,
            "source": self.data.source,
            "notes": self.data.notes,
            "top_k": self.task.top_k,
            "fingerprint": self.data.fingerprint,
            "sizes": dict(sizes),
            "labels": self.data.labels,
        }


def open_task(config: Config) -> tuple[Task, Data]:
    """The task by name, or the user's data."""
    where = Where.default(config.data_dir)
    if not known(config.task) and is_user_data(config.task):
        return open_user_data(config.task, where, columns_of(config), config.image_size)
    task = get_task(config.task)
    for name in COLUMN_FLAGS:
        if getattr(config, name) is not None:
            raise UserError(f"{option(name)} is for files of your own; {task.name} has its own form")
    return task, task.load(where)


def columns_of(config: Config) -> Columns:
    """What a config says about the columns of a user's table."""
    text, text_b, label = config.text_column, config.text_b_column, config.label_column
    return Columns(text, text_b, label, config.kind, config.label_separator, config.missing)


def sizes(config: Config, data: Data) -> tuple[int, int, int]:
    """How many samples of train, dev and test a run uses."""

    def size(n: int | None, split: list[Sample]) -> int:
        return len(split) if n is None else min(n, len(split))

    n_test = size(config.n_test, data.test) if config.test else 0
    return size(config.n_train, data.train), size(config.n_dev, data.dev), n_test


def cut(samples: list[Sample], n: int | None) -> list[Sample]:
    """A random subset of n samples, always the same one for the same n; None takes all."""
    if n is None or n >= len(samples):
        return samples
    return random.Random(n).sample(samples, n)


def plan(config: Config, task: Task, data: Data, *, strict: bool = True) -> Plan:
    """Check a config and fill in its defaults.

    Args:
        config: The settings.
        task, data: What to train on.
        strict: Refuse settings that the loss does not take.

    Raises:
        UserError: A setting does not fit the task, or is out of range.
    """
    defaults = task.kind.model_defaults(config.model)
    resolved = config.resolved(
        task, epochs=defaults.epochs, lr=defaults.lr, pieces=defaults.pieces, strict=strict
    )
    metrics = task.kind.metrics(data.labels)
    if resolved.metric not in metrics:
        raise UserError(f"{task.name} has no metric {resolved.metric}; it has {', '.join(metrics)}")
    try:
        resolved.make_loss(total_steps=1)
        resolved.make_accumulation()
    except (ValueError, TypeError) as error:
        raise UserError(str(error)) from None
    digest = resolved.digest(data.fingerprint + content_digest(resolved.model))
    name = "-".join([resolved.label.replace(" ", "-").replace("=", ""), Path(resolved.model).name, digest])
    # file_name keeps the folder within --out
    folder = Path(resolved.out) / file_name(task.name) / file_name(name) / f"seed-{resolved.seed}"
    return Plan(resolved, task, data, RunFolder(folder))
