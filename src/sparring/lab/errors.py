"""Errors that a user can fix. The command line shows their message without a traceback."""

from typing import Any


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
        super().__init__(f'{place}: column "{column}" is empty; --missing drop leaves such rows out')
