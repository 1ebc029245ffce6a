"""Tasks: data sets by name, one file each. Importing this package registers them all."""

from __future__ import annotations

import importlib
import pkgutil

from sparring.lab.tasks.base import (
    KINDS,
    SPLITS,
    Data,
    DataError,
    Kind,
    Sample,
    Splits,
    Task,
    UserError,
    Where,
    get_task,
    known,
    labels_of,
    list_tasks,
    register,
    survey,
)

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

__all__ = [
    "KINDS",
    "SPLITS",
    "Data",
    "DataError",
    "Kind",
    "Sample",
    "Splits",
    "Task",
    "UserError",
    "Where",
    "get_task",
    "known",
    "labels_of",
    "list_tasks",
    "register",
    "survey",
]
