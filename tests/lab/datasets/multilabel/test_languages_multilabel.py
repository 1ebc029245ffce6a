from __future__ import annotations

import pytest
from tests.lab.readers.mo_files import names_of_parts, writers

from sparring.lab.datasets import Data, Where, get_task


@pytest.fixture(scope="module")
def data() -> Data:
    return get_task("languages-multilabel").load(Where())


def test_counts(data: Data) -> None:
    samples = data.train + data.dev + data.test
    sizes = [len(sample["labels"]) for sample in samples]
    assert len(data.labels) == 64
    assert 20_000 < len(samples) < 30_000
    assert [round(len(part) / len(samples), 1) for part in (data.train, data.dev, data.test)] == [
        0.8,
        0.1,
        0.1,
    ]
    assert 2.0 < sum(sizes) / len(sizes) < 2.2
    assert 0.6 < sum(size > 1 for size in sizes) / len(sizes) < 0.7
    assert len({sample["text"] for sample in samples}) == len(samples)


def test_labels_are_all_the_classes_that_write_it_so(data: Data) -> None:
    languages, _ = writers()
    classes = set(data.labels)
    for sample in data.train + data.dev + data.test:
        who = languages[sample["text"]]
        assert sample["labels"] == sorted(who & classes)
        assert len(sample["labels"]) > 1 or len(who) == 1


def test_a_language_is_a_class_if_it_shares_100_strings(data: Data) -> None:
    languages, msgids = writers()
    english = set().union(*msgids.values())
    shared = [who for text, who in languages.items() if len(who) > 1 and text not in english]
    everyone = set().union(*shared)
    assert set(data.labels) == {
        language for language in everyone if sum(language in who for who in shared) >= 100
    }


def test_no_name_is_in_two_parts(data: Data) -> None:
    train, dev, test = names_of_parts(data)
    assert not train & dev | train & test | dev & test
    assert min(map(len, (train, dev, test))) > 100


def test_labels_by_hand(data: Data) -> None:
    labels = {sample["text"]: sample["labels"] for sample in data.train + data.dev + data.test}
    assert labels["Spanien"] == ["da", "de", "sv"]
    assert labels["Alemanha"] == ["oc", "pt", "pt_BR"]
    assert labels["जर्मनी"] == [
        "hi",
        "mr",
    ]  # Maithili, Nepali and Pali write so too, but share too little to be classes
    assert "Danska" not in labels  # Danish and Denmark are in different parts


def test_the_same_each_time(data: Data) -> None:
    again = get_task("languages-multilabel").load(Where())
    assert (again.train, again.dev, again.test) == (data.train, data.dev, data.test)
