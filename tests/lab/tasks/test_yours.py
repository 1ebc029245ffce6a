from __future__ import annotations

import csv
import gzip
import json
import os
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sparring.lab.tasks import yours
from sparring.lab.tasks.base import Data, DataError, UserError, Where
from sparring.lab.tasks.columns import Columns
from sparring.lab.tasks.yours import is_yours, open_yours, split_off_texts

OFFLINE = Where(hub=False)
REVIEWS = [(f"film {i}", ("good", "bad", "so-so")[i % 3]) for i in range(30)]


def write(path: Path, *lines: str) -> str:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(path)


def jsonl(path: Path, rows: list[dict[str, Any]]) -> str:
    return write(path, *(json.dumps(row) for row in rows))


def table(path: Path, header: str, rows: list[Any], separator: str = ",") -> str:
    return write(path, header, *(separator.join(map(str, row)) for row in rows))


def load(target: str, **columns: str) -> Data:
    return open_yours(target, OFFLINE, Columns(**columns))[1]


def everything(data: Data) -> list[dict[str, Any]]:
    return [*data.train, *data.dev, *data.test]


def refused(target: str, message: str, **columns: str) -> None:
    with pytest.raises(UserError, match=f"^{re.escape(message)}"):
        load(target, **columns)


# --- forms


def write_form(path: Path, rows: list[tuple[str, str]]) -> None:
    form = path.name.removesuffix(".gz").rsplit(".", 1)[-1]
    objects = [{"text": text, "label": label} for text, label in rows]
    separator = "\t" if form == "tsv" else ","
    content = {
        "json": json.dumps(objects, indent=1),
        "jsonl": "\n".join(map(json.dumps, objects)),
    }.get(form, "\n".join([f"text{separator}label", *(f"{text}{separator}{label}" for text, label in rows)]))
    path.write_bytes(gzip.compress(content.encode()) if path.name.endswith(".gz") else content.encode())


@pytest.mark.parametrize("zipped", ["", ".gz"])
@pytest.mark.parametrize("form", ["csv", "tsv", "json", "jsonl"])
def test_one_file_of_every_form(tmp_path: Path, form: str, zipped: str) -> None:
    path = tmp_path / f"my.films.{form}{zipped}"
    write_form(path, REVIEWS)
    task, data = open_yours(str(path), OFFLINE)
    assert (task.name, task.kind, task.metric, task.sizes, task.home) == ("my.films", "multi-class", "accuracy", (24, 3, 3), str(path))
    assert task.load(OFFLINE) is data
    assert data.labels == ["bad", "good", "so-so"]
    assert sorted((s["text"], s["label"]) for s in everything(data)) == sorted(REVIEWS)
    assert data.notes == (
        'kind multi-class: column "label" holds one of 3 values',
        "no dev and no test set given: split off train, 3 for dev and 3 for test, each class in its share; always the same ones",
    )


@pytest.mark.parametrize("dev", ["dev", "validation", "valid", "val", "eval", "Valid"])
def test_a_folder(tmp_path: Path, dev: str) -> None:
    folder = tmp_path / "films"
    folder.mkdir()
    write_form(folder / "train.csv", REVIEWS[:20])
    write_form(folder / f"{dev}.jsonl.gz", REVIEWS[20:25])
    write_form(folder / "test.tsv", [*REVIEWS[25:], ("film 1", "awful")])
    write(folder / "README.md", "not data")
    task, data = open_yours(str(folder), OFFLINE)
    assert (task.name, task.sizes, data.source) == ("films", (20, 5, 6), str(folder))
    assert [(s["text"], s["label"]) for s in data.dev] == REVIEWS[20:25]
    assert data.notes == (
        'kind multi-class: column "label" holds one of 4 values',
        "labels seen only in dev or test: awful",
        "texts of test that are also in train: 1",
    )


def test_what_a_folder_lacks_comes_out_of_train(tmp_path: Path) -> None:
    write_form(tmp_path / "train.csv", REVIEWS)
    write_form(tmp_path / "dev.csv", [("x", "good"), ("y", "bad")])
    data = load(str(tmp_path))
    assert data.dev == [{"text": "x", "label": "good"}, {"text": "y", "label": "bad"}]
    assert (len(data.train), len(data.test)) == (27, 3)
    assert data.notes[-1] == "no test set given: split off train, 3 for test, each class in its share; always the same ones"
    (tmp_path / "dev.csv").rename(tmp_path / "test.csv")
    data = load(str(tmp_path))
    assert data.test == [{"text": "x", "label": "good"}, {"text": "y", "label": "bad"}]
    assert data.notes[-1] == "no dev set given: split off train, 3 for dev, each class in its share; always the same ones"


def test_folders_that_cannot_be_read(tmp_path: Path) -> None:
    refused(
        str(tmp_path),
        f"{tmp_path}: no train set; expected train, dev and test, each a .jsonl, .json, .csv or .tsv file (.gz too); found none",
    )
    write_form(tmp_path / "dev.csv", REVIEWS)
    refused(
        str(tmp_path),
        f"{tmp_path}: no train set; expected train, dev and test, each a .jsonl, .json, .csv or .tsv file (.gz too); found dev.csv",
    )
    write_form(tmp_path / "train.csv", REVIEWS)
    write_form(tmp_path / "train.jsonl", REVIEWS)
    refused(str(tmp_path), f"{tmp_path}: more than one file for train: train.csv, train.jsonl; leave one")
    (tmp_path / "train.jsonl").unlink()
    table(tmp_path / "test.csv", "text,id", [("a", 1)])
    refused(str(tmp_path), f'{tmp_path / "test.csv"}: expected the columns of {tmp_path / "train.csv"}, "label" is missing; without labels')
    table(tmp_path / "test.csv", "text,label", [])
    refused(str(tmp_path), f"{tmp_path / 'test.csv'}: the test set is empty")


def test_what_is_yours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    claimed = ["my.csv", "folder", "there/my.json.gz", "owner/name", "hf:name", "hf:owner/name:some.config", "not/a/file"]
    assert [target for target in claimed if not is_yours(target)] == []
    assert [target for target in ("clinc_oos", "as-softmax", "hf:", "my.xlsx", "") if is_yours(target)] == []
    refused("gone.csv", "gone.csv: no such file")
    refused("not/a/file", "not/a/file: expected a .jsonl")
    refused("owner/name", "owner/name: no such file or folder, and the Hugging Face hub is not to be asked")


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
def test_columns_by_name_by_what_is_left_and_by_hand(tmp_path: Path, header: str, columns: dict[str, str], notes: tuple[str, ...]) -> None:
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


def test_no_guess_between_equals(tmp_path: Path) -> None:
    path = tmp_path / "my.csv"
    rows = [(text, text, label) for text, label in REVIEWS]
    told = "cannot tell which column holds {0}; the columns are {1}; use {2}"
    refused(table(path, "title,body,label", rows), f"{path}: " + told.format("the text", '"title", "body", "label"', "--text-column"))
    assert everything(load(str(path), text="body"))[0].keys() == {"text", "label"}
    refused(table(path, "text,topic,genre", rows), f"{path}: " + told.format("the label", '"text", "topic", "genre"', "--label-column"))
    both = told.format("the text and the label", '"a", "b", "c"', "--text-column and --label-column")
    refused(table(path, "a,b,c", rows), f"{path}: {both}")
    refused(str(path), f'{path}: no column "d" (--label-column); the columns are "a", "b", "c"', label="d")
    refused(str(path), "--text-column and --label-column must name different columns, got a, a", text="a", label="A")
    refused(table(path, "foo,bar", [(i, i) for i in "aabbccddee"]), f"{path}: cannot tell which column holds the text and the label")
    refused(write(path, "text", "a", "b"), f'{path}: cannot tell which column holds the label; the columns are "text"; use --label-column')


def test_a_first_line_that_is_a_row(tmp_path: Path) -> None:
    path = tmp_path / "my.csv"
    told = f"{path}: the first line must name the columns, as in text,label; it looks like a row: "
    refused(table(path, "film x,good", REVIEWS), told + '"film x", "good"')
    refused(table(path, "film x,3", REVIEWS), told + '"film x", "3"')
    refused(table(path, "I liked this one a lot,fine", REVIEWS), told + '"I liked this one a lot", "fine"')
    refused(table(path, "film x,0,1", [(text, i % 2, 1) for i, (text, _) in enumerate(REVIEWS)]), told + '"film x", "0", "1"')
    assert len(everything(load(table(path, "film x,good", REVIEWS), text="film x", label="good"))) == 30


# --- kinds


@pytest.mark.parametrize(
    "header", ["premise,hypothesis,label", "sentence1,sentence2,label", "Text A,Text B,gold", "question1,question2,target"]
)
def test_pair_by_names(tmp_path: Path, header: str) -> None:
    task, data = open_yours(table(tmp_path / "my.csv", header, [(text, "why", label) for text, label in REVIEWS]), OFFLINE)
    one, other, label = header.split(",")
    assert (task.kind, task.metric) == ("pair", "accuracy")
    assert data.notes[0] == f'kind pair: two texts, columns "{one}" and "{other}"; column "{label}" holds one of 3 values'
    assert sorted((s["text"], s["text_b"], s["label"]) for s in everything(data)) == sorted((text, "why", label) for text, label in REVIEWS)


def test_pair_by_hand(tmp_path: Path) -> None:
    path = table(tmp_path / "my.csv", "passage,question,label", [(text, "why", label) for text, label in REVIEWS])
    refused(path, f"{path}: cannot tell which column holds the text")
    for columns in ({"kind": "pair"}, {"text": "passage", "text_b": "question"}, {"text_b": "question", "kind": "pair"}):
        assert all(sample["text"] != sample["text_b"] == "why" for sample in everything(load(path, **columns)))
    refused(path, "--text-b-column goes with --kind pair, got multi-class", text_b="question", kind="multi-class")
    refused(path, '--kind must be one of multi-class, pair, token, spelling, multi-label, generation, got "pairs"', kind="pairs")


@pytest.mark.parametrize(("tag", "metric"), [("B-PER", "f1"), ("S-X", "f1"), ("NOUN", "accuracy"), ("B", "accuracy")])
def test_token_from_lists(tmp_path: Path, tag: str, metric: str) -> None:
    rows = [{"id": i, "tokens": [f"w{i}", "x"], "ner_tags": [tag, "O"]} for i in range(20)]
    task, data = open_yours(jsonl(tmp_path / "my.jsonl", rows), OFFLINE)
    assert (task.kind, task.metric) == ("token", metric)
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
    data = load(table(tmp_path / "my.csv", "tokens,tags", [*[(tokens, tags)] * 3, ("d", "O"), ("e", "O")]), **columns)
    assert everything(data).count({"tokens": ["a", "b", "c"], "tags": ["O", "O", "X"]}) == 3
    assert data.kind == "token"


def test_token_rows_that_do_not_match(tmp_path: Path) -> None:
    path = table(tmp_path / "my.csv", "tokens,tags", [("a b", "O X"), ("a b", "O")])
    refused(path, f"{path}:3: tokens and tags must have the same length, got 2 and 1")
    path = table(tmp_path / "my.csv", "tokens,tags", [("a b", "O X"), ("", "O")])
    refused(path, f'{path}:3: column "tokens" is empty')
    path = jsonl(tmp_path / "my.jsonl", [{"tokens": ["a"], "pos_tags": ["N"], "ner_tags": ["O"]}] * 4)
    refused(path, f'{path}: cannot tell which column holds the label; the columns are "tokens", "pos_tags", "ner_tags"; use --label-column')


def test_spelling_where_lengths_are_equal(tmp_path: Path) -> None:
    rows = [(f"teh {i}", f"the {i}") for i in range(40)]
    task, data = open_yours(table(tmp_path / "my.tsv", "source\ttarget", rows, "\t"), OFFLINE)
    assert (task.kind, task.metric, task.sizes) == ("spelling", "correction_f1", (32, 4, 4))
    assert data.notes[0] == 'kind spelling: columns "source" and "target" with as many characters'
    assert {"source": "teh 7", "target": "the 7"} in everything(data)
    path = table(tmp_path / "bad.tsv", "source\ttarget", [*rows, ("abc", "ab")], "\t")
    refused(path, f"{path}:42: source and target must have the same length, got 3 and 2")
    path = table(tmp_path / "class.tsv", "source\ttarget", REVIEWS, "\t")
    assert load(path).kind == "multi-class"
    by_hand = load(table(tmp_path / "other.tsv", "wrong\tright", rows, "\t"), kind="spelling", text="wrong", label="right")
    assert by_hand.train == data.train


def test_generation_where_texts_become_others(tmp_path: Path) -> None:
    rows = [(f"the city {i} is old", f"what is the age of city {i} ?") for i in range(40)]
    task, data = open_yours(table(tmp_path / "my.csv", "source,target", rows), OFFLINE)  # lengths differ, and targets do not recur
    assert (task.kind, task.metric, task.sizes) == ("generation", "bleu_4", (32, 4, 4))
    assert data.notes[0] == 'kind generation: of each text of column "source" that of column "target" is to be made'
    assert {"source": "the city 7 is old", "target": "what is the age of city 7 ?"} in everything(data)
    assert data.labels == []
    named = load(
        jsonl(tmp_path / "news.jsonl", [{"id": i, "article": s, "summary": t} for i, (s, t) in enumerate(rows)]), kind="generation"
    )
    assert named.train == data.train
    path = table(tmp_path / "bad.csv", "source,target", [*rows, ("abc", "")])
    refused(path, f'{path}:42: column "target" is empty', kind="generation")


TOPICS = [["grain"], ["grain", "ship"], ["oil"], ["oil", "ship"], []]


@pytest.mark.parametrize("join", [" | ".join, ";".join, ",".join, json.dumps, str])
def test_multilabel_in_cells(tmp_path: Path, join: Any) -> None:
    path = tmp_path / "my.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([("text", "topics"), *((f"news {i}", join(TOPICS[i % 5])) for i in range(20))])
    task, data = open_yours(str(path), OFFLINE)
    assert (task.kind, task.metric) == ("multi-label", "micro_f1")
    assert sorted((int(s["text"][5:]), s["labels"]) for s in everything(data)) == [(i, TOPICS[i % 5]) for i in range(20)]
    cut = {" | ".join: ', cut at "|"', ";".join: ', cut at ";"', ",".join: ', cut at ","'}.get(join, "")
    assert data.notes[0] == f'kind multi-label: column "topics" holds any of 3 values{cut}'
    assert data.notes[-1] == "rows without any label: 4"


def test_multilabel_as_json_lists(tmp_path: Path) -> None:
    data = load(jsonl(tmp_path / "my.jsonl", [{"text": f"t {i}", "label": [i % 3, i % 2, 7, 7]} for i in range(20)]))
    assert data.kind == "multi-label"
    assert {s["text"]: s["labels"] for s in everything(data)}["t 5"] == ["2", "1", "7"]


def test_one_label_stays_one(tmp_path: Path) -> None:
    rows = [(text, f"{label}|x") for text, label in REVIEWS]
    path = table(tmp_path / "my.csv", "text,label", rows)
    assert load(path).labels == ["bad|x", "good|x", "so-so|x"]
    assert load(path, separator="|").labels == load(path, kind="multi-label").labels == ["bad", "good", "so-so", "x"]
    assert load(table(tmp_path / "many.csv", "text,labels", REVIEWS)).kind == "multi-class"
    places = [(text, ("Paris; France", "Rome; Italy")[i % 2]) for i, (text, _) in enumerate(REVIEWS)]
    assert load(table(tmp_path / "places.csv", "text,labels", places)).labels == ["Paris; France", "Rome; Italy"]
    refused(path, "--label-separator goes with --kind multi-label or token, got multi-class", separator="|", kind="multi-class")


@pytest.mark.parametrize("header", ["id,comment_text,toxic,rude,threat", "id,foo,toxic,rude,threat"])
def test_columns_of_0_and_1(tmp_path: Path, header: str) -> None:
    path = table(tmp_path / "my.csv", header, [(i, f"t {i}", i % 2, int(i % 3 == 0), "0.0" if i else "True") for i in range(20)])
    data = load(path)
    assert data.kind == "multi-label"
    assert data.notes[0] == "kind multi-label: 3 columns of 0 and 1, one a label: toxic, rude, threat"
    labels = {s["text"]: s["labels"] for s in everything(data)}
    assert (labels["t 0"], labels["t 3"], labels["t 4"]) == (["rude", "threat"], ["toxic", "rude"], [])


def test_a_bad_mark_in_another_part(tmp_path: Path) -> None:
    table(tmp_path / "train.csv", "text,a,b", [(f"t {i}", i % 2, 1) for i in range(9)])
    path = table(tmp_path / "dev.csv", "text,a,b", [("x", 0, 1), ("y", 0, 2)])
    refused(str(tmp_path), f"{path}:3: column \"b\" must hold 0 or 1, got '2'")


# --- labels and rows that will not do


def test_numbers_become_strings(tmp_path: Path) -> None:
    data = load(jsonl(tmp_path / "my.jsonl", [{"text": i, "label": i % 2} for i in range(10)]))
    assert data.labels == ["0", "1"]
    assert {s["text"] for s in everything(data)} == set("0123456789")


def test_labels_must_recur(tmp_path: Path) -> None:
    path = table(tmp_path / "my.csv", "text,label", [(f"t {i}", f"v{i}") for i in range(10)])
    refused(
        path,
        f'{path}: column "label" has 10 different values in 10 rows (v0, v1, v2, v3, v4 and 5 more); classification needs',
    )
    assert len(load(table(tmp_path / "my.csv", "text,label", [(f"t {i}", f"v{i % 5}") for i in range(10)])).labels) == 5
    path = table(tmp_path / "my.csv", "text,label", [(f"t {i}", f"v{i % 6}") for i in range(11)])
    refused(path, f'{path}: column "label" has 6 different values in 11 rows')
    path = table(tmp_path / "my.csv", "text,label", [(f"t {i}", i % 5 / 2) for i in range(20)])
    refused(path, f'{path}: column "label" holds numbers to be predicted (0.5, 1.5); classification needs')
    path = table(tmp_path / "my.csv", "text,label", [(f"t {i}", float(i % 2)) for i in range(20)])
    assert load(path).labels == ["0.0", "1.0"]
    path = table(tmp_path / "my.csv", "text,label", [(f"t {i}", "x") for i in range(10)])
    refused(path, f'{path}: column "label" must hold at least 2 different values, got x; use --label-column')


@pytest.mark.parametrize("bad", [",good", "  ,good", "film,", "film, "])
def test_an_empty_cell_is_named_by_file_and_line(tmp_path: Path, bad: str) -> None:
    path = write(tmp_path / "my.csv", "text,label", '"two\nlines",good', bad, "x,bad")
    refused(path, f'{path}:4: column "{"label" if bad.startswith("film") else "text"}" is empty')


@pytest.mark.parametrize(
    "row", ['{"text": "a"}', '{"text": "a", "label": null}', '{"text": "a", "label": NaN}', '{"text": "a", "label": ""}']
)
def test_an_empty_value_in_json(tmp_path: Path, row: str) -> None:
    good = '{"text": "b", "label": "x"}'
    path = write(tmp_path / "my.jsonl", good, good, row)
    refused(path, f'{path}:3: column "label" is empty')
    path = write(tmp_path / "my.json", f"[{good}, {good}, {row}]")
    refused(path, f'{path}, row 3: column "label" is empty')


def test_files_with_nothing_in_them(tmp_path: Path) -> None:
    for name, content in (("a.csv", ""), ("b.csv", "text,label"), ("c.jsonl", ""), ("d.json", "[]")):
        path = write(tmp_path / name, content)
        refused(path, f"{path}: the train set is empty")


# --- splitting


def test_too_few_texts(tmp_path: Path) -> None:
    path = table(tmp_path / "my.csv", "text,label", [("a", "x"), ("b", "y"), ("a", "x"), ("b", "y")])
    refused(path, f"{path}: 2 different texts are too few to split off test and dev; add rows, or give all three parts")
    path = table(tmp_path / "my.csv", "text,label", [("a", "x"), ("b", "y"), ("a", "x"), ("c", "y")])
    assert [len(part) > 0 for part in (load(path).train, load(path).dev, load(path).test)] == [True] * 3


def test_each_class_in_its_share() -> None:
    sizes = {"a": 100, "b": 50, "c": 20, "d": 3, "e": 2, "f": 1}
    samples = [{"text": f"{label} {i}", "label": label} for label, n in sizes.items() for i in range(n)]
    rest, off = split_off_texts("multi-class", samples, 17)
    counts = Counter(sample["label"] for sample in off)
    assert len(off) == 17
    assert (counts["e"], counts["f"]) == (0, 0)
    assert all(abs(counts[label] - 17 * n / 173) < 1 for label, n in sizes.items() if n > 2)
    assert sorted(sample["text"] for sample in rest + off) == sorted(sample["text"] for sample in samples)


def test_rare_classes_stay_and_no_class_is_emptied() -> None:
    rare = [{"text": f"rare {i}", "label": f"r{i // 2}"} for i in range(40)]
    common = [{"text": f"common {i}", "label": "c"} for i in range(60)]
    assert {sample["label"] for sample in split_off_texts("multi-class", rare + common, 10)[1]} == {"c"}
    assert len(split_off_texts("multi-class", rare + common[:6], 5)[1]) == 2


def test_train_keeps_every_class_that_has_three_texts(tmp_path: Path) -> None:
    data = load(table(tmp_path / "my.csv", "text,label", [(f"{label} {i}", f"c{label}") for i in range(3) for label in range(40)]))
    assert (len(data.train), len(data.dev), len(data.test)) == (96, 12, 12)
    assert len({sample["label"] for sample in data.train}) == 40


def test_always_the_same_ones(tmp_path: Path) -> None:
    path = table(tmp_path / "my.csv", "text,label", REVIEWS)
    one, other = load(path), load(path)
    assert (one.train, one.dev, one.test) == (other.train, other.dev, other.test)
    assert [int(sample["text"][5:]) for sample in one.train] == sorted(int(sample["text"][5:]) for sample in one.train)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.sampled_from("abcdefgh"), st.sampled_from("abc"), st.sampled_from("xyz")), min_size=40, max_size=80))
@pytest.mark.parametrize("kind", ["multi-class", "pair"])
def test_no_text_on_both_sides(tmp_path: Path, kind: str, rows: list[tuple[str, str, str]]) -> None:
    rows = [*rows, ("a", "b", "x"), ("b", "a", "y"), ("c", "c", "x"), ("d", "c", "y")]
    path = table(tmp_path / "my.csv", "text,text_b,label", rows)
    data = load(path, kind=kind) if kind == "pair" else load(path, text="text")
    keys = [{frozenset(s[name] for name in ("text", "text_b") if name in s) for s in part} for part in (data.train, data.dev, data.test)]
    assert all(keys)
    assert not keys[0] & keys[1]
    assert not keys[0] & keys[2]
    assert not keys[1] & keys[2]
    assert len(everything(data)) == len(rows)


# --- the hub


class Rows(list[dict[str, Any]]):
    """What the datasets library gives: rows with ``features``."""

    def __init__(self, rows: list[dict[str, Any]], names: dict[str, list[str]], listed: tuple[str, ...] = ()) -> None:
        super().__init__(rows)
        self.features = {column: Feature(names.get(column), column in listed) for column in rows[0]}


class Feature:
    def __init__(self, names: list[str] | None, listed: bool) -> None:
        if listed:
            self.feature = Feature(names, False)
        elif names is not None:
            self.names = names


def on_the_hub(monkeypatch: pytest.MonkeyPatch, **splits: Any) -> list[tuple[str, str | None]]:
    asked: list[tuple[str, str | None]] = []
    monkeypatch.setattr(yours, "load_hub", lambda name, config=None: asked.append((name, config)) or splits)
    return asked


def test_hub_classes_have_names_and_hidden_labels_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def rows(n: int, label: int | None) -> Rows:
        return Rows(
            [{"sentence": f"s {i} of {n}", "label": i % 2 if label is None else label, "idx": i} for i in range(n)],
            {"label": ["no", "yes"]},
        )

    asked = on_the_hub(monkeypatch, train=rows(20, None), dev=rows(4, None), test=rows(5, -1))
    task, data = open_yours("hf:nyu/glue:sst2", Where())
    assert asked == [("nyu/glue", "sst2")]
    assert (task.name, task.sizes, data.source) == ("nyu--glue--sst2", (18, 4, 2), "hf:nyu/glue:sst2")
    assert task.home == "https://huggingface.co/datasets/nyu/glue"
    assert data.dev[1] == {"text": "s 1 of 4", "label": "yes"}
    assert data.notes[:4] == (
        'kind multi-class: column "label" holds one of 2 values',
        'text from column "sentence"',
        "columns not used: idx",
        "5 of 5 test rows have no label and are left out",
    )


def test_hub_tags_have_names(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = Rows([{"tokens": ["a", str(i)], "ner_tags": [0, 1]} for i in range(10)], {"ner_tags": ["O", "B-X"]}, ("ner_tags",))
    asked = on_the_hub(monkeypatch, train=rows)
    task, data = open_yours("owner/name", Where())
    assert asked == [("owner/name", None)]
    assert (task.name, task.kind, task.metric) == ("owner--name", "token", "f1")
    assert all(sample["tags"] == ["O", "B-X"] for sample in everything(data))


def test_hub_rows_are_named_by_number(monkeypatch: pytest.MonkeyPatch) -> None:
    on_the_hub(monkeypatch, train=Rows([{"text": "a", "label": "x"}, {"text": " ", "label": "x"}], {}))
    with pytest.raises(DataError, match=r'^owner/name \(train\), row 2: column "text" is empty$'):
        open_yours("owner/name", Where())
    on_the_hub(monkeypatch, test=Rows([{"text": "a", "label": "x"}], {}))
    with pytest.raises(DataError, match=r"^hf:owner/name: there is no train set, only test$"):
        open_yours("hf:owner/name", Where())
    on_the_hub(monkeypatch)
    with pytest.raises(DataError, match=r"^name: no split of this data set is named train, validation or test$"):
        open_yours("hf:name", Where())


def test_a_name_that_is_neither_here_nor_there(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str, config: str | None) -> None:
        raise DataError(f"{name}: could not be read")

    monkeypatch.setattr(yours, "load_hub", fail)
    with pytest.raises(DataError, match=r"^data/mine: could not be read; there is no such file or folder either$"):
        open_yours("data/mine", Where())
    with pytest.raises(DataError, match=r"^mine: could not be read$"):
        open_yours("hf:mine", Where())


def test_the_real_library_has_such_features(monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = pytest.importorskip("datasets")
    label = datasets.ClassLabel(names=["no", "yes"])
    listed = datasets.Sequence(datasets.ClassLabel(names=["a", "b", "c"]))
    features = datasets.Features({"text": datasets.Value("string"), "label": label, "topics": listed})
    rows = {"text": [f"t {i}" for i in range(10)], "label": [i % 2 for i in range(10)], "topics": [[i % 3, 2] for i in range(10)]}
    on_the_hub(monkeypatch, train=datasets.Dataset.from_dict(rows, features=features))
    assert {s["text"]: s["label"] for s in everything(open_yours("owner/name", Where())[1])}["t 3"] == "yes"
    several = open_yours("owner/name", Where(), Columns(label="topics"))[1]
    assert {s["text"]: s["labels"] for s in everything(several)}["t 4"] == ["b", "c"]


# --- real data

DATA = Path(os.environ.get("SPARRING_DATA") or Path(__file__).parents[4] / "shared" / "data")
REAL = {
    "clinc_oos": ("multi-class", "accuracy", (15250, 3100, 5500), 151),
    "conll2003": ("token", "f1", (14041, 3250, 3453), 9),
    "glue_mrpc": ("pair", "accuracy", (3668, 408, 1725), 2),
    "reuters21578": ("multi-label", "micro_f1", (7006, 764, 3019), 90),
}


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.skipif(not (DATA / name).is_dir(), reason=f"{name} is not in SPARRING_DATA")) for name in REAL],
)
def test_real_folders(name: str) -> None:
    task, data = open_yours(str(DATA / name), OFFLINE)
    assert (task.kind, task.metric, task.sizes, len(data.labels)) == REAL[name]
