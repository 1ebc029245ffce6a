"""When a difference over seeds bears out a claim."""

from sparring.lab.differences import difference
from sparring.lab.paper.page.finding import NO, OPEN, YES, outcome


def test_difference_is_paired() -> None:
    gap = difference({0: 2.0, 1: 3.1, 2: 4.0, 9: 0.0}, {0: 1.0, 1: 2.0, 2: 3.0})
    assert gap is not None
    assert (gap.n, round(gap.mean, 3)) == (3, 1.033)
    assert gap.p is not None
    assert gap.p < 0.01
    assert outcome(gap) == YES
    assert outcome(gap, -1) == NO


def test_two_seeds_decide_nothing() -> None:
    gap = difference({0: 2.0, 1: 3.1}, {0: 1.0, 1: 2.0})
    assert gap is not None
    assert (gap.p, outcome(gap)) == (None, OPEN)
    assert difference({0: 1.0}, {1: 1.0}) is None
