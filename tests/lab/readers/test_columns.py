"""Which columns of a file are what, and which kind of task they make."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from sparring.lab.readers.user_data import open_user_data
from tests.lab.readers.user_files import OFFLINE, REVIEWS, everything, jsonl, load, refused, table

# --- columns


@pytest.mark.parametrize(
    ("header", "columns", "notes"),
    [
        ("Review,Sentiment", {}, ('text from column "Review"', 'label from column "Sentiment"')),
        ("utterance,intent", {}, ('text from column "utterance"', 'label from column "intent"')),
        ("foo,bar", {}, ('text from column "foo"', 'label from column "bar"')),
        ("foo,label", {}, ('text from column "foo"',)),
        ("Text,bar", {}, ('text from column "Text"', 'label from column "bar"')),
        ("foo,bar", {"text": "FOO"}, ('label from column "bar"',)),
        ("foo,bar", {"text": "foo", "label": "bar"}, ()),
    ],
)
def test_columns_by_name_by_what_is_left_and_by_hand(
    tmp_path: Path, header: str, columns: dict[str, str], notes: tuple[str, ...]
) -> None:
    data = load(table(tmp_path / "my.csv", header, REVIEWS), **columns)
    assert sorted((s["text"], s["label"]) for s in everything(data)) == sorted(REVIEWS)
    assert data.notes[0] == f'kind multi-class: column "{header.split(",")[1]}" holds one of 3 values'
    assert data.notes[1:-1] == notes


def test_fewer_values_make_the_label_on_either_side(tmp_path: Path) -> None:
    data = load(table(tmp_path / "my.csv", "foo,bar", [(label, text) for text, label in REVIEWS]))
    assert sorted((s["text"], s["label"]) for s in everything(data)) == sorted(REVIEWS)


def test_the_plainest_name_goes_first_and_the_rest_is_said(tmp_path: Path) -> None:
    rows = [(i, f"title {i}", *row, "x") for i, row in enumerate(REVIEWS)]
    data = load(table(tmp_path / "my.csv", "id,title,text,label,topic", rows))
    assert sorted((s["text"], s["label"]) for s in everything(data)) == sorted(REVIEWS)
    assert data.notes[1] == "columns not used: id, title, topic"


PAIRS = [(text, text, label) for text, label in REVIEWS]


@pytest.mark.parametrize(
    ("header", "rows", "what", "flags"),
    [
        ("title,body,label", PAIRS, "the text", "text_column"),
        ("text,topic,genre", PAIRS, "the label", "label_column"),
        ("a,b,c", PAIRS, "the text and the label", "text_column and label_column"),
        (
            "foo,bar",
            [(i, i) for i in "aabbccddee"],
            "the text and the label",
            "text_column and label_column",
        ),
        ("text", ["a", "b"], "the label", "label_column"),
    ],
)
def test_no_guess_between_equals(tmp_path: Path, header: str, rows: list[Any], what: str, flags: str) -> None:
    columns = ", ".join(f'"{name}"' for name in header.split(","))
    message = f": cannot tell which column holds {what}; the columns are {columns}; use {flags}"
    refused(table(tmp_path / "my.csv", header, rows), message)


def test_named_columns(tmp_path: Path) -> None:
    path = table(tmp_path / "my.csv", "title,body,label", PAIRS)
    assert everything(load(path, text="body"))[0].keys() == {"text", "label"}
    refused(path, ': no column "d" (label_column); the columns are "title", "body", "label"', label="d")
    message = "text_column and label_column must name different columns, got body, body"
    refused(path, message, text="body", label="Body")


@pytest.mark.parametrize(
    ("header", "rows"),
    [
        ("film x,good", REVIEWS),
        ("film x,3", REVIEWS),
        ("I liked this one a lot,fine", REVIEWS),
        ("film x,0,1", [(text, i % 2, 1) for i, (text, _) in enumerate(REVIEWS)]),
    ],
)
def test_a_first_line_that_is_a_row(tmp_path: Path, header: str, rows: list[Any]) -> None:
    columns = ", ".join(f'"{name}"' for name in header.split(","))
    message = f": the first line must name the columns, as in text,label; it looks like a row: {columns}"
    path = table(tmp_path / "my.csv", header, rows)
    refused(path, message)
    if rows is REVIEWS:
        text, label = header.split(",")
        assert len(everything(load(path, text=text, label=label))) == 30


# --- kinds


@pytest.mark.parametrize(
    "header",
    [
        "premise,hypothesis,label",
        "sentence1,sentence2,label",
        "Text A,Text B,gold",
        "question1,question2,target",
    ],
)
def test_pair_by_names(tmp_path: Path, header: str) -> None:
    rows = [(text, "why", label) for text, label in REVIEWS]
    task, data = open_user_data(table(tmp_path / "my.csv", header, rows), OFFLINE)
    first, second, label = header.split(",")
    assert (task.kind.name, task.metric) == ("pair", "accuracy")
    assert all(f'"{column}"' in data.notes[0] for column in (first, second, label))
    assert data.notes[0].endswith("holds one of 3 values")
    assert sorted((s["text"], s["text_b"], s["label"]) for s in everything(data)) == sorted(rows)


def test_pair_by_hand(tmp_path: Path) -> None:
    path = table(
        tmp_path / "my.csv", "passage,question,label", [(text, "why", label) for text, label in REVIEWS]
    )
    refused(path, ": cannot tell which column holds the text")
    for columns in (
        {"kind": "pair"},
        {"text": "passage", "text_b": "question"},
        {"text_b": "question", "kind": "pair"},
    ):
        assert all(
            sample["text"] != sample["text_b"] == "why" for sample in everything(load(path, **columns))
        )
    refused(
        path, 'text_b_column goes with kind="pair", got multi-class', text_b="question", kind="multi-class"
    )
    refused(
        path,
        'kind must be one of multi-class, pair, token, spelling, multi-label, generation, got "pairs"',
        kind="pairs",
    )


@pytest.mark.parametrize(
    ("tag", "metric"), [("B-PER", "f1"), ("S-X", "f1"), ("NOUN", "accuracy"), ("B", "accuracy")]
)
def test_token_from_lists(tmp_path: Path, tag: str, metric: str) -> None:
    rows = [{"id": i, "tokens": [f"w{i}", "x"], "ner_tags": [tag, "O"]} for i in range(20)]
    task, data = open_user_data(jsonl(tmp_path / "my.jsonl", rows), OFFLINE)
    assert (task.kind.name, task.metric) == ("token", metric)
    assert {"tokens": ["w3", "x"], "tags": [tag, "O"]} in everything(data)
    assert data.notes[:2] == (
        'kind token: column "ner_tags" has one of 2 tags for each token of column "tokens"',
        'tags from column "ner_tags"',
    )


@pytest.mark.parametrize(
    ("tokens", "tags", "columns"),
    [
        ("a b c", "O O X", {}),
        ("\"['a', 'b', 'c']\"", "\"['O', 'O', 'X']\"", {}),
        ('"[""a"", ""b"", ""c""]"', '"[""O"", ""O"", ""X""]"', {}),
        ("a|b|c", "O|O|X", {"separator": "|"}),
    ],
)
def test_token_from_cells(tmp_path: Path, tokens: str, tags: str, columns: dict[str, str]) -> None:
    data = load(
        table(tmp_path / "my.csv", "tokens,tags", [*[(tokens, tags)] * 3, ("d", "O"), ("e", "O")]), **columns
    )
    assert everything(data).count({"tokens": ["a", "b", "c"], "tags": ["O", "O", "X"]}) == 3
    assert data.kind.name == "token"


def test_token_rows_that_do_not_match(tmp_path: Path) -> None:
    path = table(tmp_path / "my.csv", "tokens,tags", [("a b", "O X"), ("a b", "O")])
    refused(path, ":3: tokens and tags must have the same length, got 2 and 1")
    path = table(tmp_path / "my.csv", "tokens,tags", [("a b", "O X"), ("", "O")])
    refused(path, ':3: column "tokens" is empty')
    path = jsonl(tmp_path / "my.jsonl", [{"tokens": ["a"], "pos_tags": ["N"], "ner_tags": ["O"]}] * 4)
    refused(
        path, ': cannot tell which column holds the label; the columns are "tokens", "pos_tags", "ner_tags"'
    )


def test_spelling_where_lengths_are_equal(tmp_path: Path) -> None:
    rows = [(f"teh {i}", f"the {i}") for i in range(40)]
    task, data = open_user_data(table(tmp_path / "my.tsv", "source\ttarget", rows, "\t"), OFFLINE)
    assert (task.kind.name, task.metric, task.sizes) == ("spelling", "correction_f1", (32, 4, 4))
    assert data.notes[0] == 'kind spelling: columns "source" and "target" with as many characters'
    assert {"source": "teh 7", "target": "the 7"} in everything(data)
    path = table(tmp_path / "bad.tsv", "source\ttarget", [*rows, ("abc", "ab")], "\t")
    refused(path, ":42: source and target must have the same length, got 3 and 2")
    path = table(tmp_path / "class.tsv", "source\ttarget", REVIEWS, "\t")
    assert load(path).kind.name == "multi-class"
    by_hand = load(
        table(tmp_path / "other.tsv", "wrong\tright", rows, "\t"),
        kind="spelling",
        text="wrong",
        label="right",
    )
    assert by_hand.train == data.train


def test_generation_where_texts_become_others(tmp_path: Path) -> None:
    rows = [(f"the city {i} is old", f"what is the age of city {i} ?") for i in range(40)]
    task, data = open_user_data(
        table(tmp_path / "my.csv", "source,target", rows), OFFLINE
    )  # lengths differ, and targets do not recur
    assert (task.kind.name, task.metric, task.sizes) == ("generation", "bleu_4", (32, 4, 4))
    assert data.notes[0] == 'kind generation: generate column "target" from column "source"'
    assert {"source": "the city 7 is old", "target": "what is the age of city 7 ?"} in everything(data)
    assert data.labels == []
    named = load(
        jsonl(
            tmp_path / "news.jsonl", [{"id": i, "article": s, "summary": t} for i, (s, t) in enumerate(rows)]
        ),
        kind="generation",
    )
    assert named.train == data.train
    path = table(tmp_path / "bad.csv", "source,target", [*rows, ("abc", "")])
    refused(path, ':42: column "target" is empty', kind="generation")


TOPICS = [["grain"], ["grain", "ship"], ["oil"], ["oil", "ship"], []]


@pytest.mark.parametrize("join", [" | ".join, ";".join, ",".join, json.dumps, str])
def test_multilabel_in_cells(tmp_path: Path, join: Any) -> None:
    path = tmp_path / "my.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(
            [("text", "topics"), *((f"news {i}", join(TOPICS[i % 5])) for i in range(20))]
        )
    task, data = open_user_data(str(path), OFFLINE)
    assert (task.kind.name, task.metric) == ("multi-label", "micro_f1")
    assert sorted((int(s["text"][5:]), s["labels"]) for s in everything(data)) == [
        (i, TOPICS[i % 5]) for i in range(20)
    ]
    cut = {
        " | ".join: ', separated by "|"',
        ";".join: ', separated by ";"',
        ",".join: ', separated by ","',
    }.get(join, "")
    assert data.notes[0] == f'kind multi-label: column "topics" holds any of 3 values{cut}'
    assert data.notes[-1] == "rows without any label: 4"


def test_multilabel_as_json_lists(tmp_path: Path) -> None:
    data = load(
        jsonl(tmp_path / "my.jsonl", [{"text": f"t {i}", "label": [i % 3, i % 2, 7, 7]} for i in range(20)])
    )
    assert data.kind.name == "multi-label"
    assert {s["text"]: s["labels"] for s in everything(data)}["t 5"] == ["2", "1", "7"]


def test_one_label_stays_one(tmp_path: Path) -> None:
    rows = [(text, f"{label}|x") for text, label in REVIEWS]
    path = table(tmp_path / "my.csv", "text,label", rows)
    assert load(path).labels == ["bad|x", "good|x", "so-so|x"]
    assert (
        load(path, separator="|").labels
        == load(path, kind="multi-label").labels
        == ["bad", "good", "so-so", "x"]
    )
    assert load(table(tmp_path / "many.csv", "text,labels", REVIEWS)).kind.name == "multi-class"
    places = [(text, ("Paris; France", "Rome; Italy")[i % 2]) for i, (text, _) in enumerate(REVIEWS)]
    assert load(table(tmp_path / "places.csv", "text,labels", places)).labels == [
        "Paris; France",
        "Rome; Italy",
    ]
    refused(
        path,
        'label_separator goes with kind="multi-label" or token, got multi-class',
        separator="|",
        kind="multi-class",
    )


@pytest.mark.parametrize("header", ["id,comment_text,toxic,rude,threat", "id,foo,toxic,rude,threat"])
def test_columns_of_0_and_1(tmp_path: Path, header: str) -> None:
    path = table(
        tmp_path / "my.csv",
        header,
        [(i, f"t {i}", i % 2, int(i % 3 == 0), "0.0" if i else "True") for i in range(20)],
    )
    data = load(path)
    assert data.kind.name == "multi-label"
    assert data.notes[0] == "kind multi-label: 3 columns of 0 and 1, one per label: toxic, rude, threat"
    labels = {s["text"]: s["labels"] for s in everything(data)}
    assert (labels["t 0"], labels["t 3"], labels["t 4"]) == (["rude", "threat"], ["toxic", "rude"], [])


def test_a_bad_mark_in_another_part(tmp_path: Path) -> None:
    table(tmp_path / "train.csv", "text,a,b", [(f"t {i}", i % 2, 1) for i in range(9)])
    path = table(tmp_path / "dev.csv", "text,a,b", [("x", 0, 1), ("y", 0, 2)])
    refused(str(tmp_path), f"{path}:3: column \"b\" must hold 0 or 1, got '2'")
