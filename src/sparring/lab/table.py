"""One table of results and its four forms: terminal, Markdown, HTML and JSON."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as RichTable

LONGEST_WORD = 40  # characters of a word that is not broken: a longer one may be an address
MARKDOWN_WIDTH = 110  # columns of notes and paragraphs in a page
PIPE_WIDTH = 200  # columns assumed where the output is not a terminal, so that no line wraps


class Cell(NamedTuple):
    """A value and how it is printed.

    Args:
        text: What the terminal, Markdown and HTML show.
        value: What JSON holds, and what an HTML table sorts by if it is a number or has a ``mean``.
        picture: Address of an image that HTML shows above the text.
    """

    text: str
    value: Any
    picture: str | None = None

    @property
    def sort_key(self) -> float | None:
        value = self.value.get("mean") if isinstance(self.value, Mapping) else self.value
        return value if isinstance(value, (int, float)) else None


MISSING = Cell("–", None)
Row: TypeAlias = "Sequence[str | Cell]"


def number(value: float | None, digits: int = 2, unit: str = "") -> Cell:
    """A cell for a number with a fixed number of decimals."""
    return MISSING if value is None else Cell(f"{value:.{digits}f}{unit}", value)


def percent(value: float | None, digits: int = 2) -> Cell:
    """A cell for a share between 0 and 1, in percent."""
    return MISSING if value is None else number(100 * value, digits)


@dataclass
class Table:
    """Columns and rows of results.

    Args:
        title: A line above the table; may be empty.
        columns: The headings.
        rows: One entry for each column: a plain string, or a `Cell` where the text stands for a value.
        notes: Lines below the table.
        n_text: The first ``n_text`` columns hold text and are aligned to the left, the others to the right.

    Example:
        >>> rows = [["softmax", percent(0.5)], ["as-softmax", MISSING]]
        >>> table = Table("Scores", ["loss", "accuracy %"], rows)
        >>> print(table.markdown())
        **Scores**
        <BLANKLINE>
        | loss | accuracy % |
        | --- | ---: |
        | softmax | 50.00 |
        | as-softmax | – |
        <BLANKLINE>
        >>> table.json()["rows"]
        [['softmax', 50.0], ['as-softmax', None]]
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Row]
    notes: Sequence[str] = ()
    n_text: int = 1

    def texts(self) -> list[list[str]]:
        """The rows as they are printed."""
        return [[_cell(cell).text for cell in row] for row in self.rows]

    def rich(self) -> RichTable:
        """The table for a terminal, without title and notes."""
        from rich import box
        from rich.table import Table as RichTable
        from rich.text import Text

        table = RichTable(box=box.SIMPLE_HEAD)
        for i, (column, width) in enumerate(zip(self.columns, self._widths(), strict=True)):
            if i < self.n_text:
                table.add_column(Text(column), overflow="fold", min_width=min(width, LONGEST_WORD))
            else:  # a number never breaks
                heading = "\n".join(textwrap.wrap(column, width)) if column else ""
                table.add_column(Text(heading), justify="right", no_wrap=True)
        for row in self.texts():
            table.add_row(*map(Text, row))
        return table

    def _widths(self) -> list[int]:
        """The least width of each column: its longest word; for numbers its longest cell."""
        widths = []
        for i, column in enumerate(self.columns):
            texts = [row[i] for row in self.texts()]
            cells = [word for text in texts for word in text.split()] if i < self.n_text else texts
            widths.append(max(map(len, [*column.split(), *cells, ""])))
        return widths

    def print(self, to: Console | None = None) -> None:
        """Print title, table and notes on standard output, or on another console."""
        to = to or console()
        if self.title:
            to.print(self.title, style="italic", markup=False)
        widths = [min(width, LONGEST_WORD) for width in self._widths()]
        if sum(widths) + 3 * len(widths) > to.width:
            self._print_lists(to)
        else:
            to.print(self.rich())
        for note in self.notes:
            to.print(note, style="dim", markup=False)

    def _print_lists(self, to: Console) -> None:
        """Print a list for each row, where the columns do not fit side by side."""
        width = max(map(len, self.columns))
        for name, *texts in self.texts():
            to.print(f"\n{name}", style="bold", markup=False)
            for column, text in zip(self.columns[1:], texts, strict=True):
                to.print(f"  {column:<{width}}  {text}", markup=False)

    def markdown(self) -> str:
        """The title in bold, the table, and the notes as a list."""
        rule = ["---" if i < self.n_text else "---:" for i in range(len(self.columns))]
        lines = [[text.replace("|", "\\|") for text in row] for row in (self.columns, *self.texts())]
        lines.insert(1, rule)
        title = f"**{self.title}**\n\n" if self.title else ""
        notes = "\n" + "".join(wrapped(f"- {note}", "  ") + "\n" for note in self.notes) if self.notes else ""
        return title + "".join(f"| {' | '.join(line)} |\n" for line in lines) + notes

    def html(self) -> str:
        """A ``<table>`` that scrolls sideways and that a script can sort; every text is escaped."""
        head = "\n".join(
            f'<th scope="col"{self._class(i)}><button type="button">{escape(column)}</button></th>'
            for i, column in enumerate(self.columns)
        )
        body = "\n".join(
            f"<tr>{''.join(self._td(i, _cell(cell)) for i, cell in enumerate(row))}</tr>" for row in self.rows
        )
        title = escape(self.title)
        return (
            f'<div class="wide" role="region" aria-label="{title}" tabindex="0"><table class="sortable">\n'
            f"<caption>{title}</caption>\n<thead><tr>\n{head}\n</tr></thead>\n<tbody>\n{body}\n</tbody>\n"
            "</table></div>\n"
        )

    def _repr_html_(self) -> str:
        """The table in a notebook, which has no script that sorts it."""
        lines = [("th", self.columns), *(("td", row) for row in self.texts())]
        rows = (f"<tr>{''.join(f'<{tag}>{escape(text)}</{tag}>' for text in row)}</tr>" for tag, row in lines)
        notes = "".join(f"<p><small>{escape(note)}</small></p>" for note in self.notes)
        return f"<table><caption>{escape(self.title)}</caption>{''.join(rows)}</table>{notes}"

    def _class(self, column: int) -> str:
        return ' class="word"' if column < self.n_text else ""

    def _td(self, column: int, cell: Cell) -> str:
        key, text = cell.sort_key, cell.text
        sort = ""
        if key is not None:
            sort = f' data-value="{key}"'
            text = text.replace("-", "−")
        picture = f'<img class="sample" src="{escape(cell.picture)}" alt="">' if cell.picture else ""
        return f"<td{self._class(column)}{sort}>{picture}{escape(text)}</td>"

    def json(self) -> dict[str, Any]:
        """Title, columns, rows of values, and notes."""
        rows = [[_cell(cell).value for cell in row] for row in self.rows]
        return {"title": self.title, "columns": list(self.columns), "rows": rows, "notes": list(self.notes)}


def plural(n: int, noun: str) -> str:
    """A count and its noun: ``1 run``, ``3 runs``."""
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"


def wrapped(text: str, indent: str = "") -> str:
    """A paragraph or item of a list for a Markdown page. Words are not broken."""
    return textwrap.fill(
        text, MARKDOWN_WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def _cell(cell: str | Cell) -> Cell:
    return Cell(cell, cell) if isinstance(cell, str) else cell


def console(*, stderr: bool = False) -> Console:
    """A console without highlighting. Where the output is not a terminal, it is wide, or as $COLUMNS says."""
    from rich.console import Console

    terminal = Console(stderr=stderr, highlight=False)
    if terminal.is_terminal or os.environ.get("COLUMNS", "").isdigit():
        return terminal
    return Console(stderr=stderr, highlight=False, width=PIPE_WIDTH)
