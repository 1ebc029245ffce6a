"""Read files that may be damaged or hostile: bounded unpacking, strict text, bounded JSON, safe file names.

Everything here raises `DataError` (or `json.JSONDecodeError`, which has a position) and executes nothing.
"""

from __future__ import annotations

import codecs
import gzip
import json
import re
import zipfile
import zlib
from pathlib import Path
from typing import Any

from sparring.lab.errors import DataError

MAX_TEXT = 10_000_000  # characters of one text, label or line
MAX_DEPTH = 100  # lists and objects inside each other in JSON
MAX_RATIO = 100  # unpacked bytes per packed byte; text shrinks to a third or a tenth
SMALL = 64 * 2**20  # unpacked bytes that are allowed at any ratio
BLOCK = 2**20
# an escaped backslash, a surrogate pair, or half of one
SURROGATE_ESCAPE = re.compile(
    r"\\\\|\\u[dD][89abAB]..\\u[dD][c-fC-F]..|(?P<half>\\u[dD][89a-fA-F]..)", re.DOTALL
)
SURROGATE = re.compile("[\ud800-\udfff]")
NOT_IN_FILE_NAMES = re.compile("[/\\\\\x00-\x1f\x7f\ud800-\udfff]")


def printable(text: str) -> str:
    """The text, with escapes for what UTF-8 cannot hold, such as bytes of a file name."""
    return text.encode("utf-8", "backslashreplace").decode()


def reason(error: BaseException, most: int = 160) -> str:
    """The message of an exception on one line, shortened; its type if there is no message."""
    return " ".join(str(error).split())[:most] or type(error).__name__


# ------------------------------------------------------------ bytes and text


def check_unpacked(path: Path, packed: int, unpacked: int) -> None:
    """Raise `DataError` for an archive that expands more than data does: it might fill the disk."""
    if unpacked > max(SMALL, MAX_RATIO * packed):
        raise DataError(
            f"{path}: {packed:,} bytes unpack to {unpacked:,} or more, over {MAX_RATIO} times as many; "
            "if that is intended, unpack the file first"
        )


def archive_names(path: Path) -> list[str]:
    """The names in a zip archive that does not expand more than data does. The archive is not unpacked.

    Raises:
        DataError: It does.
    """
    with zipfile.ZipFile(path) as archive:
        check_unpacked(path, path.stat().st_size, sum(info.file_size for info in archive.infolist()))
        return archive.namelist()


def read_bytes(path: Path) -> bytes:
    """The content of a file, unpacked if its name ends in .gz, as far as `check_unpacked` allows."""
    try:
        if not path.name.lower().endswith(".gz"):
            return path.read_bytes()
        packed = path.stat().st_size
        content = bytearray()
        with gzip.open(path) as file:
            while block := file.read(BLOCK):
                content += block
                check_unpacked(path, packed, len(content))
        return bytes(content)
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None
    except (OSError, EOFError, zlib.error, ValueError) as error:  # ValueError: a path with a null character
        raise DataError(f"{path}: {error}") from None


def read_text(path: Path, encoding: str = "utf-8-sig") -> str:
    """A file as text, unpacked if its name ends in .gz."""
    raw = read_bytes(path)
    utf16 = raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or b"\0" in raw[:2]
    if utf16 and encoding.startswith("utf-8"):
        raise DataError(
            f'{path}: expected UTF-8, found UTF-16 (Excel\'s "Unicode text"); save the file as "CSV UTF-8"'
        )
    try:
        return raw.decode(encoding)
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        byte = f"{raw[error.start]:#04x}"
        raise DataError(
            f"{path}:{line}: expected UTF-8, found the byte {byte}; save the file as UTF-8"
        ) from None


def check_text(text: str, what: str) -> str:
    """Return the text. Raises `DataError` if it is too long or holds half of a surrogate pair."""
    if len(text) > MAX_TEXT:
        raise DataError(
            f"{what}: {len(text):,} characters, at most {MAX_TEXT:,} are read; "
            "cut the text, or look for a missing line end"
        )
    if match := SURROGATE.search(text):
        raise DataError(
            f"{what}: expected Unicode text, got half a character (the surrogate {ord(match[0]):#06x}) "
            f"at position {match.start()}; take it out, or write it as UTF-8"
        )
    return text


def file_name(text: str) -> str:
    """A name as one part of a path: no separators, no control characters, and neither ``.`` nor ``..``.

    >>> file_name("reviews"), file_name("../x"), file_name("..")
    ('reviews', '..-x', 'data')
    """
    name = NOT_IN_FILE_NAMES.sub("-", text)
    return name if name.strip(". ") else "data"


# ------------------------------------------------------------ JSON


def parse_json(text: str) -> Any:
    """`json.loads`, with a `json.JSONDecodeError` also for nesting deeper than `MAX_DEPTH`, integers with
    thousands of digits, and halves of surrogate pairs."""
    try:
        value = json.loads(text)
    except json.JSONDecodeError:
        raise
    except RecursionError:
        raise json.JSONDecodeError("nested too deeply", text, 0) from None
    except ValueError:  # of int()
        digits = re.search(r"\d{1000,}", text)
        raise json.JSONDecodeError(
            "an integer with too many digits", text, digits.start() if digits else 0
        ) from None
    if text.count("[") + text.count("{") > MAX_DEPTH and _deeper_than(value, MAX_DEPTH):
        raise json.JSONDecodeError("nested too deeply", text, 0)
    for escape in SURROGATE_ESCAPE.finditer(text):
        if escape["half"]:
            message = f"{escape['half']} is half of a surrogate pair and no character, take it out"
            raise json.JSONDecodeError(message, text, escape.start())
    return value


def _deeper_than(value: Any, depth: int) -> bool:
    level = [value]
    for _ in range(depth + 1):
        level = [
            inner
            for outer in level
            if isinstance(outer, (dict, list))
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
        if not level:
            return False
    return True


def read_json_object(path: Path) -> dict[str, Any]:
    """The object in a JSON file."""
    try:
        value = parse_json(read_text(path))
    except json.JSONDecodeError as error:
        raise DataError(f"{path}:{error.lineno}: not JSON: {error.msg} at column {error.colno}") from None
    if not isinstance(value, dict):
        raise DataError(f"{path}: expected a JSON object, such as {{}}, got {type(value).__name__}")
    return value
