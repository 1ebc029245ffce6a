"""Mistakes that a user can put right: the command line shows their message alone, without a traceback."""

from __future__ import annotations

from typing import Any


class UserError(Exception):
    """What was expected, what came, what to do."""


class DivergedError(UserError):
    """A run that ended because its loss, gradients or weights were no longer finite; other runs go on."""


class RunsDivergedError(UserError):
    """Some of several runs diverged.

    Attributes:
        summaries: of all runs, in their order; None for one that diverged.
        failures: for each that diverged its name, its folder and the error.
    """

    def __init__(self, summaries: list[dict[str, Any] | None], failures: list[dict[str, str]]) -> None:
        errors = "; ".join(failure["error"] for failure in failures)
        super().__init__(
            errors if len(summaries) == 1 else f"{len(failures)} of {len(summaries)} runs diverged: {errors}"
        )
        self.summaries, self.failures = summaries, failures


class DataError(UserError):
    """Data that is not there or not as expected; the message names file and line."""


class MissingDataError(DataError):
    """Data that is not there."""
