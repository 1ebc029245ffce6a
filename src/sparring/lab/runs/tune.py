"""Tuning: a setting of a loss is chosen on dev among the values that the papers tried. Test is never used."""

import itertools
from collections.abc import Sequence
from typing import Any

from sparring.lab.differences import LEVEL, difference, verdict
from sparring.lab.errors import UserError, option
from sparring.lab.runs.config import OWN, SETTINGS, Config, split_own
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
    "gce": {"q": (0.1, 0.3, 0.5, 0.7, 0.9, 1.0)},
    "focal": {"gamma": (0.5, 1.0, 2.0, 5.0)},  # Lin et al., Table 1
    "sce": {
        "alpha": (0.01, 0.1, 1.0, 6.0),
        "beta": (0.1, 1.0),
    },  # those of Wang et al., and 1
}


def grid(config: Config, loss: str, n_classes: int, values: dict[str, list[Any]]) -> list[Config]:
    """The points to try for a loss.

    Args:
        config: The settings that all points share.
        loss: The name of the loss.
        n_classes: Sparse-Softmax tries no k above it; 0 if the classes are a vocabulary.
        values: Values to try, by setting, instead of those of the papers.
    """
    axes: dict[str, Sequence[Any]] = {**GRIDS.get(loss, {}), **values}
    if not axes:
        raise UserError(f'"{loss}" has no setting to tune; these have: {", ".join(GRIDS)}')
    if "k" in axes and "k" not in values and n_classes:
        axes["k"] = [k for k in axes["k"] if k < n_classes] or [1]  # a larger k is plain softmax
    points = itertools.product(*axes.values())
    return [config.replace(**dict(zip(axes, point, strict=True))) for point in points]


def parse_values(texts: Sequence[str]) -> dict[str, list[Any]]:
    """Parse texts such as ``delta=0.1,adaptive`` to values by setting."""
    values = {}
    for text in texts:
        name, listed = split_own(text, f'"{text}": ')
        values[name] = [SETTINGS[name].parse(value.strip(), f'"{text}": ') for value in listed.split(",")]
    return values


def changes(point: Config, config: Config) -> dict[str, Any]:
    """The settings of a point that differ from the config's."""
    values = {name: getattr(point, name) for name in OWN}
    return {name: value for name, value in values.items() if value != getattr(config, name)}


def describe(point: Config, config: Config) -> str:
    words = [f"{name}={value}" for name, value in changes(point, config).items()]
    return " ".join(words) or "unchanged"


def split_diverged(
    points: Sequence[Config], summaries: Sequence[Summary | None]
) -> tuple[list[Config], list[Summary], list[Config]]:
    """Separate the points of which a run diverged.

    Args:
        points: The points that were tried.
        summaries: Of all runs, seed by seed; None for a run that diverged.

    Returns:
        The points whose runs all ended well, the summaries of their runs, and the other points.
    """
    diverged = {i % len(points) for i, summary in enumerate(summaries) if summary is None}
    whole = [s for i, s in enumerate(summaries) if s is not None and i % len(points) not in diverged]
    if not whole:
        raise UserError(f"every setting diverged with some seed; try a lower {option('lr')}")
    finished = [point for i, point in enumerate(points) if i not in diverged]
    return finished, whole, [points[i] for i in sorted(diverged)]


def best_row(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The row with the highest mean on dev, the first of equal ones."""
    return max(rows, key=lambda row: row["dev"]["mean"])


def tuning_verdict(names: Sequence[str], rows: Sequence[dict[str, Any]]) -> str:
    """Whether the best point on dev can be told from the second best.

    The p value is multiplied by the number of other points, since the best was chosen among them.
    """
    if len(rows) == 1:
        return f"Only {names[0]} was tried."
    order = sorted(range(len(rows)), key=lambda i: -rows[i]["dev"]["mean"])
    best, second = order[:2]
    scores = [dict(zip(rows[i]["seeds"], rows[i]["dev"]["values"], strict=True)) for i in (best, second)]
    gap = difference(*scores)
    if gap is not None and gap.p is not None:
        gap = gap._replace(p=min(1.0, gap.p * (len(rows) - 1)))
    is_clear = gap is not None and gap.p is not None and gap.p <= LEVEL
    sentence = verdict(names[best], names[second], gap, f"dev {rows[best]['metric'].replace('_', ' ')}")
    return sentence if is_clear else f"The best is within noise. {sentence}"
