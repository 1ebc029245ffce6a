"""A loss's own setting, chosen on dev: the values the papers tried, each run with the same seeds. Test is never looked at."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from sparring.lab.datasets import UserError
from sparring.lab.runs.config import OWN, SETTINGS, Config
from sparring.lab.runs.summaries import Summary

DELTAS = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5)  # "ranging from 0.05 to 0.5"
TEMPERATURES = (0.5, 1.0, 2.0, 5.0)  # Table 6 has 0.5, 1 and 5
SIZES = (1, 2, 4, 5, 10, 20, 50, 100)  # Sparse-Softmax: 1, 10, 20, 50, 100; Table 6 adds 4 and 5

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


def grid(config: Config, loss: str, n_classes: int, values: dict[str, list[Any]]) -> list[Config]:
    """The points to try for a loss; ``values`` replace the papers' for the settings they name. Without classes they are a vocabulary."""
    tried: dict[str, Sequence[Any]] = {**GRIDS.get(loss, {}), **values}
    if not tried:
        raise UserError(f'"{loss}" has no setting to tune; these have: {", ".join(GRIDS)}')
    if "k" in tried and "k" not in values and n_classes:
        tried["k"] = [k for k in tried["k"] if k < n_classes] or [1]  # more is plain softmax
    return [
        config.replace(**dict(zip(tried, point, strict=True))) for point in itertools.product(*tried.values())
    ]


def parse_values(texts: Sequence[str]) -> dict[str, list[Any]]:
    """``delta=0.1,adaptive`` to values by name."""
    values = {}
    for text in texts:
        name, equals, listed = text.partition("=")
        if not equals or not listed:
            raise UserError(
                f'values must be given as setting=value,value,…, such as delta=0.1,0.2; got "{text}"'
            )
        name = name.strip().replace("-", "_")
        if name not in OWN:
            raise UserError(f'"{text}": no setting named {name} to tune; there are {", ".join(OWN)}')
        values[name] = [SETTINGS[name].parse(value.strip(), f'"{text}": ') for value in listed.split(",")]
    return values


def describe(point: Config, config: Config) -> str:
    """What a point tries."""
    return (
        " ".join(
            f"{name}={getattr(point, name)}" for name in OWN if getattr(point, name) != getattr(config, name)
        )
        or "as given"
    )


def split_diverged(
    points: Sequence[Config], summaries: Sequence[Summary | None]
) -> tuple[list[Config], list[Summary], list[Config]]:
    """Points all of whose runs ended well, the summaries of these, and points of which a run diverged (None among the summaries, which
    go seed by seed)."""
    bad = {i % len(points) for i, summary in enumerate(summaries) if summary is None}
    whole = [
        summary for i, summary in enumerate(summaries) if summary is not None and i % len(points) not in bad
    ]
    if not whole:
        raise UserError("every setting diverged with some seed; try a lower --lr")
    good = [point for i, point in enumerate(points) if i not in bad]
    return good, whole, [points[i] for i in sorted(bad)]


def best_row(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The row with the highest mean on dev; of equal ones the first."""
    return max(rows, key=lambda row: row["dev"]["mean"])
