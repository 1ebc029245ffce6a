"""The data sets made of names in many languages: languages, languages-multilabel and code-switch."""

from collections import Counter
from collections.abc import Iterable
from functools import cache
from itertools import chain, groupby

import pytest

from sparring.lab.datasets import Data, Where, get_task
from sparring.lab.datasets.tokens.code_switch import mix
from tests.lab.datasets.mo_files import writers


@cache
def load(name: str) -> Data:
    return get_task(name).load(Where())


def samples(name: str) -> Iterable[dict[str, str]]:
    return chain(load(name).train, load(name).dev, load(name).test)


@pytest.mark.parametrize("name", ["languages", "languages-multilabel"])
def test_no_english_name_is_in_two_parts(name: str) -> None:
    _, msgids = writers()
    data = load(name)
    train, dev, test = (
        set().union(*(msgids[sample["text"]] for sample in part))
        for part in (data.train, data.dev, data.test)
    )
    assert not train & dev | train & test | dev & test
    assert min(map(len, (train, dev, test))) > 100


@pytest.mark.parametrize("name", ["languages", "languages-multilabel", "code-switch"])
def test_the_same_each_time(name: str) -> None:
    again = get_task(name).load(Where())
    assert (again.train, again.dev, again.test) == (load(name).train, load(name).dev, load(name).test)


# --- languages


def test_counts() -> None:
    data = load("languages")
    counts = [Counter(sample["label"] for sample in part) for part in (data.train, data.dev, data.test)]
    assert len(data.labels) == 89
    assert {"mr", "sr@latin", "zh_TW"} < set(data.labels)
    assert [max(count.values()) for count in counts] == [240, 30, 30]
    assert all(set(count) == set(data.labels) and min(count.values()) >= 10 for count in counts)
    assert sum(count.total() for count in counts) > 26_000
    first = [sample["label"] for sample in data.train[:50]]
    assert first != sorted(first)


def test_a_language_is_a_class_if_it_alone_writes_200_strings() -> None:
    languages, msgids = writers()
    english = set().union(*msgids.values())
    unique = Counter(
        min(names) for text, names in languages.items() if len(names) == 1 and text not in english
    )
    assert set(load("languages").labels) == {language for language, count in unique.items() if count >= 200}


def test_one_language_writes_it_over_all_catalogues() -> None:
    languages, _ = writers()
    texts = [sample["text"] for sample in samples("languages")]
    assert all(languages[sample["text"]] == {sample["label"]} for sample in samples("languages"))
    assert len(set(texts)) == len(texts)


def test_labels_by_hand() -> None:
    expected = {
        "Griechenland": "de",
        "Valko-Venäjä": "fi",
        "Αργεντινή": "el",
        "फिनलॅंड": "mr",
        "巴貝多": "zh_TW",
        "貝寧": "zh_HK",
        "Belîs": "cy",
    }
    label = {sample["text"]: sample["label"] for sample in samples("languages")}
    assert {text: label[text] for text in expected} == expected
    assert not {"Schweiz", "Ísland", "Duitsland", "德國"} & set(label)  # several languages write these

    def languages_with(first: str, last: str) -> set[str]:
        return {label[text] for text in label if any(first <= character <= last for character in text)}

    assert languages_with("ς", "ς") == {"el"}  # final sigma
    assert languages_with("ő", "ő") == {"hu"}
    assert languages_with("\u0e00", "\u0e7f") == {"th"}
    assert languages_with("\u3040", "\u30ff") == {"ja"}
    assert languages_with("\uac00", "\ud7a3") == {"ko"}


# --- languages-multilabel


def test_counts_multilabel() -> None:
    data = load("languages-multilabel")
    sizes = [len(sample["labels"]) for sample in samples("languages-multilabel")]
    assert len(data.labels) == 64
    assert 20_000 < len(sizes) < 30_000
    shares = [round(len(part) / len(sizes), 1) for part in (data.train, data.dev, data.test)]
    assert shares == [0.8, 0.1, 0.1]
    assert 2.0 < sum(sizes) / len(sizes) < 2.2
    assert 0.6 < sum(size > 1 for size in sizes) / len(sizes) < 0.7
    assert len({sample["text"] for sample in samples("languages-multilabel")}) == len(sizes)


def test_labels_are_all_classes_that_write_it() -> None:
    languages, _ = writers()
    classes = set(load("languages-multilabel").labels)
    for sample in samples("languages-multilabel"):
        names = languages[sample["text"]]
        assert sample["labels"] == sorted(names & classes)
        assert len(sample["labels"]) > 1 or len(names) == 1


def test_a_language_is_a_class_if_it_shares_100_strings() -> None:
    languages, msgids = writers()
    english = set().union(*msgids.values())
    shared = [names for text, names in languages.items() if len(names) > 1 and text not in english]
    counts = Counter(language for names in shared for language in names)
    expected = {language for language, count in counts.items() if count >= 100}
    assert set(load("languages-multilabel").labels) == expected


def test_multilabels_by_hand() -> None:
    labels = {sample["text"]: sample["labels"] for sample in samples("languages-multilabel")}
    assert labels["Spanien"] == ["da", "de", "sv"]
    assert labels["Alemanha"] == ["oc", "pt", "pt_BR"]
    assert labels["जर्मनी"] == ["hi", "mr"]  # Maithili, Nepali and Pali share too little to be classes
    assert "Danska" not in labels  # Danish and Denmark are in different parts


# --- code-switch


def test_counts_code_switch() -> None:
    data = load("code-switch")
    assert len(data.labels) == 81
    assert not {"ja", "th", "zh_CN", "zh_TW"} & set(data.labels)
    assert len(data.train) > 3_000
    assert min(len(data.dev), len(data.test)) > 300
    for sample in samples("code-switch"):
        assert len(sample["tokens"]) == len(sample["tags"]) >= 3
        assert 2 <= len(set(sample["tags"])) <= 4
        assert all(token and len(token.split()) == 1 for token in sample["tokens"])


def test_tokens_carry_the_language_of_a_name_of_their_part() -> None:
    """Every run of one tag consists of whole names of that language in the same part of languages."""
    for part in ("train", "dev", "test"):
        names = {
            (sample["label"], tuple(sample["text"].split())) for sample in getattr(load("languages"), part)
        }
        for sample in getattr(load("code-switch"), part):
            pairs = zip(sample["tags"], sample["tokens"], strict=True)
            for tag, run in groupby(pairs, key=lambda pair: pair[0]):
                assert consists_of([token for _, token in run], tag, names)


def consists_of(tokens: list[str], tag: str, names: set[tuple[str, tuple[str, ...]]]) -> bool:
    ends = {0}
    for end in range(1, len(tokens) + 1):
        if any((tag, tuple(tokens[begin:end])) in names for begin in ends):
            ends.add(end)
    return len(tokens) in ends


def named(**texts: list[str]) -> list[dict[str, str]]:
    return [{"text": text, "label": language} for language, names in texts.items() for text in names]


def test_mix_by_hand() -> None:
    names = named(fr=["Corée du Nord", "Maroc"], fi=["Tanska", "Saksa"], ja=["日本"])
    tags = {"Corée": "fr", "du": "fr", "Nord": "fr", "Maroc": "fr", "Tanska": "fi", "Saksa": "fi"}
    for seed in range(20):
        (sequence,) = mix(names, seed)  # two sequences would need six names
        assert len(sequence["tokens"]) in {3, 4, 5, 6}
        assert sequence["tags"] == [tags[token] for token in sequence["tokens"]]
        assert len(set(sequence["tokens"])) == len(sequence["tokens"])


def test_one_language_or_two_names_make_no_sequence() -> None:
    assert mix(named(fr=["Maroc", "Suède"])) == []
    assert mix(named(fr=["Maroc"], fi=["Tanska"])) == []
