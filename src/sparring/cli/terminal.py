"""Words in and out of the command line under any encoding: nothing that a terminal cannot show ends in a traceback."""

from __future__ import annotations

import codecs
import io
import json
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from sparring.lab.errors import UserError
from sparring.lab.untrusted import SURROGATE, printable

SIGNS = {
    "–": "-",
    "—": "-",
    "−": "-",
    "·": "|",
    "…": "...",
    "±": "+-",
    "×": "x",
    "→": "->",
    "≥": ">=",
    "≤": "<=",
}
LETTERS = {"δ": "delta", "ε": "epsilon", "κ": "kappa", "λ": "lambda", "τ": "tau"}
STAND_INS = SIGNS | LETTERS


def _stand_in(error: UnicodeError) -> tuple[str, int]:
    """A codec's error handler: our own signs in ASCII, everything else as an escape."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    signs = error.object[error.start : error.end]
    words = (STAND_INS.get(sign) or sign.encode("ascii", "backslashreplace").decode() for sign in signs)
    return "".join(words), error.end


codecs.register_error("sparring.stand-ins", _stand_in)


def make_streams_safe() -> None:
    """Standard output and standard error replace what their encoding does not have (latin-1, cp1252, ASCII)."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="sparring.stand-ins")


def check_arguments(words: Sequence[str]) -> None:
    """Refuse arguments that are not text: a path of such bytes could not be written into a run's records."""
    for word in words:
        if SURROGATE.search(word):
            raise UserError(
                f"expected arguments in UTF-8, got {printable(word):.200}; rename the file, or write the text as UTF-8"
            )


def input_lines() -> Iterator[str]:
    """The lines of standard input without their ends."""
    try:
        for line in sys.stdin:
            yield line.rstrip("\n")
    except UnicodeDecodeError as error:
        byte = f"{error.object[error.start]:#04x}"
        raise UserError(
            f"standard input: expected {error.encoding}, found the byte {byte}; convert the text"
        ) from None


def json_text(value: Any) -> str:
    """JSON for standard output: with escapes where its encoding has no sign, so that nothing is lost."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    try:
        text.encode(getattr(sys.stdout, "encoding", None) or "utf-8")
    except UnicodeEncodeError:
        return json.dumps(value, indent=2)
    return text
