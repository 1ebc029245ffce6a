"""CoNLL-2003 (Tjong Kim Sang & De Meulder 2003): persons, places, organisations in English news."""

import re
from pathlib import Path

from sparring.lab.datasets import register_published
from sparring.lab.readers.files import read_lines
from sparring.lab.readers.hub import PARQUET, HubSource
from sparring.lab.readers.published import read_splits
from sparring.lab.task import DataError, Sample, Splits

FILES = {
    "train": ("eng.train", "train.txt"),
    "dev": ("eng.testa", "valid.txt", "dev.txt"),
    "test": ("eng.testb", "test.txt"),
}


def original(folder: Path) -> Splits | None:
    """eng.train, eng.testa and eng.testb, or train.txt, valid.txt and test.txt."""
    return read_splits(folder, FILES, _sentences)


def _sentences(path: Path) -> list[Sample]:
    """Columns word, part of speech, chunk, entity; a blank line between sentences. -DOCSTART- is no text."""
    sentences: list[Sample] = []
    tokens: list[str] = []
    tags: list[str] = []
    for place, line in [*read_lines(path), ("", "")]:
        cells = line.split()
        if cells and cells[0] != "-DOCSTART-":
            if len(cells) != 4 or not re.fullmatch(r"O|[BI]-\w+", cells[3]):
                columns = "word, part of speech, chunk, entity (I-PER, O, …)"
                raise DataError(f"{place}: expected {columns}, got {line!r:.80}")
            tokens.append(cells[0])
            tags.append(cells[3])
        elif tokens:
            sentences.append({"tokens": tokens, "tags": iob2(tags)})
            tokens, tags = [], []
    return sentences


def iob2(tags: list[str]) -> list[str]:
    """Begin every entity with B-. The original has B- only between neighbours of one type.

    >>> iob2(["I-PER", "I-PER", "B-PER", "O", "I-LOC", "I-ORG"])
    ['B-PER', 'I-PER', 'B-PER', 'O', 'B-LOC', 'B-ORG']
    """
    return [
        f"B-{tag[2:]}" if tag.startswith("I-") and before[2:] != tag[2:] else tag
        for before, tag in zip(["O", *tags], tags, strict=False)
    ]


register_published(
    "conll2003",
    kind="token",
    about="persons, places, organisations and others in English news (Tjong Kim Sang & De Meulder 2003)",
    metric="f1",
    home="https://www.clips.uantwerpen.be/conll2003/ner",
    sizes=(14042, 3251, 3454),
    original=original,
    hub=HubSource(
        "eriktks/conll2003", {"tokens": "tokens", "tags": "ner_tags"}, revision=PARQUET, classes="ner_tags"
    ),
)
