from __future__ import annotations

from collections import Counter

import pytest
from tests.lab.readers.mo_files import names_of_parts, writers

from sparring.lab.datasets import Data, Where, get_task


@pytest.fixture(scope="module")
def data() -> Data:
    return get_task("languages").load(Where())


def test_counts(data: Data) -> None:
    counts = {
        name: Counter(sample["label"] for sample in getattr(data, name)) for name in ("train", "dev", "test")
    }
    assert len(data.labels) == 89
    assert {"mr", "sr@latin", "zh_TW"} < set(data.labels)
    assert {name: max(count.values()) for name, count in counts.items()} == {
        "train": 240,
        "dev": 30,
        "test": 30,
    }
    assert all(set(count) == set(data.labels) and min(count.values()) >= 10 for count in counts.values())
    assert len(data.train) + len(data.dev) + len(data.test) > 26_000


def test_a_language_is_a_class_if_it_has_200_strings_of_its_own(data: Data) -> None:
    languages, msgids = writers()
    english = set().union(*msgids.values())
    own = Counter(min(who) for text, who in languages.items() if len(who) == 1 and text not in english)
    assert set(data.labels) == {language for language, count in own.items() if count >= 200}


def test_one_language_writes_it_so_over_all_catalogues(data: Data) -> None:
    languages, _ = writers()
    texts = set()
    for sample in data.train + data.dev + data.test:
        assert languages[sample["text"]] == {sample["label"]}
        texts.add(sample["text"])
    assert len(texts) == len(data.train) + len(data.dev) + len(data.test)


def test_no_name_is_in_two_parts(data: Data) -> None:
    train, dev, test = names_of_parts(data)
    assert not train & dev | train & test | dev & test
    assert min(map(len, (train, dev, test))) > 100


def test_labels_by_hand(data: Data) -> None:
    known = {
        "Griechenland": "de",
        "Valko-Venäjä": "fi",
        "Αργεντινή": "el",
        "फिनलॅंड": "mr",
        "巴貝多": "zh_TW",
        "貝寧": "zh_HK",
        "Belîs": "cy",
    }
    label = {sample["text"]: sample["label"] for sample in data.train + data.dev + data.test}
    assert {text: label[text] for text in known} == known
    assert not {"Schweiz", "Ísland", "Duitsland", "德國"} & set(
        label
    )  # each of them is written so in several languages
    assert {label[text] for text in label if "ς" in text} == {"el"}  # final sigma
    assert {label[text] for text in label if "ő" in text} == {"hu"}
    assert {label[text] for text in label if any("\u0e00" <= c <= "\u0e7f" for c in text)} == {"th"}
    assert {label[text] for text in label if any("\u3040" <= c <= "\u30ff" for c in text)} == {"ja"}
    assert {label[text] for text in label if any("\uac00" <= c <= "\ud7a3" for c in text)} == {"ko"}


def test_the_same_each_time(data: Data) -> None:
    again = get_task("languages").load(Where())
    assert (again.train, again.dev, again.test) == (data.train, data.dev, data.test)
    assert [sample["label"] for sample in data.train[:50]] != sorted(
        sample["label"] for sample in data.train[:50]
    )
