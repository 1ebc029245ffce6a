from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.lab.readers.folders import write

from sparring.lab.datasets import DataError
from sparring.lab.datasets.text.clinc_oos import original

CONTENT = {
    "train": [["hello there", "greeting"]],
    "oos_train": [["how far is the moon", "oos"]],
    "val": [["good day", "greeting"]],
    "oos_val": [],
    "test": [["see you", "goodbye"]],
    "oos_test": [["who am i", "oos"]],
}


def test_intents_and_out_of_scope_questions_are_joined(tmp_path: Path) -> None:
    assert original(tmp_path) is None
    assert original(write(tmp_path, {"data_full.json": json.dumps(CONTENT)})) == {
        "train": [
            {"text": "hello there", "label": "greeting"},
            {"text": "how far is the moon", "label": "oos"},
        ],
        "dev": [{"text": "good day", "label": "greeting"}],
        "test": [{"text": "see you", "label": "goodbye"}, {"text": "who am i", "label": "oos"}],
    }


def test_the_plus_version_comes_first(tmp_path: Path) -> None:
    plus = {**CONTENT, "oos_train": [["plus", "oos"]]}
    found = original(
        write(tmp_path, {"data_full.json": json.dumps(CONTENT), "data_oos_plus.json": json.dumps(plus)})
    )
    assert found is not None
    assert found["train"][1]["text"] == "plus"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"train":\n oops}', "data_full.json:2: not JSON"),
        ('{"train": []}', "expected the keys train, val and test, got train"),
        ('{"train": [["a", "b", "c"]]}', r"expected \[text, intent\] under train, got \['a', 'b', 'c'\]"),
    ],
)
def test_other_content_is_refused(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=message):
        original(write(tmp_path, {"data_full.json": text}))
