"""CoNLL-2003 (Tjong Kim Sang & De Meulder 2003): persons, places, organisations and others in English news."""

from __future__ import annotations

import re
from pathlib import Path

from sparring.lab.readers.files import read_lines
from sparring.lab.readers.hub import PARQUET, hub_splits
from sparring.lab.readers.published import find_file, load_published
from sparring.lab.task import Data, DataError, Sample, Splits, Where, register

FILES = {
    "train": ("eng.train", "train.txt"),
    "dev": ("eng.testa", "valid.txt", "dev.txt"),
    "test": ("eng.testb", "test.txt"),
}


def original(folder: Path) -> Splits | None:
    paths = {split: find_file(folder, *names) for split, names in FILES.items()}
    if paths["train"] is None:
        return None
    return {split: sentences(path) for split, path in paths.items() if path is not None}


def sentences(path: Path) -> list[Sample]:
    """Columns word, part of speech, chunk, entity; an empty line between sentences. -DOCSTART- lines are no text."""
    found: list[Sample] = []
    tokens: list[str] = []
    tags: list[str] = []
    for number, line in [*read_lines(path), (0, "")]:
        cells = line.split()
        if cells and cells[0] != "-DOCSTART-":
            if len(cells) != 4 or not re.fullmatch(r"O|[BI]-\w+", cells[3]):
                raise DataError(
                    f"{path}:{number}: expected word, part of speech, chunk, entity (I-PER, O, …), got {line!r:.80}"
                )
            tokens.append(cells[0])
            tags.append(cells[3])
        elif tokens:
            found.append({"tokens": tokens, "tags": iob2(tags)})
            tokens, tags = [], []
    return found


def iob2(tags: list[str]) -> list[str]:
    """Every entity begins with B-; the original has B- only where two of a type touch. IOB2 stays as it is.

    >>> iob2(["I-PER", "I-PER", "B-PER", "O", "I-LOC", "I-ORG"])
    ['B-PER', 'I-PER', 'B-PER', 'O', 'B-LOC', 'B-ORG']
    """
    return [
        f"B-{tag[2:]}" if tag.startswith("I-") and before[2:] != tag[2:] else tag
        for before, tag in zip(["O", *tags], tags, strict=False)
    ]


def hub() -> Splits:
    return hub_splits(
        "eriktks/conll2003",
        lambda row: {"tokens": row["tokens"], "tags": row["ner_tags"]},
        revision=PARQUET,
        classes="ner_tags",
    )


@register(
    "conll2003",
    kind="token",
    about="persons, places, organisations and others in English news (Tjong Kim Sang & De Meulder 2003)",
    metric="f1",
    home="https://www.clips.uantwerpen.be/conll2003/ner",
    sizes=(14042, 3251, 3454),
)
def load(where: Where) -> Data:
    return load_published(where, "token", ["conll2003"], original, hub)
