from __future__ import annotations

from pathlib import Path

import pytest
from tests.lab.readers.folders import write

from sparring.lab.datasets import DataError
from sparring.lab.datasets.text.sst5 import original


def test_trees_give_the_root_label_and_the_words(tmp_path: Path) -> None:
    files = {
        "train.txt": "(3 (2 It) (4 (2 -LRB-) (3 (2 and\\/or) (2 works))))\n(0 (2 Bad))\n",
        "trees/dev.txt": "(2 (2 So) (2 so))\n",
        "test.txt": "(1 (1 no) (2 .))\n\n",
    }
    assert original(tmp_path) is None
    assert original(write(tmp_path, files)) == {
        "train": [
            {"text": "It ( and/or works", "label": "positive"},
            {"text": "Bad", "label": "very negative"},
        ],
        "dev": [{"text": "So so", "label": "neutral"}],
        "test": [{"text": "no .", "label": "negative"}],
    }


def test_lines_with_a_label_in_front(tmp_path: Path) -> None:
    assert original(write(tmp_path, {"stsa.fine.train": "4 a stirring film\n0 bad .\n"})) == {
        "train": [
            {"text": "a stirring film", "label": "very positive"},
            {"text": "bad .", "label": "very negative"},
        ]
    }


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        (
            "train.txt",
            "(3 (2 It) (4 works))\n(3 (2 It) (4 works)\n",
            r"train.txt:2: expected a tree like .*, got '\(3 \(2 It\)",
        ),
        ("train.txt", "(7 (2 It) (4 works))\n", "train.txt:1: expected a tree .* with labels 0 to 4"),
        ("train.txt", "It works\n", "train.txt:1: expected a tree"),
        ("stsa.fine.train", "4 good\n5 great\n", "stsa.fine.train:2: expected a label 0 to 4"),
        ("stsa.fine.train", "4\n", "stsa.fine.train:1: expected a label 0 to 4"),
    ],
)
def test_other_lines_are_refused(name: str, text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=message):
        original(write(tmp_path, {name: text}))
