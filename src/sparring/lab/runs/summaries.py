"""Summaries of runs put together: mean and spread over seeds, times and counts against another contestant's."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

LEAST_SEEDS = 3  # of a test over them
Summary = dict[str, Any]


def spread(values: Sequence[float]) -> dict[str, Any] | None:
    """Mean and standard deviation over seeds (None for one)."""
    if not values:
        return None
    return {
        "mean": statistics.mean(values),
        "std": statistics.stdev(values) if len(values) > 1 else None,
        "values": list(values),
    }


def row(name: str, group: Sequence[Summary], base: Mapping[int, Summary], metric: str) -> dict[str, Any]:
    """One contestant's runs; ``base`` has the runs, by seed, that its times are compared with."""
    ratios = [
        base[one["seed"]]["seconds"] / one["seconds"]
        for one in group
        if one["seed"] in base and one["seconds"]
    ]
    r = [one["correlation"] for one in group if one["correlation"] is not None]
    return {
        "contestant": name,
        "seeds": [one["seed"] for one in group],
        "metric": metric,
        **{
            part: spread([one[part][metric] for one in group if one[part] and metric in one[part]])
            for part in ("test", "dev")
        },
        "seconds": statistics.mean(one["seconds"] for one in group),
        "faster": statistics.median(ratios) if ratios else None,
        **{
            f"{way}s": statistics.mean(one[f"n_{way}"] / one["n_planned"] for one in group)
            for way in ("forward", "backward")
        },
        "updates": statistics.mean(one["n_updates"] for one in group),
        "won_share": statistics.mean(one["won_share"] for one in group),
        "correlation": statistics.mean(r) if r else None,
        "folders": [one["folder"] for one in group],
    }


class Difference(NamedTuple):
    """Of two contestants, over the seeds both have; no interval and no p with fewer than ``LEAST_SEEDS``, or where all differ alike."""

    n: int
    mean: float
    low: float | None  # of the 95 % interval
    high: float | None
    p: float | None  # of a paired t-test


def difference(one: Mapping[int, float], other: Mapping[int, float]) -> Difference | None:
    """How much larger one's figures are, by seed; None without a common seed."""
    gaps = [one[seed] - other[seed] for seed in one if seed in other]
    if not gaps:
        return None
    if len(gaps) < LEAST_SEEDS or max(gaps) - min(gaps) < 1e-12:
        return Difference(len(gaps), statistics.mean(gaps), None, None, None)
    from scipy.stats import ttest_1samp  # of the differences: the paired test

    test = ttest_1samp(gaps, 0.0)
    low, high = test.confidence_interval(0.95)
    return Difference(len(gaps), statistics.mean(gaps), float(low), float(high), float(test.pvalue))
