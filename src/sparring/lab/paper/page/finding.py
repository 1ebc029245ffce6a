"""A claim of a paper, and whether our runs bear it out: significant over seeds, with the claimed sign."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from sparring.lab.differences import LEVEL, Difference, difference
from sparring.lab.table import Table

YES = "reproduced"
NO = "not reproduced"
OPEN = "cannot be told"


class Finding(NamedTuple):
    """A claim, what our runs show, and one of YES, NO and OPEN."""

    claim: str
    task: str
    observed: str
    outcome: str


def outcome(gap: Difference | None, sign: float = 1.0, claimed: float | None = None) -> str:
    """Whether there is a significant difference with the claimed sign.

    A claim is not reproduced, too, if the interval leaves out a difference as large as the ``claimed`` one.
    """
    if gap is None or gap.p is None:
        return OPEN
    if gap.p <= LEVEL:
        return YES if sign * gap.mean > 0 else NO
    most = max(sign * (gap.low or 0.0), sign * (gap.high or 0.0))
    return NO if claimed is not None and sign * claimed > 0 and most < sign * claimed else OPEN


def describe(gap: Difference, unit: str = "points") -> str:
    test = "" if gap.p is None else f", 95 %: {gap.low:+.2f} to {gap.high:+.2f}, p = {gap.p:.2g}"
    return f"{gap.mean:+.2f} {unit} ({seed_count(gap.n)}{test})"


def seed_count(n: int) -> str:
    return f"{n} seed{'s' if n > 1 else ''}"


def compared(
    claim: str,
    place: str,
    scores: Sequence[Mapping[int, float]],
    sign: float = 1.0,
    claimed: float | None = None,
) -> Iterator[Finding]:
    """The finding of two methods' scores by seed; none without a common seed."""
    gap = difference(*scores)
    if gap is not None:
        yield Finding(claim, place, describe(gap), outcome(gap, sign, claimed))


def findings_table(rows: Sequence[Finding]) -> Table:
    return Table("", ["the papers' claim", "task", "ours", ""], rows, n_text=4)
