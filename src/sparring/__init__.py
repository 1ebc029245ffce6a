"""Sparring: losses that train only against strong opponents, and training that skips what is already won.

Public names are imported on first use: ``import sparring`` itself does not import torch. `__init__.pyi` lists
the names and their modules, for type checkers and editors as well as for this module.
"""

import ast
import importlib
from pathlib import Path
from typing import Any

__version__ = "0.1.0"


def _public_names() -> dict[str, str]:
    """Read name -> module from the imports of `__init__.pyi`."""
    stub = ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    return {alias.name: str(node.module) for node in imports for alias in node.names}


_MODULE_OF = _public_names()

# `from sparring import *` leaves out subpackages, and `train`, which needs the optional Accelerate
_NOT_IN_ALL = {"backward", "delta", "heads", "lab", "losses", "parallel", "train", "training"}
__all__ = ["__version__", *sorted(_MODULE_OF.keys() - _NOT_IN_ALL)]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'sparring' has no attribute {name!r}")
    module = _MODULE_OF[name]
    if module == "sparring":
        return importlib.import_module(f"sparring.{name}")
    value = globals()[name] = getattr(importlib.import_module(module), name)
    return value


def __dir__() -> list[str]:
    return sorted(globals().keys() | _MODULE_OF.keys())
