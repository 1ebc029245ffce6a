"""Names of languages, countries, regions, scripts and currencies in 163 languages, from pycountry.

Its translations are those of iso-codes; nothing is downloaded. An English name (a *msgid*) is in up to seven
catalogues, and each language translates some of them. Splits are made by msgid: a name in the test set does
not occur in the training set in another language.
"""

import gettext
import random
import unicodedata
from collections import defaultdict
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from sparring.lab.task import SPLITS, DataError, UserError

HOME = "pycountry (iso-codes translations)"
SHARES = (0.8, 0.1, 0.1)  # of the msgids, for train, dev and test


class Spelling(NamedTuple):
    """A string in the catalogues, the languages that write it, and the msgids it translates; both sorted."""

    text: str
    languages: tuple[str, ...]
    msgids: tuple[str, ...]


@cache
def entries() -> Mapping[tuple[str, str], Mapping[str, str]]:
    """(catalogue, msgid) -> {language: translation}.

    Translations are stripped and in NFC; those that are empty or equal to the English name are left out.
    """
    try:
        import pycountry
    except ImportError:
        raise UserError("these names come with pycountry: pip install 'sparring[lab]'") from None
    folder = Path(pycountry.LOCALES_DIR)
    files = sorted(folder.glob("*/LC_MESSAGES/*.mo"))
    if not files:
        advice = "pip install --force-reinstall pycountry"
        raise DataError(f"{folder}: expected <language>/LC_MESSAGES/*.mo, found none; {advice}")
    translations: dict[tuple[str, str], dict[str, str]] = {}
    for path in files:
        language = path.parent.parent.name
        for msgid, text in _read_catalogue(path).items():
            by_language = translations.setdefault((path.stem, msgid), {})
            if text not in ("", msgid):
                by_language[language] = text
    return translations


def _read_catalogue(path: Path) -> dict[str, str]:
    """{msgid: translation} of a .mo file, without the header, which translates the empty string."""
    with path.open("rb") as file:  # gettext has no public way to list its entries
        catalogue: dict[Any, str] = vars(gettext.GNUTranslations(file))["_catalog"]
    names = [key for key in catalogue if isinstance(key, str) and key.strip()]  # plurals have tuples
    return {_clean(name): _clean(catalogue[name]) for name in names}


def _clean(text: str) -> str:
    return unicodedata.normalize("NFC", text).strip()


@cache
def spellings() -> tuple[Spelling, ...]:
    """Every translation once.

    Strings that are an English name themselves are left out: the catalogues have no translation where a
    language writes the same, so their languages are not known.
    """
    english = {msgid for _, msgid in entries()}
    languages: dict[str, list[str]] = defaultdict(list)
    msgids: dict[str, list[str]] = defaultdict(list)
    for (_, msgid), translations in entries().items():
        for language, text in translations.items():
            languages[text].append(language)
            msgids[text].append(msgid)
    return tuple(
        Spelling(text, tuple(sorted(set(languages[text]))), tuple(sorted(set(msgids[text]))))
        for text in languages
        if text not in english
    )


@cache
def part_of_msgid(seed: int = 0) -> Mapping[str, str]:
    """msgid -> train, dev or test; the same in all catalogues."""
    msgids = sorted({msgid for _, msgid in entries()})
    random.Random(seed).shuffle(msgids)
    parts: dict[str, str] = {}
    for i, split in enumerate(SPLITS):
        end = round(sum(SHARES[: i + 1]) * len(msgids))
        parts |= dict.fromkeys(msgids[len(parts) : end], split)
    return parts


def part_of(spelling: Spelling) -> str | None:
    """train, dev or test; None for a spelling that translates msgids of several parts."""
    parts = {part_of_msgid()[msgid] for msgid in spelling.msgids}
    return parts.pop() if len(parts) == 1 else None
