"""Elements of SGML files that XML parsers refuse: unescaped characters, unquoted attributes, no root."""

import html
import re
from collections.abc import Iterator
from pathlib import Path

from sparring.lab.task import DataError
from sparring.lab.untrusted import read_text


def blocks(path: Path, *tags: str, encoding: str = "utf-8-sig") -> Iterator[tuple[str, str]]:
    """The elements with one of these tags, each with the place (``path:line``) at which it begins."""
    text = read_text(path, encoding)
    begins = [*re.finditer(rf"<({'|'.join(tags)})\b", text, re.IGNORECASE)]
    if not begins:
        raise DataError(f"{path}: expected elements <{'> or <'.join(tags)}>, found none")
    line = 1 + text.count("\n", 0, begins[0].start())
    for begin, end in zip(begins, [*(match.start() for match in begins[1:]), len(text)], strict=True):
        place = f"{path}:{line}"
        block = text[begin.start() : end]
        if not re.search(rf"</{begin[1]}\s*>", block, re.IGNORECASE):
            raise DataError(f"{place}: expected </{begin[1]}> before the next element or the end of the file")
        yield place, block
        line += block.count("\n")


def element(block: str, tag: str) -> str | None:
    """The text of the first element with this tag, unescaped; None if there is none."""
    match = re.search(rf"<{tag}\b[^>]*>(.*?)</{tag}\s*>", block, re.DOTALL | re.IGNORECASE)
    return None if match is None else html.unescape(match[1]).strip()
