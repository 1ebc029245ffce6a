from __future__ import annotations

from pathlib import Path

import pytest
from tests.lab.readers.folders import write

from sparring.lab.datasets import DataError
from sparring.lab.datasets.tokens.conll2003 import original

TRAIN = """-DOCSTART- -X- O O

U.N. NNP I-NP I-ORG
met VBD I-VP O
EU NNP I-NP I-ORG
France NNP I-NP I-LOC
Spain NNP I-NP B-LOC

-DOCSTART- -X- O O

Peter NNP I-NP I-PER
Black NNP I-NP I-PER


"""
EXPECTED = [
    {"tokens": ["U.N.", "met", "EU", "France", "Spain"], "tags": ["B-ORG", "O", "B-ORG", "B-LOC", "B-LOC"]},
    {"tokens": ["Peter", "Black"], "tags": ["B-PER", "I-PER"]},
]


@pytest.mark.parametrize(
    "names", [("eng.train", "eng.testa", "eng.testb"), ("train.txt", "valid.txt.gz", "test.txt")]
)
def test_sentences_come_in_iob2(names: tuple[str, str, str], tmp_path: Path) -> None:
    """The original has B- only where two entities of a type touch; the test file here has it everywhere, and no empty line at its end."""
    train, dev, test = names
    assert original(tmp_path) is None
    assert original(
        write(
            tmp_path,
            {train: TRAIN, dev: "Rain NN I-NP O\r\n", test: "New NNP B-NP B-LOC\nYork NNP I-NP I-LOC"},
        )
    ) == {
        "train": EXPECTED,
        "dev": [{"tokens": ["Rain"], "tags": ["O"]}],
        "test": [{"tokens": ["New", "York"], "tags": ["B-LOC", "I-LOC"]}],
    }


@pytest.mark.parametrize("line", ["rejects VBZ O", "EU NNP B-NP ORG", "EU NNP B-NP B-ORG B-ORG"])
def test_other_lines_are_refused(line: str, tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match=f"eng.train:15: expected word, part of speech, chunk, entity .*, got '{line}'"
    ):
        original(write(tmp_path, {"eng.train": TRAIN + line + "\n"}))
