"""A loss's own setting, chosen on dev: the values the papers tried, each run with the same seeds. Test is never looked at."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from sparring.lab.config import Config
from sparring.lab.tasks import UserError

DELTAS = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5)  # "ranging from 0.05 to 0.5"
TEMPERATURES = (0.5, 1.0, 2.0, 5.0)  # Table 6 has 0.5, 1 and 5
SIZES = (1, 5, 10, 20, 50, 100)  # Sparse-Softmax: 1, 10, 20, 50, 100; Table 6 adds 4 and 5

GRIDS: dict[str, dict[str, Sequence[float]]] = {
    "as-softmax": {"delta": DELTAS},
    "multilabel-as-softmax": {"delta": DELTAS},
    "sparse-softmax": {"k": SIZES},
    "multilabel-sparse-softmax": {"k": SIZES},
    "t-softmax": {"tau": TEMPERATURES},
    "multilabel-t-softmax": {"tau": TEMPERATURES},
    "label-smoothing": {"epsilon": (0.1, 0.2, 0.3)},
    "am-softmax": {"scale": (1.0, 5.0, 8.0, 10.0), "margin": (0.1, 0.3, 0.35)},
    "as-logit": {"margin": (0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0)},  # Figure 5
}


def grid(config: Config, n_classes: int, values: dict[str, list[float]]) -> list[str]:
    """The contestants to try; ``values`` replace the papers' for the settings they name."""
    loss = str(config.loss)
    tried = {**GRIDS.get(loss, {}), **values}
    if not tried:
        raise UserError(f'"{loss}" has no setting to tune; these have: {", ".join(GRIDS)}')
    if loss in ("sparse-softmax", "multilabel-sparse-softmax") and "k" not in values:
        tried["k"] = [k for k in tried["k"] if k < n_classes]  # more is plain softmax
    names = list(tried)
    return [":".join([loss, *(f"{n}={v:g}" for n, v in zip(names, point, strict=True))]) for point in itertools.product(*tried.values())]


def parse_values(texts: Sequence[str]) -> dict[str, list[float]]:
    """``delta=0.1,0.2`` to numbers by name."""
    values = {}
    for text in texts:
        name, equals, numbers = text.partition("=")
        try:
            values[name.strip()] = [float(number) for number in numbers.split(",")]
        except ValueError:
            equals = ""
        if not equals:
            raise UserError(f'values must be given as setting=number,number,…, such as delta=0.1,0.2; got "{text}"')
    return values


def best(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The row with the highest mean on dev; of equal ones the first."""
    return max(rows, key=lambda row: row["dev"]["mean"])
