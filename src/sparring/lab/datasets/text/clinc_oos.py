"""Clinc_oos (Larson et al. 2019): 150 intents and out-of-scope questions."""

from pathlib import Path
from typing import Any

from sparring.lab.datasets import register_published
from sparring.lab.readers.files import check_sample, some
from sparring.lab.readers.hub import HubSource
from sparring.lab.readers.published import find_file
from sparring.lab.task import DataError, Sample, Splits
from sparring.lab.untrusted import read_json_object

FILES = ("data_oos_plus.json", "data_full.json", "data_small.json", "data_imbalanced.json")


def original(folder: Path) -> Splits | None:
    """The publisher's JSON: lists of [text, intent] under train, oos_train, val, oos_val, test, oos_test."""
    path = find_file(folder, *FILES)
    if path is None:
        return None
    content = read_json_object(path)
    keys = {"train": "train", "dev": "val", "test": "test"}
    return {split: _samples(path, content, key) for split, key in keys.items()}


def _samples(path: Path, content: dict[str, Any], key: str) -> list[Sample]:
    if key not in content:
        raise DataError(f"{path}: expected the keys train, val and test, got {some(content)}")
    rows = [content[key], content.get(f"oos_{key}", [])]
    if not all(isinstance(part, list) for part in rows):
        raise DataError(f"{path}: expected a list under {key} and oos_{key}")
    samples = []
    for row in [*rows[0], *rows[1]]:
        if not isinstance(row, list) or len(row) != 2:
            raise DataError(f"{path}: expected [text, intent] under {key}, got {row!r:.80}")
        samples.append(check_sample("multi-class", {"text": row[0], "label": row[1]}, f"{path}, {key}"))
    return samples


register_published(
    "clinc_oos",
    kind="multi-class",
    about="which of 150 intents a question has, or none (Larson et al. 2019)",
    metric="accuracy",
    home="https://github.com/clinc/oos-eval",
    sizes=(15250, 3100, 5500),
    max_length=64,
    original=original,
    hub=HubSource("clinc/clinc_oos", {"text": "text", "label": "intent"}, config="plus", classes="intent"),
)
