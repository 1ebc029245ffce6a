"""Differences of two contestants over their common seeds: interval, power, and a verdict in words."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from typing import NamedTuple

LEAST_SEEDS = 3  # for a test over seeds
MOST_SEEDS = 100  # that a verdict advises
LEVEL = 0.05  # of the two-sided test
POWER = 0.8  # share of repetitions in which a difference would show


class Difference(NamedTuple):
    """Of two contestants over their common seeds.

    Interval and p are None with fewer than ``LEAST_SEEDS`` seeds. With one seed, or if all differences are
    equal, ``detectable`` is None, too.
    """

    n: int
    mean: float
    low: float | None = None  # of the 95 % interval
    high: float | None = None
    p: float | None = None  # of a paired t-test
    detectable: float | None = None  # the smallest true difference that would show


def difference(values: Mapping[int, float], others: Mapping[int, float]) -> Difference | None:
    """How much larger the values are than the others, by seed; None without a common seed."""
    gaps = [values[seed] - others[seed] for seed in values if seed in others]
    if not gaps:
        return None
    n, mean = len(gaps), statistics.mean(gaps)
    if max(gaps) - min(gaps) < 1e-12:
        return Difference(n, mean)
    smallest = detectable(statistics.stdev(gaps) / math.sqrt(n), n)
    if n < LEAST_SEEDS:
        return Difference(n, mean, detectable=smallest)
    from scipy.stats import ttest_1samp  # of the differences: the paired test

    test = ttest_1samp(gaps, 0.0)
    low, high = test.confidence_interval(1 - LEVEL)
    return Difference(n, mean, float(low), float(high), float(test.pvalue), smallest)


def detectable(error: float, n: int) -> float:
    """The smallest true difference that a paired t-test over seeds would show, with a power of 80 %.

    Args:
        error: The standard error of the mean difference.
        n: The number of seeds, at least 2.

    Returns:
        ``error`` times the sum of the 97.5 % and the 80 % quantile of Student's t with n - 1 degrees of
        freedom.

    Example:
        >>> round(detectable(0.1, 10), 3)
        0.315
    """
    from scipy.stats import t

    return float(error * (t.ppf(1 - LEVEL / 2, n - 1) + t.ppf(POWER, n - 1)))


def seeds_needed(gap: Difference) -> int | None:
    """How many seeds would show a true difference as large as the observed one; None above ``MOST_SEEDS``."""
    return seeds_for(gap, abs(gap.mean))


def seeds_for(gap: Difference, size: float) -> int | None:
    """How many seeds would show a true difference of this size; None above ``MOST_SEEDS``, or if unknown.

    Example:
        >>> gap = difference({0: 0.91, 1: 0.93, 2: 0.92}, {0: 0.90, 1: 0.90, 2: 0.92})
        >>> seeds_for(gap, 0.01)
        21
    """
    if gap.detectable is None or not size:
        return None
    counts = range(LEAST_SEEDS, MOST_SEEDS + 1)
    return next((n for n in counts if detectable(_deviation(gap) / math.sqrt(n), n) <= size), None)


def seeds_for_interval(gap: Difference, half: float) -> int | None:
    """How many seeds make the 95 % interval ± ``half`` or narrower; None above ``MOST_SEEDS``, or if unknown.

    Example:
        >>> gap = difference({0: 0.91, 1: 0.93, 2: 0.92}, {0: 0.90, 1: 0.90, 2: 0.92})
        >>> seeds_for_interval(gap, 0.01)
        12
    """
    if gap.detectable is None or not half:
        return None
    from scipy.stats import t

    def half_width(n: int) -> float:
        return float(t.ppf(1 - LEVEL / 2, n - 1)) * _deviation(gap) / math.sqrt(n)

    return next((n for n in range(LEAST_SEEDS, MOST_SEEDS + 1) if half_width(n) <= half), None)


def _deviation(gap: Difference) -> float:
    """The standard deviation of the differences over seeds."""
    assert gap.detectable is not None
    return gap.detectable / detectable(1.0, gap.n) * math.sqrt(gap.n)


def verdict(name: str, base: str, gap: Difference | None, what: str) -> str:
    """One sentence: which of two contestants is better and by how much, or why that cannot be told.

    Args:
        name, base: The contestants.
        gap: How much larger the scores of ``name`` are, as shares; larger is better.
        what: What the scores are, such as "test accuracy".

    Example:
        >>> gap = difference({0: 0.91, 1: 0.93, 2: 0.92}, {0: 0.90, 1: 0.90, 2: 0.92})
        >>> verdict("as-softmax", "softmax", gap, "test accuracy")
        'as-softmax against softmax, +1.33 points of test accuracy: cannot be told with 3 seeds, a difference
        below 4.7 points would not show (about 13 seeds would show one of this size).'
    """
    if gap is None:
        return f"{name} and {base} have no seed in common, so they cannot be compared."
    seeds = f"{gap.n} seeds" if gap.n > 1 else "one seed"
    about = f"{name} against {base}, {100 * gap.mean:+.2f} points of {what}"
    if gap.n == 1:
        return f"{about}: cannot be told with one seed, which does not show how much chance does."
    if gap.detectable is None:
        if abs(gap.mean) < 1e-12:
            return f"{name} and {base} have the same {what} with each of {seeds}."
        return f"{about} with each of {seeds}, always the same: more seeds may show how much chance does."
    smallest = f"{100 * gap.detectable:.{1 if gap.detectable >= 0.01 else 2}f} points"
    if gap.p is not None and gap.p <= LEVEL and gap.low is not None and gap.high is not None:
        word = "better" if gap.mean > 0 else "worse"
        low, high = sorted((abs(gap.low), abs(gap.high)))
        return (
            f"{name} is {word} than {base} by {100 * abs(gap.mean):.2f} points of {what} "
            f"(95 %: {100 * low:.2f} to {100 * high:.2f}, {seeds}; a difference below {smallest} "
            "might not have shown)."
        )
    if gap.p is None and abs(gap.mean) >= gap.detectable:
        return f"{about}: cannot be told with {seeds}, a test needs at least {LEAST_SEEDS}."
    if gap.detectable >= 1:
        return f"{about}: cannot be told with {seeds}, which would show no difference at all."
    needed = seeds_needed(gap)
    advice = f" (about {needed} seeds would show one of this size)" if needed and needed > gap.n else ""
    return f"{about}: cannot be told with {seeds}, a difference below {smallest} would not show{advice}."
