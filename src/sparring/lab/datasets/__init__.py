"""Published data sets by name, one file each.

A file registers its tasks when it is imported, and it is imported when one of them is looked up:
``get_task("code-switch")`` imports ``code_switch.py``. Names that are not file names, such as aliases and
GLUE's tasks, are found by importing all files, as `list_tasks` does.
"""

import difflib
import importlib
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from sparring.lab.errors import DataError, MissingDataError, UserError
from sparring.lab.kinds import Kind, get_kind, list_kinds
from sparring.lab.readers.hub import HubSource
from sparring.lab.readers.published import Original, load_published
from sparring.lab.task import Data, Sample, Splits, Task, Where
from sparring.lab.untrusted import reason

__all__ = ["Data", "DataError", "Sample", "Task", "UserError", "Where"]  # other rooms import these from here
__all__ += ["Kind", "get_kind", "get_task", "known", "list_kinds", "list_tasks"]
__all__ += ["register", "register_embedded", "register_published", "survey"]

_TASKS: dict[str, Task] = {}


def register(name: str, *, kind: Kind | str, **facts: Any) -> None:
    """List a task: ``facts`` are the fields of `Task`."""
    _TASKS[name] = Task(name, get_kind(kind), **facts)


def register_embedded(
    name: str, *, kind: str, splits: Callable[[], Splits], source: str, notes: tuple[str, ...], **facts: Any
) -> None:
    """List a data set that comes with the package ``source``."""

    def load(where: Where) -> Data:
        return Data(get_kind(kind), **splits(), source=source, notes=notes)

    register(name, kind=kind, load=load, package=source, **facts)


def register_published(
    name: str,
    *,
    kind: str,
    original: Original,
    hub: HubSource | None = None,
    aliases: Mapping[str, str] | None = None,
    folders: Sequence[str] = (),
    finish: Callable[[Data], Data] = lambda data: data,
    **facts: Any,
) -> None:
    """List a data set that is read from files or from the hub.

    Args:
        name: Name of the task and of its folder.
        kind: Kind of its samples.
        original: Reads the publisher's files in a folder; returns None if there are none.
        hub: The data set on the Hugging Face hub.
        aliases: Further names of the task and its folder, each with the difference of the data there, or "".
        folders: Further folders that may hold it.
        finish: Called with the loaded data.
        facts: Further fields of `Task`.
    """
    differences = {name: "", **(aliases or {}), **dict.fromkeys(folders, "")}

    def load(where: Where) -> Data:
        return finish(load_published(where, get_kind(kind), differences, original, hub))

    places = {"aliases": tuple(aliases or ()), "folders": tuple(differences)}
    register(name, kind=kind, load=load, **places, **facts)


@cache
def _modules() -> Mapping[str, str]:
    """The files of data sets: stem -> module."""
    modules = {}
    for group in pkgutil.iter_modules(__path__):
        for module in pkgutil.iter_modules([str(Path(__path__[0]) / group.name)]):
            modules[module.name] = f"{__name__}.{group.name}.{module.name}"
    return modules


def _registered(name: str) -> Task | None:
    return next((task for task in _TASKS.values() if name in (task.name, *task.aliases)), None)


def _find(name: str) -> Task | None:
    module = _modules().get(name.replace("-", "_"))
    if module is not None:
        importlib.import_module(module)
    task = _registered(name)
    if task is None:
        list_tasks()
        task = _registered(name)
    return task


def list_tasks() -> list[Task]:
    """All tasks by name."""
    for module in _modules().values():
        importlib.import_module(module)
    return [_TASKS[name] for name in sorted(_TASKS)]


def known(name: str) -> bool:
    """Whether a task has this name or alias."""
    return _find(name) is not None


def get_task(name: str) -> Task:
    """The task with this name or alias.

    Raises:
        UserError: If there is none; the message has the nearest name.
    """
    task = _find(name)
    if task is not None:
        return task
    names = {task_name.replace("_", "-"): task_name for task_name in _TASKS}
    near = difflib.get_close_matches(name.lower().replace("_", "-"), names, n=1)
    hint = f'; did you mean "{names[near[0]]}"?' if near else "."
    raise UserError(f'no task named "{name}"{hint} Known: {", ".join(sorted(_TASKS))}')


def survey(tasks: Sequence[Task], where: Where) -> list[dict[str, Any]]:
    """For each task whether its data is available offline: actual sizes if it is, published ones if not."""
    return [_survey_one(task, replace(where, hub=False)) for task in tasks]


def _survey_one(task: Task, where: Where) -> dict[str, Any]:
    row = {"name": task.name, "kind": task.kind.name, "about": task.about, "home": task.home, "notes": []}
    try:
        data = task.load(where)
        classes = len(data.labels) or None
    except Exception as error:  # a broken folder must not hide the other tasks
        message = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {reason(error)}"
        place = "not here" if isinstance(error, MissingDataError) else f"broken: {message}"
        sizes = list(task.sizes) or None
        return {**row, "here": False, "sizes": sizes, "classes": None, "where": place, "error": message}
    sizes = [len(data.train), len(data.dev), len(data.test)]
    available = {"here": True, "sizes": sizes, "classes": classes, "where": data.source}
    return {**row, **available, "notes": list(data.notes)}
