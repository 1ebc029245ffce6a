"""Tasks: data sets by name, one file each. Importing this package registers them all."""

from __future__ import annotations

import importlib
import pkgutil

from sparring.lab.task import (
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

for _module in pkgutil.walk_packages(__path__, f"{__name__}."):
    importlib.import_module(_module.name)

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
