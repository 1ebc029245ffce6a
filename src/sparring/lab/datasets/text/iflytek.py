"""IFLYTEK (Xu et al. 2020, CLUE): what a Chinese app is for, from its description."""

from pathlib import Path

from sparring.lab.datasets import register_published
from sparring.lab.readers.files import check_sample, read_table
from sparring.lab.readers.hub import HubSource
from sparring.lab.readers.published import read_splits
from sparring.lab.task import DataError, Sample, Splits


def original(folder: Path) -> Splits | None:
    """CLUE's train.json and dev.json, one object a line. test.json has no labels."""
    return read_splits(folder, {"train": ["train.json"], "dev": ["dev.json"]}, _samples)


def _samples(path: Path) -> list[Sample]:
    table = read_table(path)
    samples = []
    for number, row in table.rows:
        place = table.place(number)
        text, label = row.get("sentence"), row.get("label_des")
        if not isinstance(text, str) or not isinstance(label, str):
            raise DataError(f'{place}: expected the texts "sentence" and "label_des", got {row!r:.120}')
        samples.append(check_sample("multi-class", {"text": text, "label": label}, place))
    return samples


register_published(
    "iflytek",
    kind="multi-class",
    about="which of 119 purposes a Chinese app has, from its description (Xu et al. 2020)",
    metric="accuracy",
    home="https://github.com/CLUEbenchmark/CLUE",
    sizes=(12133, 2599, 2600),
    max_length=256,
    aliases={"iflytek_fewclue": "the labelled lines of FewCLUE, 3,707 for training"},
    original=original,
    # the hub has numbers in place of the names of the classes
    hub=HubSource("clue/clue", {"text": "sentence", "label": "label"}, config="iflytek", classes="label"),
)
