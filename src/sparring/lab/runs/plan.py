"""A run before it runs: which task, with what settings, into which folder. Mistakes are found here, before anything is built."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sparring.lab.datasets import Data, Task, UserError, Where, get_task, known
from sparring.lab.models.build import content_digest
from sparring.lab.readers.columns import Columns
from sparring.lab.readers.user_data import is_yours, open_yours
from sparring.lab.runs.config import Config
from sparring.lab.runs.records import RunFolder
from sparring.lab.untrusted import file_name
from sparring.training.scorecard import Scorecard

COLUMN_FLAGS = ("text_column", "text_b_column", "label_column", "label_separator", "kind")


@dataclass(frozen=True)
class Plan:
    """Everything decided, nothing built."""

    config: Config  # resolved
    task: Task
    data: Data
    folder: RunFolder
    card: Scorecard | None = None  # one of the caller's own making, in place of the config's
    chosen: tuple[int, ...] | None = None  # train on these samples only
    anyway: bool = False  # go on with an unfinished run although its settings or data were others

    @property
    def name(self) -> str:
        return f"{self.config.label} seed {self.config.seed}"


def open_task(config: Config) -> tuple[Task, Data]:
    """The task by name, or the user's own data."""
    where = Where.default(config.data_dir)
    if known(config.task) or not is_yours(config.task):
        task = get_task(config.task)
        if given := [name for name in COLUMN_FLAGS if getattr(config, name) is not None]:
            raise UserError(f"{given[0]} is for files of your own; {task.name} has its own form")
        data = task.load(where)
    else:
        columns = Columns(
            config.text_column, config.text_b_column, config.label_column, config.kind, config.label_separator
        )
        task, data = open_yours(config.task, where, columns, config.image_size)
    return task, data


def sizes(config: Config, data: Data) -> tuple[int, int, int]:
    """Samples of train, dev and test that a run takes."""
    asked = (
        (config.n_train, data.train),
        (config.n_dev, data.dev),
        (config.n_test if config.test else 0, data.test),
    )
    n_train, n_dev, n_test = (len(part) if n is None else min(n, len(part)) for n, part in asked)
    return n_train, n_dev, n_test


def plan(config: Config, task: Task, data: Data, *, strict: bool = True) -> Plan:
    """What a config means for a task's data, and the folder it goes to. A mistake in it is found here."""
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
    folder = (
        Path(resolved.out) / file_name(task.name) / file_name(name) / f"seed-{resolved.seed}"
    )  # never outside --out
    return Plan(resolved, task, data, RunFolder(folder))
