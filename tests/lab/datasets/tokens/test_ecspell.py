from __future__ import annotations

from pathlib import Path

import pytest
from tests.lab.readers.folders import tsv, write

from sparring.lab.datasets import DataError, Where, get_task
from sparring.lab.datasets.tokens.ecspell import original

LAW = tsv("1|法制国家|法治国家", "0|依法|依法", "0|依法|依法", "1|一二三|一二", "1|正档|正当")


def test_domains_are_joined_and_what_would_be_known_is_left_out(tmp_path: Path) -> None:
    """The fourth line of law is uneven, the third repeats the second, the fifth is a sentence of the test file."""
    files = {"law.train": LAW, "med.train": tsv("1|八痕|疤痕"), "law.test": tsv("0|正当|正当")}
    write(tmp_path, {f"ecspell/Data/domains_data/{name}": text for name, text in files.items()})
    found = original(tmp_path / "ecspell")
    assert found is not None
    assert found.splits == {
        "train": [
            {"source": "法制国家", "target": "法治国家"},
            {"source": "依法", "target": "依法"},
            {"source": "八痕", "target": "疤痕"},
        ],
        "test": [{"source": "正当", "target": "正当"}],
    }
    assert get_task("ecspell").load(Where(tmp_path)).notes == (
        "1 sentences left out: source and target differ in length",
        "2 training sentences left out: repeated, or also in the test files",
        "no dev set: 1 samples split off train",
    )


def test_an_empty_folder_holds_nothing(tmp_path: Path) -> None:
    assert original(tmp_path) is None


@pytest.mark.parametrize("row", ["依法|依法", "x|依法|依法", "0|依法|依法|依法"])
def test_other_lines_are_refused(row: str, tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match=r"law\.train:6: expected the number of mistakes, source and target between tabs"
    ):
        original(write(tmp_path, {"law.train": LAW + tsv(row)}))
