"""Texts of SGML files that no XML parser takes: unescaped signs, attributes without quotes, no root."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from pathlib import Path

from sparring.lab.readers.files import read_text
from sparring.lab.task import DataError


def blocks(path: Path, *tags: str, encoding: str = "utf-8-sig") -> Iterator[tuple[int, str]]:
    """The elements with one of these tags, each with the line it begins on."""
    text = read_text(path, encoding)
    begins = [*re.finditer(rf"<({'|'.join(tags)})\b", text, re.IGNORECASE)]
    if not begins:
        raise DataError(f"{path}: expected elements <{'> or <'.join(tags)}>, found none")
    line = 1 + text.count("\n", 0, begins[0].start())
    for begin, end in zip(begins, [*(match.start() for match in begins[1:]), len(text)], strict=True):
        block = text[begin.start() : end]
        if not re.search(rf"</{begin[1]}\s*>", block, re.IGNORECASE):
            raise DataError(
                f"{path}:{line}: expected </{begin[1]}> before the next element or the end of the file"
            )
        yield line, block
        line += block.count("\n")


def element(block: str, tag: str) -> str | None:
    """The text of the first such element, unescaped, None where there is none."""
    match = re.search(rf"<{tag}\b[^>]*>(.*?)</{tag}\s*>", block, re.DOTALL | re.IGNORECASE)
    return None if match is None else html.unescape(match[1]).strip()
