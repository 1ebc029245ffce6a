"""The publishers' forms of data sets for tagging and spelling."""

from pathlib import Path

import pytest

from sparring.lab.datasets import Where, get_task
from tests.lab.datasets.folders import check_read, check_refused, read, tsv, write

CONLL = """-DOCSTART- -X- O O

U.N. NNP I-NP I-ORG
met VBD I-VP O
EU NNP I-NP I-ORG
France NNP I-NP I-LOC
Spain NNP I-NP B-LOC

-DOCSTART- -X- O O

Peter NNP I-NP I-PER
Black NNP I-NP I-PER


"""
LAW = tsv("1|法制国家|法治国家", "0|依法|依法", "0|依法|依法", "1|一二三|一二", "1|正档|正当")


@pytest.mark.parametrize(
    "names", [("eng.train", "eng.testa", "eng.testb"), ("train.txt", "valid.txt.gz", "test.txt")]
)
def test_conll2003_comes_in_iob2(names: tuple[str, str, str], tmp_path: Path) -> None:
    """The original has B- only between entities of a type; the test file here has it everywhere."""
    texts = (CONLL, "Rain NN I-NP O\r\n", "New NNP B-NP B-LOC\nYork NNP I-NP I-LOC")
    expected = {
        "train": [
            {
                "tokens": ["U.N.", "met", "EU", "France", "Spain"],
                "tags": ["B-ORG", "O", "B-ORG", "B-LOC", "B-LOC"],
            },
            {"tokens": ["Peter", "Black"], "tags": ["B-PER", "I-PER"]},
        ],
        "dev": [{"tokens": ["Rain"], "tags": ["O"]}],
        "test": [{"tokens": ["New", "York"], "tags": ["B-LOC", "I-LOC"]}],
    }
    check_read("tokens.conll2003", tmp_path, dict(zip(names, texts, strict=True)), expected)


@pytest.mark.parametrize("line", ["rejects VBZ O", "EU NNP B-NP ORG", "EU NNP B-NP B-ORG B-ORG"])
def test_other_lines_of_conll2003_are_refused(line: str, tmp_path: Path) -> None:
    message = f"eng.train:15: expected word, part of speech, chunk, entity .*, got '{line}'"
    check_refused("tokens.conll2003", tmp_path, {"eng.train": CONLL + line + "\n"}, message)


def test_ecspell_joins_domains_and_leaves_out_known_sentences(tmp_path: Path) -> None:
    """The third line of law repeats the second, the fourth is uneven, the fifth is also in the test file."""
    files = {"law.train": LAW, "med.train": tsv("1|八痕|疤痕"), "law.test": tsv("0|正当|正当")}
    assert read("tokens.ecspell", tmp_path) is None
    write(tmp_path / "ecspell" / "Data" / "domains_data", files)
    splits, _ = read("tokens.ecspell", tmp_path / "ecspell")
    assert splits == {
        "train": [
            {"source": "法制国家", "target": "法治国家"},
            {"source": "依法", "target": "依法"},
            {"source": "八痕", "target": "疤痕"},
        ],
        "test": [{"source": "正当", "target": "正当"}],
    }
    assert get_task("ecspell").load(Where(tmp_path)).notes == (
        "1 sentences left out: source and target differ in length",
        "2 training sentences left out: repeated, or also in the test files",
        "no dev set: 1 samples split off train",
    )


@pytest.mark.parametrize("row", ["依法|依法", "x|依法|依法", "0|依法|依法|依法"])
def test_other_lines_of_ecspell_are_refused(row: str, tmp_path: Path) -> None:
    message = r"law\.train:6: expected the number of mistakes, source and target between tabs"
    check_refused("tokens.ecspell", tmp_path, {"law.train": LAW + tsv(row)}, message)
