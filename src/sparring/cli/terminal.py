"""Input and output of the command line under any encoding, without tracebacks."""

import codecs
import io
import json
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from sparring.lab.errors import UserError
from sparring.lab.untrusted import SURROGATE, printable

SIGNS = {"·": "|", "…": "...", "±": "+-", "×": "x", "→": "->", "≥": ">=", "≤": "<="}
GREEK = {"δ": "delta", "ε": "epsilon", "κ": "kappa", "λ": "lambda", "τ": "tau"}
GREEK |= {"α": "alpha", "β": "beta", "γ": "gamma"}
STAND_INS = SIGNS | GREEK | dict.fromkeys("–—−", "-")


def _stand_in(error: UnicodeError) -> tuple[str, int]:
    """Replace characters that an encoding lacks: those in ``STAND_INS`` by ASCII, others by an escape."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    characters = error.object[error.start : error.end]
    return "".join(
        STAND_INS.get(c) or c.encode("ascii", "backslashreplace").decode() for c in characters
    ), error.end


codecs.register_error("sparring.stand-ins", _stand_in)


def make_streams_safe() -> None:
    """Make standard output and standard error replace characters that their encoding lacks."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="sparring.stand-ins")


def check_arguments(words: Sequence[str]) -> None:
    """Refuse arguments that are not UTF-8: such a path cannot be written into a run's records."""
    for word in words:
        if SURROGATE.search(word):
            expected = "expected arguments in UTF-8, got"
            raise UserError(f"{expected} {printable(word):.200}; rename the file, or write the text as UTF-8")


def input_lines() -> Iterator[str]:
    """The lines of standard input without their ends."""
    try:
        for line in sys.stdin:
            yield line.rstrip("\n")
    except UnicodeDecodeError as error:
        byte = f"{error.object[error.start]:#04x}"
        expected = f"standard input: expected {error.encoding}, got the byte"
        raise UserError(f"{expected} {byte}; convert the text") from None


def fail(error: object) -> int:
    """Print an error as one line. Return the exit code."""
    print(f"sparring: {error}", file=sys.stderr)
    return 1


def sizes_text(sizes: Sequence[int]) -> str:
    return "/".join(f"{size:,}" for size in sizes)


def print_json(value: Any) -> None:
    """Print JSON, with null for NaN. Escape characters that the output's encoding lacks."""
    from sparring.lab.runs.records import plain

    print(json_text(plain(value)))


def json_text(value: Any) -> str:
    text = json.dumps(value, indent=2, ensure_ascii=False)
    try:
        text.encode(getattr(sys.stdout, "encoding", None) or "utf-8")
    except UnicodeEncodeError:
        return json.dumps(value, indent=2)
    return text
