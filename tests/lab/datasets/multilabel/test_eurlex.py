from __future__ import annotations

from pathlib import Path

import pytest
from tests.lab.readers.folders import jsonl, write

from sparring.lab.datasets import DataError
from sparring.lab.datasets.multilabel.eurlex import original

ROWS = [
    {"text": "Regulation A", "labels": ["100163", "100168"], "data_type": "train"},
    {"text": "Directive B", "labels": [], "data_type": "dev"},
    {"text": "Decision C", "labels": ["100163"], "data_type": "test"},
    {"text": "Regulation D", "labels": ["100212"], "data_type": "train"},
]


@pytest.mark.parametrize("name", ["eurlex.jsonl", "eurlex.jsonl.gz"])
def test_one_file_holds_all_parts(name: str, tmp_path: Path) -> None:
    assert original(tmp_path) is None
    assert original(write(tmp_path, {name: jsonl(*ROWS)})) == {
        "train": [
            {"text": "Regulation A", "labels": ["100163", "100168"]},
            {"text": "Regulation D", "labels": ["100212"]},
        ],
        "dev": [{"text": "Directive B", "labels": []}],
        "test": [{"text": "Decision C", "labels": ["100163"]}],
    }


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (
            {"text": "E", "labels": []},
            'eurlex.jsonl:5: expected "data_type" to be train, dev or test, got None',
        ),
        ({"text": "E", "labels": [], "data_type": "validation"}, "got 'validation'"),
        ({"text": "E", "data_type": "train"}, "eurlex.jsonl:5: .*labels missing"),
        ({"text": "E", "labels": "100163", "data_type": "train"}, "eurlex.jsonl:5: labels must be a list"),
    ],
)
def test_other_lines_are_refused(row: dict[str, object], message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=message):
        original(write(tmp_path, {"eurlex.jsonl": jsonl(*ROWS, row)}))
