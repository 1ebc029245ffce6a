from __future__ import annotations

from pathlib import Path

import pytest
from tests.lab.readers.folders import jsonl, write

from sparring.lab.datasets import DataError
from sparring.lab.datasets.text.iflytek import original

TRAIN = jsonl(
    {"label": "110", "label_des": "社区超市", "sentence": "买菜"},
    {"label": "70", "label_des": "工具", "sentence": "手电"},
)


def test_descriptions_are_the_labels_and_the_hidden_test_is_not_read(tmp_path: Path) -> None:
    dev = jsonl({"label": "70", "label_des": "工具", "sentence": "日历"})
    assert original(tmp_path) is None
    assert original(
        write(
            tmp_path, {"train.json": TRAIN, "dev.json": dev, "test.json": jsonl({"id": 0, "sentence": "x"})}
        )
    ) == {
        "train": [{"text": "买菜", "label": "社区超市"}, {"text": "手电", "label": "工具"}],
        "dev": [{"text": "日历", "label": "工具"}],
    }


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            jsonl({"label": "1", "sentence": "x"}),
            'train.json:3: expected the texts "sentence" and "label_des", got {.label',
        ),
        (jsonl({"label_des": "x", "sentence": None}), "train.json:3: expected the texts"),
        ("x\n", "train.json:3: expected one JSON object a line"),
    ],
)
def test_other_lines_are_refused(line: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=message):
        original(write(tmp_path, {"train.json": TRAIN + line}))
