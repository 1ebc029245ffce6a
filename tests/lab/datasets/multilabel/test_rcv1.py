from __future__ import annotations

from pathlib import Path

import pytest
from tests.lab.readers.folders import write

from sparring.lab.datasets import DataError
from sparring.lab.datasets.multilabel.rcv1 import original

TRAIN = ".I 2286\n.W\nrecov recov\nexpect\n\n.I 2287\n.W\nuruguay\n"
TOPICS = "MCAT 2286 1\nECAT 2286 1\nC24 2287 1\nECAT 2288 1\n"


def test_stories_take_their_topics_from_the_other_file(tmp_path: Path) -> None:
    files = {
        "lyrl2004_tokens_train.dat": TRAIN,
        "lyrl2004_tokens_test_pt1.dat.gz": ".I 2288\n.W\nargentin\n",
        "rcv1-v2.topics.qrels.gz": TOPICS,
    }
    assert original(tmp_path) is None
    assert original(write(tmp_path, files)) == {
        "train": [
            {"text": "recov recov expect", "labels": ["ECAT", "MCAT"]},
            {"text": "uruguay", "labels": ["C24"]},
        ],
        "test": [{"text": "argentin", "labels": ["ECAT"]}],
    }


@pytest.mark.parametrize(
    ("train", "topics", "message"),
    [
        (TRAIN + ".I 9\n.W\nb\n", TOPICS, "tokens_train.dat:9: story 9 has no topic in rcv1-v2.topics.qrels"),
        ("\na b\n", TOPICS, "tokens_train.dat:2: expected \".I\" and the number of a story first, got 'a b'"),
        (TRAIN, TOPICS + "C24 2\n", "qrels:5: expected \"TOPIC story 1\", got 'C24 2'"),
    ],
)
def test_other_lines_are_refused(train: str, topics: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=message):
        original(write(tmp_path, {"lyrl2004_tokens_train.dat": train, "rcv1-v2.topics.qrels": topics}))


def test_texts_without_topics_are_refused(tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match=r"expected rcv1-v2.topics.qrels \(or .gz\) beside lyrl2004_tokens_train.dat"
    ):
        original(write(tmp_path, {"lyrl2004_tokens_train.dat": TRAIN}))
