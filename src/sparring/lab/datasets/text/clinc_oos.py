"""Clinc_oos (Larson et al. 2019): 150 intents and out-of-scope questions."""

from __future__ import annotations

from pathlib import Path

from sparring.lab.readers.files import check_sample, some
from sparring.lab.readers.hub import hub_splits
from sparring.lab.readers.published import find_file, load_published
from sparring.lab.task import Data, DataError, Splits, Where, register
from sparring.lab.untrusted import read_json_object

FILES = ("data_oos_plus.json", "data_full.json", "data_small.json", "data_imbalanced.json")


def original(folder: Path) -> Splits | None:
    """The publisher's JSON: lists of [text, intent] under train, val, test and oos_train, oos_val, oos_test."""
    path = find_file(folder, *FILES)
    if path is None:
        return None
    content = read_json_object(path)
    splits: Splits = {}
    for ours, theirs in (("train", "train"), ("dev", "val"), ("test", "test")):
        if theirs not in content:
            raise DataError(f"{path}: expected the keys train, val and test, got {some(content)}")
        parts = [content[theirs], content.get(f"oos_{theirs}", [])]
        if not all(isinstance(part, list) for part in parts):
            raise DataError(f"{path}: expected a list under {theirs} and oos_{theirs}")
        rows = [row for part in parts for row in part]
        if wrong := [row for row in rows if not isinstance(row, list) or len(row) != 2]:
            raise DataError(f"{path}: expected [text, intent] under {theirs}, got {wrong[0]!r:.80}")
        place = f"{path}, {theirs}"
        splits[ours] = [
            check_sample("multi-class", {"text": text, "label": intent}, place) for text, intent in rows
        ]
    return splits


def hub() -> Splits:
    return hub_splits(
        "clinc/clinc_oos",
        lambda row: {"text": row["text"], "label": row["intent"]},
        config="plus",
        classes="intent",
    )


@register(
    "clinc_oos",
    kind="multi-class",
    about="which of 150 intents a question has, or none (Larson et al. 2019)",
    metric="accuracy",
    home="https://github.com/clinc/oos-eval",
    sizes=(15250, 3100, 5500),
    max_length=64,
)
def load(where: Where) -> Data:
    return load_published(where, "multi-class", ["clinc_oos"], original, hub)
