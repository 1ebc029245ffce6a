"""Clinc_oos (Larson et al. 2019): 150 intents and out-of-scope questions."""

from __future__ import annotations

import json
from pathlib import Path

from sparring.lab.tasks.base import Data, DataError, Splits, Where, register
from sparring.lab.tasks.files import read_text
from sparring.lab.tasks.hub import hub_splits
from sparring.lab.tasks.published import find_file, load_published

FILES = ("data_oos_plus.json", "data_full.json", "data_small.json", "data_imbalanced.json")


def original(folder: Path) -> Splits | None:
    """The publisher's JSON: lists of [text, intent] under train, val, test and oos_train, oos_val, oos_test."""
    path = find_file(folder, *FILES)
    if path is None:
        return None
    try:
        content = json.loads(read_text(path))
    except json.JSONDecodeError as error:
        raise DataError(f"{path}:{error.lineno}: not JSON: {error.msg}") from None
    splits: Splits = {}
    for ours, theirs in (("train", "train"), ("dev", "val"), ("test", "test")):
        if theirs not in content:
            raise DataError(f"{path}: expected the keys train, val and test, got {', '.join(content)}")
        rows = content[theirs] + content.get(f"oos_{theirs}", [])
        if wrong := [row for row in rows if not isinstance(row, list) or len(row) != 2]:
            raise DataError(f"{path}: expected [text, intent] under {theirs}, got {wrong[0]!r:.80}")
        splits[ours] = [{"text": text, "label": intent} for text, intent in rows]
    return splits


def hub() -> Splits:
    return hub_splits("clinc/clinc_oos", lambda row: {"text": row["text"], "label": row["intent"]}, config="plus", classes="intent")


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
