"""Errors that a user can fix. The command line shows their message without a traceback.

Messages name settings through `option`: as flags on the command line, as arguments in Python.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

_flags = ContextVar("flags", default=False)  # whether settings are named as flags


@contextmanager
def name_flags(flags: bool = True) -> Iterator[None]:
    """Within it, `option` writes flags, as the command line needs them."""
    token = _flags.set(flags)
    try:
        yield
    finally:
        _flags.reset(token)


def names_flags() -> bool:
    """Whether `option` writes flags here. Worker processes have to be told."""
    return _flags.get()


def option(name: str, value: str | int | bool | None = None) -> str:
    """A setting, with a value if there is one, as a user has to write it.

    Example:
        >>> option("missing", "drop"), option("fresh", True), option("n_train")
        ('missing="drop"', 'fresh=True', 'n_train')
        >>> with name_flags():
        ...     option("missing", "drop"), option("fresh", True), option("test", False), option("n_train")
        ('--missing drop', '--fresh', '--no-test', '--n-train')
    """
    if not _flags.get():
        written = f'"{value}"' if isinstance(value, str) else value
        return name if value is None else f"{name}={written}"
    words = name.replace("_", "-")
    if isinstance(value, bool):
        return f"--{words}" if value else f"--no-{words}"
    return f"--{words}" if value is None else f"--{words} {value}"


class UserError(Exception):
    """A mistake of the user. The message says what was expected, what was found, and what to do."""


class DivergedError(UserError):
    """The loss, gradients or weights of a run are no longer finite. Other runs continue."""


class RunsDivergedError(UserError):
    """Some of several runs diverged.

    Attributes:
        summaries: The summaries of all runs in order; None for a run that diverged.
        failures: Name, folder and error of each run that diverged.
    """

    def __init__(self, summaries: list[dict[str, Any] | None], failures: list[dict[str, str]]) -> None:
        errors = "; ".join(failure["error"] for failure in failures)
        some = f"{len(failures)} of {len(summaries)} runs diverged: "
        super().__init__(errors if len(summaries) == 1 else some + errors)
        self.summaries = summaries
        self.failures = failures


class DataError(UserError):
    """Data that is missing or malformed. The message names file and line."""


class MissingDataError(DataError):
    """Data that was not found."""


class EmptyCellError(DataError):
    """A row of a table has no text or no label."""

    def __init__(self, place: str, column: str) -> None:
        super().__init__(
            f'{place}: column "{column}" is empty; {option("missing", "drop")} leaves such rows out'
        )
