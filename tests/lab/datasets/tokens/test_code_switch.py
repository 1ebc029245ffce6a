from __future__ import annotations

from itertools import groupby

import pytest

from sparring.lab.datasets import Data, Where, get_task
from sparring.lab.datasets.tokens.code_switch import mix


@pytest.fixture(scope="module")
def data() -> Data:
    return get_task("code-switch").load(Where())


def test_counts(data: Data) -> None:
    assert len(data.labels) == 81
    assert not {"ja", "th", "zh_CN", "zh_TW"} & set(data.labels)
    assert len(data.train) > 3_000
    assert min(len(data.dev), len(data.test)) > 300
    for sample in data.train + data.dev + data.test:
        assert len(sample["tokens"]) == len(sample["tags"]) >= 3
        assert 2 <= len(set(sample["tags"])) <= 4
        assert all(token and len(token.split()) == 1 for token in sample["tokens"])


def test_tokens_carry_the_language_of_a_name_of_their_part(data: Data) -> None:
    """Every run of one tag is a run of whole names of that language in the same part of the task languages."""
    languages = get_task("languages").load(Where())
    for part in ("train", "dev", "test"):
        names = {(sample["label"], tuple(sample["text"].split())) for sample in getattr(languages, part)}
        for sample in getattr(data, part):
            for tag, run in groupby(
                zip(sample["tags"], sample["tokens"], strict=True), key=lambda pair: pair[0]
            ):
                assert _made_of([token for _, token in run], tag, names)


def _made_of(tokens: list[str], tag: str, names: set[tuple[str, tuple[str, ...]]]) -> bool:
    reached = {0}
    for end in range(1, len(tokens) + 1):
        if any((tag, tuple(tokens[begin:end])) in names for begin in reached):
            reached.add(end)
    return len(tokens) in reached


def test_mix_by_hand() -> None:
    samples = [{"text": text, "label": "fr"} for text in ("Corée du Nord", "Maroc")]
    samples += [{"text": text, "label": "fi"} for text in ("Tanska", "Saksa")]
    samples += [{"text": "日本", "label": "ja"}]
    tags = {"Corée": "fr", "du": "fr", "Nord": "fr", "Maroc": "fr", "Tanska": "fi", "Saksa": "fi"}
    for seed in range(20):
        sequences = mix(samples, seed)
        assert len(sequences) == 1  # two sequences would need six names
        assert {len(sequence["tokens"]) for sequence in sequences} <= {3, 4, 5, 6}
        for sequence in sequences:
            assert sequence["tags"] == [tags[token] for token in sequence["tokens"]]
            assert len(set(sequence["tokens"])) == len(sequence["tokens"])


def test_one_language_makes_no_sequence() -> None:
    assert mix([{"text": "Maroc", "label": "fr"}, {"text": "Suède", "label": "fr"}]) == []
    assert (
        mix([{"text": "Maroc", "label": "fr"}, {"text": "Tanska", "label": "fi"}]) == []
    )  # two names are too few


def test_the_same_each_time(data: Data) -> None:
    again = get_task("code-switch").load(Where())
    assert (again.train, again.dev, again.test) == (data.train, data.dev, data.test)
