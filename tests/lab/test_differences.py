"""Power and verdicts: the formula against a simulation, and the sentences."""

from __future__ import annotations

import re

import numpy as np
import pytest
from scipy import stats

from sparring.lab.differences import Difference, detectable, difference, seeds_needed, verdict


def test_a_difference_of_the_detectable_size_shows_four_times_in_five() -> None:
    """The power of the paired t-test from the noncentral t distribution, an independent formula."""
    for n in (5, 10, 30):
        shift = detectable(1.0, n)  # in standard errors
        critical = stats.t.ppf(0.975, n - 1)
        power = 1 - stats.nct.cdf(critical, n - 1, shift) + stats.nct.cdf(-critical, n - 1, shift)
        assert power == pytest.approx(0.8, abs=0.03)


def test_it_is_that_of_the_seeds() -> None:
    rng = np.random.default_rng(0)
    gaps = rng.normal(0.01, 0.02, 6)
    gap = difference(dict(enumerate(gaps)), dict.fromkeys(range(6), 0.0))
    assert gap is not None
    error = stats.sem(gaps)
    assert gap.detectable == pytest.approx(error * (stats.t.ppf(0.975, 5) + stats.t.ppf(0.8, 5)))
    needed = seeds_needed(gap)
    assert needed is not None
    deviation = gaps.std(ddof=1)
    assert detectable(deviation / needed**0.5, needed) <= abs(gaps.mean())
    assert detectable(deviation / (needed - 1) ** 0.5, needed - 1) > abs(gaps.mean())


@pytest.mark.parametrize(
    ("gap", "expected"),
    [
        (None, "no seed in common"),
        (Difference(1, 0.01), r"\+1.00 points of test accuracy: cannot be told with one seed"),
        (Difference(3, 0.0), "the same test accuracy with each of 3 seeds"),
        (Difference(3, 0.002), r"\+0.20 points of test accuracy with each of 3 seeds, always the same"),
        (
            Difference(2, -0.01, detectable=0.123),
            r"-1.00 points of test accuracy: cannot be told with 2 seeds, a difference below 12.3 points",
        ),
        (Difference(2, -0.2, detectable=3.0), "with 2 seeds, which would show no difference at all"),
        (
            Difference(5, 0.004, 0.001, 0.007, 0.02, 0.0035),
            r"as is better than softmax by 0.40 points of test accuracy \(95 %: 0.10 to 0.70, 5 seeds; "
            r"a difference below 0.35 points might not have shown\)",
        ),
        (Difference(5, -0.02, -0.03, -0.01, 0.01, 0.01), r"worse than .* by 2.00 .*\(95 %: 1.00 to 3.00"),
        (Difference(3, 0.01, -0.01, 0.03, 0.2, 0.014), "cannot be told with 3 seeds, a .* below 1.4 points"),
    ],
)
def test_verdicts(gap: Difference | None, expected: str) -> None:
    assert re.search(expected, verdict("as", "softmax", gap, "test accuracy"))


def test_two_seeds_do_not_contradict_themselves() -> None:
    """A difference above the detectable one is not called too small to show: there is no test over two."""
    gap = difference({0: 0.9, 1: 0.9001}, {0: 0.92, 1: 0.92})
    assert gap is not None
    assert gap.detectable is not None
    assert abs(gap.mean) > gap.detectable
    assert verdict("a", "b", gap, "accuracy").endswith("with 2 seeds, a test needs at least 3.")
