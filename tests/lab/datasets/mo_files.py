"""A second reader of pycountry's catalogues, from the bytes of GNU .mo files instead of through gettext."""

import struct
import unicodedata
from collections import defaultdict
from functools import cache
from pathlib import Path

import pycountry


def read_mo(path: Path) -> dict[str, str]:
    raw = path.read_bytes()
    magic, _, count, originals, translations = struct.unpack("<5I", raw[:20])
    assert magic == 0x950412DE

    def string(table: int, i: int) -> str:
        length, begin = struct.unpack_from("<2I", raw, table + 8 * i)
        return unicodedata.normalize("NFC", raw[begin : begin + length].decode("utf-8")).strip()

    return {string(originals, i): string(translations, i) for i in range(count)}


@cache
def writers() -> tuple[dict[str, set[str]], dict[str, set[str]]]:
    """For every translation the languages that write it and the msgids it translates, over all catalogues."""
    languages, msgids = defaultdict(set), defaultdict(set)
    for path in Path(pycountry.LOCALES_DIR).glob("*/LC_MESSAGES/*.mo"):
        for msgid, text in read_mo(path).items():
            if msgid and text and text != msgid:
                languages[text].add(path.parts[-3])
                msgids[text].add(msgid)
    return languages, msgids
