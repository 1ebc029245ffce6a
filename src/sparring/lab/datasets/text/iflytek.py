"""IFLYTEK (Xu et al. 2020, CLUE): what a Chinese app is for, from its description."""

from __future__ import annotations

from pathlib import Path

from sparring.lab.readers.files import check_sample, read_table
from sparring.lab.readers.hub import hub_splits
from sparring.lab.readers.published import find_file, load_published
from sparring.lab.task import Data, DataError, Splits, Where, register


def original(folder: Path) -> Splits | None:
    """CLUE's train.json and dev.json, one object a line. test.json has no labels."""
    splits: Splits = {}
    for name in ("train", "dev"):
        path = find_file(folder, f"{name}.json")
        if path is not None:
            table, splits[name] = read_table(path), []
            for number, row in table.rows:
                if not isinstance(row.get("sentence"), str) or not isinstance(row.get("label_des"), str):
                    raise DataError(
                        f'{table.place(number)}: expected the texts "sentence" and "label_des", got {row!r:.120}'
                    )
                sample = {"text": row["sentence"], "label": row["label_des"]}
                splits[name].append(check_sample("multi-class", sample, table.place(number)))
    return splits if "train" in splits else None


def hub() -> Splits:
    """The hub has the numbers of the classes alone, so these are their names."""
    return hub_splits(
        "clue/clue",
        lambda row: {"text": row["sentence"], "label": row["label"]},
        config="iflytek",
        classes="label",
    )


@register(
    "iflytek",
    kind="multi-class",
    about="which of 119 purposes a Chinese app has, from its description (Xu et al. 2020)",
    aliases=("iflytek_fewclue",),
    metric="accuracy",
    home="https://github.com/CLUEbenchmark/CLUE",
    sizes=(12133, 2599, 2600),
    max_length=256,
)
def load(where: Where) -> Data:
    stand_ins = {"iflytek_fewclue": "the labelled lines of FewCLUE, 3,707 for training"}
    return load_published(where, "multi-class", ["iflytek", "iflytek_fewclue"], original, hub, stand_ins)
