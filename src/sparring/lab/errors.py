"""Mistakes that a user can put right: the command line shows their message alone, without a traceback."""


class UserError(Exception):
    """What was expected, what came, what to do."""


class DataError(UserError):
    """Data that is not there or not as expected; the message names file and line."""


class MissingDataError(DataError):
    """Data that is not there."""
