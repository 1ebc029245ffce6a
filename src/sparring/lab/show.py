"""Results for people: tables on a terminal or in a pipe, plain words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

WIDTH = 200  # where the output is no terminal, so that nothing wraps


def console(*, stderr: bool = False) -> Console:
    made = Console(stderr=stderr, highlight=False)
    return made if made.is_terminal else Console(stderr=stderr, highlight=False, width=WIDTH)


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> Table:
    """The first ``left`` columns are words, the others numbers."""
    made = Table(title=escape(title), box=box.SIMPLE_HEAD, title_justify="left", min_width=len(title))
    for i, column in enumerate(columns):
        made.add_column(column, justify="left" if i < left else "right", overflow="fold")
    for row in rows:
        made.add_row(*(escape(cell) for cell in row))
    return made


def percent(value: float | None, digits: int = 0) -> str:
    return "–" if value is None else f"{100 * value:.{digits}f}"


def mean_and_spread(values: dict[str, Any] | None) -> str:
    """In percent, with the standard deviation over seeds where there are several."""
    if values is None:
        return "–"
    return percent(values["mean"], 2) + (
        f" ± {percent(values['std'], 2)}" if values["std"] is not None else ""
    )


def comparison(title: str, rows: Sequence[dict[str, Any]], diverged: Sequence[str] = ()) -> Table:
    """One line a contestant; and one for each run that diverged, by name."""
    metric = rows[0]["metric"].replace("_", " ")
    against = rows[0]["contestant"].split()[0]
    faster = [f"faster than {against}"] if len(rows) > 1 else []
    columns = [
        "",
        f"test {metric} %",
        "dev",
        "seconds",
        *faster,
        "forwards %",
        "backwards %",
        "updates",
        "won %",
        "r",
    ]
    cells = [
        (
            *(
                row["contestant"],
                mean_and_spread(row["test"]),
                mean_and_spread(row["dev"]),
                f"{row['seconds']:.1f}",
            ),
            *(["–" if row["faster"] is None else f"{row['faster']:.2f}x"] if faster else []),
            *(
                percent(row["forwards"]),
                percent(row["backwards"]),
                f"{row['updates']:.0f}",
                percent(row["won_share"]),
            ),
            "–" if row["correlation"] is None else f"{row['correlation']:.2f}",
        )
        for row in rows
    ]
    cells += [(name, "diverged", *["–"] * (len(columns) - 2)) for name in diverged]
    return table(title, columns, cells)


LEGEND = (
    "seconds: training alone, mean over seeds. forwards, backwards: samples, against one of each per sample and epoch. won: share of the "
    "last epoch's rows. r: correlation of dev loss and metric over a run, -1 is best."
)
