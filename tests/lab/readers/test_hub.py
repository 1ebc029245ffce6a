"""Rows in the form ``datasets`` gives them, made in memory; only the asking of the hub itself is replaced."""

from __future__ import annotations

import builtins
from pathlib import Path
from typing import Any

import pytest

from sparring.lab.datasets import DataError, Where, get_task
from sparring.lab.models import offline
from sparring.lab.readers.hub import class_names, hub_splits, load_hub

datasets = pytest.importorskip("datasets")

Asked = list[tuple[str, str | None, str | None]]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    """What the hub was asked for. It has nothing until ``serve`` is called."""
    calls: Asked = []

    def load_dataset(
        name: str, config: str | None = None, revision: str | None = None, *, trust_remote_code: bool
    ) -> Any:
        assert not trust_remote_code
        calls.append((name, config, revision))
        raise ConnectionError("Couldn't reach the hub\nand more lines")

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    monkeypatch.setattr(offline, "look_for_hub", lambda: True)  # whatever the network of this machine
    return calls


def serve(
    monkeypatch: pytest.MonkeyPatch, calls: Asked, features: dict[str, Any], **splits: list[dict[str, Any]]
) -> None:
    found = datasets.DatasetDict(
        {
            name: datasets.Dataset.from_list(rows, features=datasets.Features(features))
            for name, rows in splits.items()
        }
    )

    def load_dataset(
        name: str, config: str | None = None, revision: str | None = None, *, trust_remote_code: bool
    ) -> Any:
        assert not trust_remote_code
        calls.append((name, config, revision))
        return found

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)


def classes(*names: str) -> Any:
    return datasets.ClassLabel(names=list(names))


TEXT, NUMBER = datasets.Value("string"), datasets.Value("int32")


def test_clinc_oos(monkeypatch: pytest.MonkeyPatch, asked: Asked) -> None:
    features = {"text": TEXT, "intent": classes("greeting", "oos")}
    rows = [{"text": "hi", "intent": 0}, {"text": "moon", "intent": 1}]
    serve(monkeypatch, asked, features, train=rows, validation=rows[:1], test=rows[1:])
    data = get_task("clinc_oos").load(Where())
    assert asked == [("clinc/clinc_oos", "plus", None)]
    assert data.train == [{"text": "hi", "label": "greeting"}, {"text": "moon", "label": "oos"}]
    assert (data.dev, data.test, data.source) == (data.train[:1], data.train[1:], "Hugging Face hub")


def test_sst5_has_its_names_in_a_column(monkeypatch: pytest.MonkeyPatch, asked: Asked) -> None:
    row = {"text": "good", "label": 4, "label_text": "very positive"}
    serve(
        monkeypatch,
        asked,
        {"text": TEXT, "label": NUMBER, "label_text": TEXT},
        train=[row],
        validation=[row],
        test=[row],
    )
    assert get_task("sst5").load(Where()).test == [{"text": "good", "label": "very positive"}]
    assert asked == [("SetFit/sst5", None, None)]


def test_conll2003_is_read_from_the_converted_branch(monkeypatch: pytest.MonkeyPatch, asked: Asked) -> None:
    features = {
        "tokens": datasets.Sequence(TEXT),
        "ner_tags": datasets.Sequence(classes("O", "B-PER", "I-PER")),
    }
    row = {"tokens": ["Peter", "Black", "met"], "ner_tags": [1, 2, 0]}
    serve(monkeypatch, asked, features, train=[row], validation=[row], test=[row])
    assert get_task("conll2003").load(Where()).dev == [
        {"tokens": ["Peter", "Black", "met"], "tags": ["B-PER", "I-PER", "O"]}
    ]
    assert asked == [("eriktks/conll2003", None, "refs/convert/parquet")]


def test_eurlex(monkeypatch: pytest.MonkeyPatch, asked: Asked) -> None:
    features = {"text": TEXT, "labels": datasets.Sequence(classes("100163", "100168"))}
    row = {"text": "A", "labels": [1, 0]}
    serve(monkeypatch, asked, features, train=[row], validation=[{"text": "B", "labels": []}], test=[row])
    data = get_task("eurlex").load(Where())
    assert data.train == [{"text": "A", "labels": ["100168", "100163"]}]
    assert data.dev == [{"text": "B", "labels": []}]
    assert asked == [("coastalcph/lex_glue", "eurlex", None)]


def test_iflytek_leaves_out_the_hidden_test(monkeypatch: pytest.MonkeyPatch, asked: Asked) -> None:
    features = {"sentence": TEXT, "label": classes("0", "1"), "idx": NUMBER}
    rows = [{"sentence": f"app {i}", "label": i % 2, "idx": i} for i in range(4)]
    hidden = [{"sentence": "x", "label": -1, "idx": 0}]
    serve(monkeypatch, asked, features, train=rows[:3], validation=rows[3:], test=hidden)
    data = get_task("iflytek").load(Where())
    assert data.test == [{"text": "app 3", "label": "1"}]
    assert (len(data.train), len(data.dev)) == (2, 1)
    assert data.notes == (
        "no test labels: the published dev set is the test set",
        "no dev set: 1 samples split off train",
    )
    assert asked == [("clue/clue", "iflytek", None)]


@pytest.mark.parametrize(
    ("name", "columns", "names"),
    [
        ("mnli", ("premise", "hypothesis"), ("entailment", "neutral", "contradiction")),
        ("mrpc", ("sentence1", "sentence2"), ("not_equivalent", "equivalent")),
        ("qnli", ("question", "sentence"), ("entailment", "not_entailment")),
        ("qqp", ("question1", "question2"), ("not_duplicate", "duplicate")),
        ("rte", ("sentence1", "sentence2"), ("entailment", "not_entailment")),
        ("sst2", ("sentence",), ("negative", "positive")),
        ("cola", ("sentence",), ("unacceptable", "acceptable")),
    ],
)
def test_glue(
    name: str, columns: tuple[str, ...], names: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, asked: Asked
) -> None:
    features = {**dict.fromkeys(columns, TEXT), "label": classes(*names), "idx": NUMBER}
    rows = [
        {**{column: f"{column} {i} " for column in columns}, "label": i % len(names), "idx": i}
        for i in range(5)
    ]
    matched = "_matched" if name == "mnli" else ""
    hidden = [{**rows[0], "label": -1}]
    parts = {
        "train": rows[:4],
        f"validation{matched}": rows[4:],
        f"test{matched}": rows[:1] if name == "mrpc" else hidden,
    }
    if name == "mnli":
        parts["validation_mismatched"] = rows[:1]
    serve(monkeypatch, asked, features, **parts)
    data = get_task(name).load(Where())
    assert asked == [("nyu-mll/glue", name, None)]
    last = {
        **dict(zip(("text", "text_b"), (f"{column} 4" for column in columns), strict=False)),
        "label": names[4 % len(names)],
    }
    assert (data.dev if name == "mrpc" else data.test) == [last]
    assert len(data.train) + len(data.dev) == (5 if name == "mrpc" else 4)


def test_a_column_without_names_is_refused(monkeypatch: pytest.MonkeyPatch, asked: Asked) -> None:
    serve(monkeypatch, asked, {"text": TEXT, "label": NUMBER}, train=[{"text": "a", "label": 0}])
    assert class_names(load_hub("some/set")["train"], "label") is None
    for column in ("label", "intent"):
        with pytest.raises(
            DataError, match=f'some/set, train: expected class names with the column "{column}"'
        ):
            hub_splits("some/set", dict, classes=column)


def test_a_hub_out_of_reach_says_what_else_to_do(asked: Asked, tmp_path: Path) -> None:
    with pytest.raises(DataError) as error:
        get_task("sst5").load(Where(tmp_path))
    said = "SetFit/sst5: could not be read from the Hugging Face hub: Couldn't reach the hub and more lines"
    advice = "put its files there, or train.jsonl, dev.jsonl and test.jsonl with multi-class samples"
    assert str(error.value) == f"{said} (looked in: {tmp_path / 'sst5'}); {advice}"
    assert len(asked) == 1


def test_a_hub_that_is_off_is_not_asked(asked: Asked, tmp_path: Path) -> None:
    for task in ("sst5", "conll2003", "clinc_oos", "eurlex", "iflytek", "mnli"):
        with pytest.raises(DataError, match="or let it be read from the hub"):
            get_task(task).load(Where(tmp_path, hub=False))
    assert asked == []


def test_the_library_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = builtins.__import__

    def without(name: str, *args: Any, **more: Any) -> Any:
        if name == "datasets":
            raise ImportError(name)
        return usual(name, *args, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(DataError, match="pip install datasets"):
        load_hub("some/set")
