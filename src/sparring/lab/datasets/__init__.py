"""Tasks: data sets by name, one file each. Importing this package registers them all."""

from __future__ import annotations

import importlib
import pkgutil

from sparring.lab.kinds import Kind, get_kind, list_kinds
from sparring.lab.task import (
    SPLITS,
    Data,
    DataError,
    Sample,
    Splits,
    Task,
    UserError,
    Where,
    get_task,
    known,
    list_tasks,
    register,
    survey,
)

for _module in pkgutil.walk_packages(__path__, f"{__name__}."):
    importlib.import_module(_module.name)

__all__ = [
    "SPLITS",
    "Data",
    "DataError",
    "Kind",
    "Sample",
    "Splits",
    "Task",
    "UserError",
    "Where",
    "get_kind",
    "get_task",
    "known",
    "list_kinds",
    "list_tasks",
    "register",
    "survey",
]
