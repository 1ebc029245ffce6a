from __future__ import annotations

from pathlib import Path

import pytest
from tests.lab.readers.folders import write

from sparring.lab.datasets import DataError, Where, get_task
from sparring.lab.datasets.text.squad_qg import original

FILES = {
    "src-train.txt": "denver won the super bowl .\n\nbeyoncé gave $ 250,000 .\n",
    "tgt-train.txt": "who won the super bowl ?\nwhat ?\nhow much did beyonce give ?\n",
    "src-dev.txt.gz": "it is a replica .\n",
    "tgt-dev.txt.gz": "what is it ?\n",
    "src-test.txt": "rome is old .",
    "tgt-test.txt": "what is old ?",
}


@pytest.mark.parametrize("place", ["", "data/processed"])
def test_the_publishers_lines_stand_side_by_side(place: str, tmp_path: Path) -> None:
    assert original(tmp_path) is None
    write(tmp_path / "squad_qg" / place, FILES)
    data = get_task("squad_qg").load(Where(tmp_path, hub=False))
    assert data.train == [
        {"source": "denver won the super bowl .", "target": "who won the super bowl ?"},
        {"source": "beyoncé gave $ 250,000 .", "target": "how much did beyonce give ?"},
    ]
    assert data.dev == [{"source": "it is a replica .", "target": "what is it ?"}]
    assert data.test == [{"source": "rome is old .", "target": "what is old ?"}]
    assert data.labels == []
    assert data.notes == (
        "1 pairs left out: an empty line on one side",
        "train is not the published one of 70,484 pairs: 2",
    )


def test_files_that_do_not_fit_are_named(tmp_path: Path) -> None:
    write(tmp_path, {"src-train.txt": "a\nb\n", "tgt-train.txt": "c\n"})
    with pytest.raises(DataError, match=r"src-train.txt has 2 lines and .*tgt-train.txt 1: expected as many"):
        original(tmp_path)
    (tmp_path / "tgt-train.txt").unlink()
    with pytest.raises(
        DataError, match=r"expected src-train.txt and tgt-train.txt.*; tgt-train.txt is not there"
    ):
        original(tmp_path)
