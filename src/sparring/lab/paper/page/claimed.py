"""How large the papers' differences are. On a task that a table lacks, a claim is the mean of the table."""

import statistics
from collections.abc import Mapping

from sparring.lab.paper import published
from sparring.lab.paper.methods import AS_SOFTMAX, AS_SPEED, SOFTMAX
from sparring.lab.paper.published import PublishedTable
from sparring.lab.paper.result_tables import published_number

Row = Mapping[str, float]


def gain(task: str, metric: str) -> float | None:
    """How far AS-Softmax is above softmax in Table 2, or in Table 8."""
    for table in (published.QUALITY, published.GLUE):
        ours, base = (published_number(table, method.name, task, metric) for method in (AS_SOFTMAX, SOFTMAX))
        if ours is not None and base is not None:
            return ours - base
    return None


def mean_gain() -> float:
    """Over the tasks of Table 2."""
    return _mean_difference(published.QUALITY[AS_SOFTMAX.name], published.QUALITY[SOFTMAX.name])


def time(task: str) -> float | None:
    """Percent that AS-Speed takes more than softmax in Table 3."""
    return published.TIME[AS_SPEED.name].get(task)


def mean_time() -> float:
    """Over the tasks of Table 3."""
    return float(statistics.mean(published.TIME[AS_SPEED.name].values()))


def correlation(task: str) -> float:
    """How far AS-Softmax's correlation of dev loss and quality is below softmax's in Table 4."""
    ours, base = (published.CORRELATION[method.name] for method in (AS_SOFTMAX, SOFTMAX))
    return ours[task] - base[task] if task in ours else _mean_difference(ours, base)


def sparse_gain(table: PublishedTable, row: str, base_row: str, task: str, metric: str) -> float | None:
    """How far a row of the Sparse-Softmax paper is above its row of softmax."""
    ours, base = (published_number(table, name, task, metric) for name in (row, base_row))
    return None if ours is None or base is None else ours - base


def _mean_difference(ours: Row, base: Row) -> float:
    return statistics.mean([ours[column] - base[column] for column in ours if column in base])


def words(own: float | None, mean: float | None, unit: str, digits: int = 2) -> str:
    """A claim's number: the task's own, or the mean.

    >>> words(0.47, 0.85, "points"), words(None, 0.85, "points"), words(None, None, "points")
    (' (+0.47 points)', ' (+0.85 points on average)', '')
    """
    value = mean if own is None else own
    if value is None:
        return ""
    return f" ({value:+.{digits}f} {unit}{' on average' if own is None else ''})"
