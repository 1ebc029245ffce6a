"""The lab: compare losses on your own data, from Python or with the ``sparring`` command.

The functions are imported when they are first used, since they need the packages of the ``lab`` extra.

Example:
    >>> import sparring.lab
    >>> result = sparring.lab.compare("reviews.csv", losses=["softmax", "as-softmax"])  # doctest: +SKIP
    >>> result.report("report.html")  # doctest: +SKIP
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sparring.lab.api import compare as compare
    from sparring.lab.api import predict as predict
    from sparring.lab.api import run as run
    from sparring.lab.api import tune as tune
    from sparring.lab.results import Comparison as Comparison
    from sparring.lab.results import Tuning as Tuning

_MODULES = dict.fromkeys(("compare", "predict", "run", "tune"), "sparring.lab.api")
_MODULES |= dict.fromkeys(("Comparison", "Tuning"), "sparring.lab.results")
__all__ = ["Comparison", "Tuning", "compare", "predict", "run", "tune"]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'sparring.lab' has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(_MODULES[name]), name)
    return value
