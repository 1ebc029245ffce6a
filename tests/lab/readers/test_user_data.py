"""A user's files, folders and data sets on the hub."""

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sparring.lab.kinds import get_kind
from sparring.lab.readers import user_data
from sparring.lab.readers.columns import Columns
from sparring.lab.readers.splits import split_off_inputs
from sparring.lab.readers.user_data import is_user_data, open_user_data
from sparring.lab.task import DataError, Where
from tests.lab.data import REAL as DATA
from tests.lab.readers.user_files import OFFLINE, REVIEWS, everything, jsonl, load, refused, table, write

FORMS = ".jsonl, .json, .csv or .tsv file (.gz too)"

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
    task, data = open_user_data(str(path), OFFLINE)
    assert (task.name, task.kind.name, task.metric) == ("my.films", "multi-class", "accuracy")
    assert (task.sizes, task.home) == ((24, 3, 3), str(path))
    assert task.load(OFFLINE) is data
    assert data.labels == ["bad", "good", "so-so"]
    assert sorted((s["text"], s["label"]) for s in everything(data)) == sorted(REVIEWS)
    assert data.notes == (
        'kind multi-class: column "label" holds one of 3 values',
        "no dev and no test set given: split off train, 3 for dev and 3 for test, each class in its share; "
        "always the same ones",
    )


@pytest.mark.parametrize("dev", ["dev", "validation", "valid", "val", "eval", "Valid"])
def test_a_folder(tmp_path: Path, dev: str) -> None:
    folder = tmp_path / "films"
    folder.mkdir()
    write_form(folder / "train.csv", REVIEWS[:20])
    write_form(folder / f"{dev}.jsonl.gz", REVIEWS[20:25])
    write_form(folder / "test.tsv", [*REVIEWS[25:], ("film 1", "awful")])
    write(folder / "README.md", "not data")
    task, data = open_user_data(str(folder), OFFLINE)
    assert (task.name, task.sizes, data.source) == ("films", (20, 5, 6), str(folder))
    assert [(s["text"], s["label"]) for s in data.dev] == REVIEWS[20:25]
    assert data.notes == (
        'kind multi-class: column "label" holds one of 4 values',
        "labels seen only in dev or test: awful",
        "texts of test that are also in train: 1",
    )


@pytest.mark.parametrize(("present", "missing"), [("dev", "test"), ("test", "dev")])
def test_what_a_folder_lacks_is_split_off_train(tmp_path: Path, present: str, missing: str) -> None:
    write_form(tmp_path / "train.csv", REVIEWS)
    write_form(tmp_path / f"{present}.csv", [("x", "good"), ("y", "bad")])
    data = load(str(tmp_path))
    assert getattr(data, present) == [{"text": "x", "label": "good"}, {"text": "y", "label": "bad"}]
    assert (len(data.train), len(getattr(data, missing))) == (27, 3)
    assert data.notes[-1].startswith(f"no {missing} set given: split off train, 3 for {missing}, each class")


def test_folders_that_cannot_be_read(tmp_path: Path) -> None:
    folder = str(tmp_path)
    refused(folder, f": no train set; expected train, dev and test, each a {FORMS}; found none")
    write_form(tmp_path / "dev.csv", REVIEWS)
    refused(folder, f": no train set; expected train, dev and test, each a {FORMS}; found dev.csv")
    write_form(tmp_path / "train.csv", REVIEWS)
    write_form(tmp_path / "train.jsonl", REVIEWS)
    refused(folder, ": more than one file for train: train.csv, train.jsonl; leave one")
    (tmp_path / "train.jsonl").unlink()
    test = table(tmp_path / "test.csv", "text,id", [("a", 1)])
    refused(folder, f'{test}: expected the columns of {tmp_path / "train.csv"}, "label" is missing; without')
    table(tmp_path / "test.csv", "text,label", [])
    refused(folder, f"{test}: the test set is empty")


def test_what_is_user_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    names = (
        "my.csv",
        "folder",
        "there/my.json.gz",
        "owner/name",
        "hf:name",
        "hf:a/b:some.config",
        "not/a/file",
    )
    assert [name for name in names if not is_user_data(name)] == []
    assert [name for name in ("clinc_oos", "as-softmax", "hf:", "my.xlsx", "") if is_user_data(name)] == []
    refused("gone.csv", "gone.csv: no such file")
    refused("not/a/file", "not/a/file: expected a .jsonl")
    refused("owner/name", "owner/name: no such file or folder, and the Hugging Face hub is not to be asked")


# --- labels and rows that will not do


def test_numbers_become_strings(tmp_path: Path) -> None:
    data = load(jsonl(tmp_path / "my.jsonl", [{"text": i, "label": i % 2} for i in range(10)]))
    assert data.labels == ["0", "1"]
    assert {s["text"] for s in everything(data)} == set("0123456789")


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (
            [f"v{i}" for i in range(10)],
            "has 10 different values in 10 rows (v0, v1, v2, v3, v4 and 5 more); class",
        ),
        ([f"v{i % 6}" for i in range(11)], "has 6 different values in 11 rows"),
        ([i % 5 / 2 for i in range(20)], "holds numbers to be predicted (0.5, 1.5); classification needs"),
        (["x"] * 10, "must hold at least 2 different values, got x; use label_column"),
    ],
)
def test_labels_must_recur(tmp_path: Path, labels: list[Any], message: str) -> None:
    rows = [(f"t {i}", label) for i, label in enumerate(labels)]
    refused(table(tmp_path / "my.csv", "text,label", rows), f': column "label" {message}')


def test_labels_that_recur(tmp_path: Path) -> None:
    rows = [(f"t {i}", f"v{i % 5}") for i in range(10)]
    assert len(load(table(tmp_path / "my.csv", "text,label", rows)).labels) == 5
    rows = [(f"t {i}", float(i % 2)) for i in range(20)]
    assert load(table(tmp_path / "my.csv", "text,label", rows)).labels == ["0.0", "1.0"]


@pytest.mark.parametrize("bad", [",good", "  ,good", "film,", "film, "])
def test_an_empty_cell_is_named_by_file_and_line(tmp_path: Path, bad: str) -> None:
    path = write(tmp_path / "my.csv", "text,label", '"two\nlines",good', bad, "x,bad")
    refused(path, f':4: column "{"label" if bad.startswith("film") else "text"}" is empty')


@pytest.mark.parametrize("more", ["", ', "label": null', ', "label": NaN', ', "label": ""'])
def test_an_empty_value_in_json(tmp_path: Path, more: str) -> None:
    good, row = '{"text": "b", "label": "x"}', f'{{"text": "a"{more}}}'
    refused(write(tmp_path / "my.jsonl", good, good, row), ':3: column "label" is empty')
    refused(write(tmp_path / "my.json", f"[{good}, {good}, {row}]"), ', row 3: column "label" is empty')


@pytest.mark.parametrize(
    ("name", "content"), [("a.csv", ""), ("b.csv", "text,label"), ("c.jsonl", ""), ("d.json", "[]")]
)
def test_files_with_nothing_in_them(tmp_path: Path, name: str, content: str) -> None:
    refused(write(tmp_path / name, content), ": the train set is empty")


# --- splitting


def test_rows_with_an_empty_cell_can_be_left_out(tmp_path: Path) -> None:
    rows = [*REVIEWS, ("no label", ""), ("", "good")]
    data = load(table(tmp_path / "my.csv", "text,label", rows), missing="drop")
    assert len(everything(data)) == 30
    assert "2 of 32 train rows with an empty cell are left out" in data.notes
    nothing = table(tmp_path / "none.csv", "text,label", [("a", ""), ("b", "")])
    refused(nothing, ": no row of the train set has all cells", missing="drop")


def test_labels_that_look_like_no_label_are_pointed_out(tmp_path: Path) -> None:
    rows = [(f"film {i}", ("good", "N/A", "None")[i % 3]) for i in range(30)]
    notes = " ".join(load(table(tmp_path / "my.csv", "text,label", rows)).notes)
    assert '10 rows have the label "N/A", which is a class here' in notes
    assert '10 rows have the label "None"' in notes
    assert "good" not in notes


def test_too_few_texts(tmp_path: Path) -> None:
    path = table(tmp_path / "my.csv", "text,label", [("a", "x"), ("b", "y"), ("a", "x"), ("b", "y")])
    refused(
        path, ": 2 different texts are too few to split off test and dev; add rows, or give all three parts"
    )
    data = load(table(tmp_path / "my.csv", "text,label", [("a", "x"), ("b", "y"), ("a", "x"), ("c", "y")]))
    assert all((data.train, data.dev, data.test))


def split(samples: list[dict[str, Any]], n: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    return split_off_inputs(get_kind("multi-class"), samples, n)


def test_each_class_in_its_share() -> None:
    sizes = {"a": 100, "b": 50, "c": 20, "d": 3, "e": 2, "f": 1}
    samples = [{"text": f"{label} {i}", "label": label} for label, n in sizes.items() for i in range(n)]
    rest, off = split(samples, 17)
    counts = Counter(sample["label"] for sample in off)
    assert len(off) == 17
    assert (counts["e"], counts["f"]) == (0, 0)
    assert all(abs(counts[label] - 17 * n / 173) < 1 for label, n in sizes.items() if n > 2)
    assert sorted(sample["text"] for sample in rest + off) == sorted(sample["text"] for sample in samples)


def test_rare_classes_stay_and_no_class_is_emptied() -> None:
    rare = [{"text": f"rare {i}", "label": f"r{i // 2}"} for i in range(40)]
    common = [{"text": f"common {i}", "label": "c"} for i in range(60)]
    assert {sample["label"] for sample in split(rare + common, 10)[1]} == {"c"}
    assert len(split(rare + common[:6], 5)[1]) == 2


def test_train_keeps_every_class_that_has_three_texts(tmp_path: Path) -> None:
    rows = [(f"{label} {i}", f"c{label}") for i in range(3) for label in range(40)]
    data = load(table(tmp_path / "my.csv", "text,label", rows))
    assert (len(data.train), len(data.dev), len(data.test)) == (96, 12, 12)
    assert len({sample["label"] for sample in data.train}) == 40


def test_always_the_same_ones(tmp_path: Path) -> None:
    path = table(tmp_path / "my.csv", "text,label", REVIEWS)
    first, second = load(path), load(path)
    assert (first.train, first.dev, first.test) == (second.train, second.dev, second.test)
    numbers = [int(sample["text"][5:]) for sample in first.train]
    assert numbers == sorted(numbers)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(
    st.lists(
        st.tuples(st.sampled_from("abcdefgh"), st.sampled_from("abc"), st.sampled_from("xyz")),
        min_size=40,
        max_size=80,
    )
)
@pytest.mark.parametrize("kind", ["multi-class", "pair"])
def test_no_text_on_both_sides(tmp_path: Path, kind: str, rows: list[tuple[str, str, str]]) -> None:
    rows = [*rows, ("a", "b", "x"), ("b", "a", "y"), ("c", "c", "x"), ("d", "c", "y")]
    path = table(tmp_path / "my.csv", "text,text_b,label", rows)
    data = load(path, kind=kind) if kind == "pair" else load(path, text="text")
    train, dev, test = (
        {frozenset(s[name] for name in ("text", "text_b") if name in s) for s in part}
        for part in (data.train, data.dev, data.test)
    )
    assert train
    assert dev
    assert test
    assert not train & dev | train & test | dev & test
    assert len(everything(data)) == len(rows)


# --- the hub


class Rows(list[dict[str, Any]]):
    """What the datasets library returns: rows with ``features``."""

    def __init__(
        self, rows: list[dict[str, Any]], names: dict[str, list[str]], listed: tuple[str, ...] = ()
    ) -> None:
        super().__init__(rows)
        self.features = {column: Feature(names.get(column), column in listed) for column in rows[0]}


class Feature:
    def __init__(self, names: list[str] | None, listed: bool) -> None:
        if listed:
            self.feature = Feature(names, False)
        elif names is not None:
            self.names = names


def on_the_hub(monkeypatch: pytest.MonkeyPatch, **splits: Any) -> list[tuple[str, str | None]]:
    requests: list[tuple[str, str | None]] = []
    monkeypatch.setattr(
        user_data, "load_hub", lambda name, config=None: requests.append((name, config)) or splits
    )
    return requests


def test_hub_classes_have_names_and_hidden_labels_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def rows(n: int, label: int | None) -> Rows:
        labels = [i % 2 if label is None else label for i in range(n)]
        content = [{"sentence": f"s {i} of {n}", "label": labels[i], "idx": i} for i in range(n)]
        return Rows(content, {"label": ["no", "yes"]})

    requests = on_the_hub(monkeypatch, train=rows(20, None), dev=rows(4, None), test=rows(5, -1))
    task, data = open_user_data("hf:nyu/glue:sst2", Where())
    assert requests == [("nyu/glue", "sst2")]
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
    content = [{"tokens": ["a", str(i)], "ner_tags": [0, 1]} for i in range(10)]
    requests = on_the_hub(monkeypatch, train=Rows(content, {"ner_tags": ["O", "B-X"]}, ("ner_tags",)))
    task, data = open_user_data("owner/name", Where())
    assert requests == [("owner/name", None)]
    assert (task.name, task.kind.name, task.metric) == ("owner--name", "token", "f1")
    assert all(sample["tags"] == ["O", "B-X"] for sample in everything(data))


ROW, EMPTY = {"text": "a", "label": "x"}, {"text": " ", "label": "x"}


@pytest.mark.parametrize(
    ("target", "splits", "message"),
    [
        (
            "owner/name",
            {"train": Rows([ROW, EMPTY], {})},
            r'^owner/name \(train\), row 2: column "text" is empty; missing="drop" leaves such rows out$',
        ),
        ("hf:owner/name", {"test": Rows([ROW], {})}, "^hf:owner/name: there is no train set, only test$"),
        ("hf:name", {}, "^name: no split of this data set is named train, validation or test$"),
        ("hf:name", {"train": Rows([{**ROW, "label": None}], {})}, r"^name \(train\): no row has a label$"),
    ],
)
def test_other_content_of_the_hub_is_refused(
    monkeypatch: pytest.MonkeyPatch, target: str, splits: dict[str, Any], message: str
) -> None:
    on_the_hub(monkeypatch, **splits)
    with pytest.raises(DataError, match=message):
        open_user_data(target, Where(), Columns("text", None, "label"))


def test_a_name_that_is_neither_a_file_nor_on_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str, config: str | None) -> None:
        raise DataError(f"{name}: could not be read")

    monkeypatch.setattr(user_data, "load_hub", fail)
    with pytest.raises(
        DataError, match=r"^data/mine: could not be read; there is no such file or folder either$"
    ):
        open_user_data("data/mine", Where())
    with pytest.raises(DataError, match=r"^mine: could not be read$"):
        open_user_data("hf:mine", Where())


def test_the_real_library_has_such_features(monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = pytest.importorskip("datasets")
    features = {
        "text": datasets.Value("string"),
        "label": datasets.ClassLabel(names=["no", "yes"]),
        "topics": datasets.Sequence(datasets.ClassLabel(names=["a", "b", "c"])),
    }
    rows = [{"text": f"t {i}", "label": i % 2, "topics": [i % 3, 2]} for i in range(10)]
    on_the_hub(monkeypatch, train=datasets.Dataset.from_list(rows, features=datasets.Features(features)))
    data = open_user_data("owner/name", Where())[1]
    assert {s["text"]: s["label"] for s in everything(data)}["t 3"] == "yes"
    data = open_user_data("owner/name", Where(), Columns(label="topics"))[1]
    assert {s["text"]: s["labels"] for s in everything(data)}["t 4"] == ["b", "c"]


# --- real data

EXPECTED = {
    "clinc_oos": ("multi-class", "accuracy", (15250, 3100, 5500), 151),
    "conll2003": ("token", "f1", (14041, 3250, 3453), 9),
    "glue_mrpc": ("pair", "accuracy", (3668, 408, 1725), 2),
    "reuters21578": ("multi-label", "micro_f1", (7006, 764, 3019), 90),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_real_folders(name: str) -> None:
    if not (DATA / name).is_dir():
        pytest.skip(f"{name} is not in SPARRING_DATA")
    task, data = open_user_data(str(DATA / name), OFFLINE)
    assert (task.kind.name, task.metric, task.sizes, len(data.labels)) == EXPECTED[name]
