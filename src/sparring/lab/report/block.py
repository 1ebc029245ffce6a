"""`Block`: a part of a report under a heading."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from sparring.lab.table import Table

Facts = dict[str, Any]  # what build.collect returns for a task


@dataclass
class Block:
    """A part of the page under a heading."""

    title: str
    verdict: str = ""  # what it means, in a sentence or two
    note: str = ""
    charts: dict[str, Any] = field(default_factory=dict)  # by caption
    tables: list[Table] = field(default_factory=list)
    folded: bool = False  # whether the tables are hidden behind a line to click
    play: str = ""  # the slider that a button moves


def words_of(metric: str) -> str:
    return metric.replace("_", " ")


def listed(parts: Iterable[str]) -> str:
    """
    >>> listed(["softmax 2 %", "as-softmax 1 %", "focal 3 %"])
    'softmax 2 %, as-softmax 1 % and focal 3 %'
    """
    *first, last = parts
    return f"{', '.join(first)} and {last}" if first else last
