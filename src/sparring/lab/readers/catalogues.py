"""The names of languages, countries, regions, scripts and currencies in 163 languages: the iso-codes translations in the pycountry package.

Nothing is downloaded. An English name (a *msgid*) stands in up to seven catalogues, and each language translates some of them. A name that
two entries share is one name: parts of a task are split by msgid, so that what is tested was not seen in another language.
"""

from __future__ import annotations

import gettext
import random
import unicodedata
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from sparring.lab.task import SPLITS, DataError, UserError

HOME = "pycountry (iso-codes translations)"
SHARES = (0.8, 0.1, 0.1)  # of the msgids, for train, dev and test


class Spelling(NamedTuple):
    """A string as the catalogues have it: the languages that write it so, and what it stands for."""

    text: str
    languages: tuple[str, ...]
    msgids: tuple[str, ...]


@cache
def entries() -> Mapping[tuple[str, str], Mapping[str, str]]:
    """(catalogue, msgid) → {language: string}. What is empty or left in English is dropped; strings are stripped and in NFC."""
    try:
        import pycountry
    except ImportError:
        raise UserError(
            "this task's names come with pycountry, which is not installed: pip install 'sparring[lab]'"
        ) from None
    folder = Path(pycountry.LOCALES_DIR)
    files = sorted(folder.glob("*/LC_MESSAGES/*.mo"))
    if not files:
        raise DataError(
            f"{folder}: expected <language>/LC_MESSAGES/*.mo, found none; reinstall it: pip install --force-reinstall pycountry"
        )
    found: dict[tuple[str, str], dict[str, str]] = {}
    for path in files:
        catalogue, language = path.stem, path.parent.parent.name
        for msgid, text in read_catalogue(path).items():
            strings = found.setdefault((catalogue, msgid), {})
            if text not in ("", msgid):
                strings[language] = text
    return found


def read_catalogue(path: Path) -> dict[str, str]:
    """One .mo file: {msgid: msgstr} without the header, which is the translation of the empty string."""
    with path.open("rb") as file:
        catalogue: dict[Any, str] = vars(gettext.GNUTranslations(file))[
            "_catalog"
        ]  # gettext has no public way to list what it read
    pairs = (
        (_clean(msgid), _clean(text)) for msgid, text in catalogue.items() if isinstance(msgid, str)
    )  # plural forms have tuples
    return {msgid: text for msgid, text in pairs if msgid}


def _clean(text: str) -> str:
    return unicodedata.normalize("NFC", text).strip()


@cache
def spellings() -> tuple[Spelling, ...]:
    """Every string once, its languages and msgids sorted.

    Strings that are themselves an English name are left out: a language that writes the same has "not translated" them, so nobody knows
    which languages do.
    """
    english = {msgid for _, msgid in entries()}
    uses: dict[
        str, tuple[tuple[str, ...], tuple[str, ...]]
    ] = {}  # tuples, since 200,000 sets take a second longer
    for (_, msgid), strings in entries().items():
        for language, text in strings.items():
            languages, msgids = uses.get(text, ((), ()))
            uses[text] = (*languages, language), (*msgids, msgid)
    return tuple(
        Spelling(text, tuple(sorted(set(languages))), tuple(sorted(set(msgids))))
        for text, (languages, msgids) in uses.items()
        if text not in english
    )


@cache
def part_of_msgid(seed: int = 0) -> Mapping[str, str]:
    """msgid → train, dev or test, whatever the catalogue."""
    msgids = sorted({msgid for _, msgid in entries()})
    random.Random(seed).shuffle(msgids)
    ends = [round(sum(SHARES[: i + 1]) * len(msgids)) for i in range(len(SHARES))]
    return {
        msgid: next(name for name, end in zip(SPLITS, ends, strict=True) if i < end)
        for i, msgid in enumerate(msgids)
    }


def part_of(spelling: Spelling) -> str | None:
    """None where it stands for names of several parts: it can be in none of them."""
    parts = {part_of_msgid()[msgid] for msgid in spelling.msgids}
    return parts.pop() if len(parts) == 1 else None
