"""An extension of griffe: the doctests of a docstring become blocks of code in the reference."""

from __future__ import annotations

import re
from typing import Any

import griffe

DOCTEST = re.compile(r"^( *)>>>.*\n(?:^(?!\s*$).*\n?)*", re.M)


def fence(match: re.Match[str]) -> str:
    return f"{match[1]}```python\n{match[0].rstrip()}\n{match[1]}```\n"


class Doctests(griffe.Extension):
    """Put doctests into fences, so that Markdown does not read their output as text."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            text = obj.docstring.value + "\n"
            obj.docstring.value = DOCTEST.sub(fence, text)
