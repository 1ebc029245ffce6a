import sys
from pathlib import Path

import pycountry
import pytest

from sparring.lab.datasets import DataError, UserError
from sparring.lab.readers.catalogues import entries, part_of, part_of_msgid, spellings
from tests.lab.datasets.mo_files import writers


def test_entries_by_hand() -> None:
    germany = entries()["iso3166-1", "Germany"]
    assert {
        language: germany[language] for language in ("de", "fr", "mr", "sr", "sr@latin", "zh_CN", "zh_TW")
    } == {
        "de": "Deutschland",
        "fr": "Allemagne",
        "mr": "जर्मनी",
        "sr": "Немачка",
        "sr@latin": "Nemačka",
        "zh_CN": "德国",
        "zh_TW": "德國",
    }
    assert entries()["iso639-3", "Danish"]["fi"] == "tanska"
    assert entries()["iso4217", "Yen"]["el"] == "γιεν"


def test_what_is_left_in_english_is_dropped() -> None:
    kuwait = entries()["iso3166-1", "Kuwait"]
    assert kuwait["fr"] == "Koweït"
    assert "de" not in kuwait  # "Kuwait"
    for (_, msgid), strings in entries().items():
        assert msgid, "the header entry"
        assert all(text and text == text.strip() != msgid for text in strings.values())


def test_entries_are_those_of_the_files() -> None:
    languages, msgids = writers()
    assert len({language for strings in entries().values() for language in strings}) == len(
        set().union(*languages.values())
    )
    assert {text for strings in entries().values() for text in strings.values()} == set(languages)
    assert sum(map(len, entries().values())) > 240_000
    assert {msgid for (_, msgid), strings in entries().items() if strings} == set().union(*msgids.values())


def test_spellings_know_all_their_languages_and_msgids() -> None:
    languages, msgids = writers()
    english = {msgid for _, msgid in entries()}
    assert [spelling.text for spelling in spellings() if spelling.text in english] == []
    assert {spelling.text for spelling in spellings()} == set(languages) - english
    for spelling in spellings():
        assert spelling.languages == tuple(sorted(languages[spelling.text]))
        assert spelling.msgids == tuple(sorted(msgids[spelling.text]))


def test_an_english_name_is_nobodys_own() -> None:
    """Italian "Perù" is Italian; "Gana" is Ghana in Turkish, but also the English name of a language."""
    texts = {spelling.text for spelling in spellings()}
    assert "Perù" in texts
    assert "Gana" not in texts


def test_parts() -> None:
    parts = part_of_msgid()
    counts = [list(parts.values()).count(name) for name in ("train", "dev", "test")]
    assert [round(count / len(parts), 3) for count in counts] == [0.8, 0.1, 0.1]
    assert part_of_msgid(seed=1) != parts
    by_text = {spelling.text: spelling for spelling in spellings()}
    assert part_of(by_text["Tanska"]) == parts["Denmark"]
    for spelling in spellings():
        assert (part_of(spelling) is None) == (len({parts[msgid] for msgid in spelling.msgids}) > 1)


def test_without_pycountry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pycountry", None)
    with pytest.raises(UserError, match=r"pip install 'sparring\[lab\]'"):
        entries.__wrapped__()


def test_without_its_translations(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(pycountry, "LOCALES_DIR", str(tmp_path))
    with pytest.raises(DataError, match=r"expected <language>/LC_MESSAGES/\*\.mo, found none"):
        entries.__wrapped__()
