"""Sets on the Hugging Face hub, through the real datasets library with its download replaced."""

import builtins
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sparring.lab.datasets import DataError, Where, get_task
from sparring.lab.models import offline
from sparring.lab.readers.hub import HubSource, class_names, load_hub

datasets = pytest.importorskip("datasets")

Rows = list[dict[str, Any]]
TEXT, NUMBER = datasets.Value("string"), datasets.Value("int32")


class Hub:
    """A hub with one data set; it cannot be reached before ``serve`` is called."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str | None, str | None]] = []
        self.content: Any = None

    def serve(self, features: dict[str, Any], **splits: Rows) -> None:
        types = datasets.Features(features)
        self.content = datasets.DatasetDict(
            {name: datasets.Dataset.from_list(rows, features=types) for name, rows in splits.items()}
        )

    def load_dataset(
        self, name: str, config: str | None = None, revision: str | None = None, *, trust_remote_code: bool
    ) -> Any:
        assert not trust_remote_code
        self.requests.append((name, config, revision))
        if self.content is None:
            raise ConnectionError("Couldn't reach the hub\nand more lines")
        return self.content


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Hub:
    fake = Hub()
    monkeypatch.setattr(datasets, "load_dataset", fake.load_dataset)
    monkeypatch.setattr(offline, "look_for_hub", lambda: True)  # whatever the network of this machine
    return fake


def classes(*names: str) -> Any:
    return datasets.ClassLabel(names=list(names))


# name of the task: its request, the columns on the hub, a row there, and the sample
SETS: dict[str, tuple[tuple[str, str | None, str | None], dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "clinc_oos": (
        ("clinc/clinc_oos", "plus", None),
        {"text": TEXT, "intent": classes("greeting", "oos")},
        {"text": "moon", "intent": 1},
        {"text": "moon", "label": "oos"},
    ),
    "sst5": (
        ("SetFit/sst5", None, None),
        {"text": TEXT, "label": NUMBER, "label_text": TEXT},
        {"text": "good", "label": 4, "label_text": "very positive"},
        {"text": "good", "label": "very positive"},
    ),
    "conll2003": (
        ("eriktks/conll2003", None, "refs/convert/parquet"),
        {"tokens": datasets.Sequence(TEXT), "ner_tags": datasets.Sequence(classes("O", "B-PER", "I-PER"))},
        {"tokens": ["Peter", "Black", "met"], "ner_tags": [1, 2, 0]},
        {"tokens": ["Peter", "Black", "met"], "tags": ["B-PER", "I-PER", "O"]},
    ),
    "eurlex": (
        ("coastalcph/lex_glue", "eurlex", None),
        {"text": TEXT, "labels": datasets.Sequence(classes("100163", "100168"))},
        {"text": "A", "labels": [1, 0]},
        {"text": "A", "labels": ["100168", "100163"]},
    ),
    "gigaword": (
        ("Harvard/gigaword", None, "refs/convert/parquet"),
        {"document": TEXT, "summary": TEXT},
        {"document": "a long story", "summary": "story"},
        {"source": "a long story", "target": "story"},
    ),
}


@pytest.mark.parametrize("name", SETS)
def test_rows_become_samples(name: str, hub: Hub) -> None:
    request, features, row, sample = SETS[name]
    hub.serve(features, train=[row, row], validation=[row], test=[row])
    data = get_task(name).load(Where())
    assert hub.requests == [request]
    assert (data.train, data.dev, data.test) == ([sample, sample], [sample], [sample])
    assert data.source == "Hugging Face hub"


def test_images_become_tensors(hub: Hub) -> None:
    image = pytest.importorskip("PIL.Image").new("RGB", (4, 2), (1, 2, 3))
    features = {"img": datasets.Image(), "fine_label": classes("apple", "bear")}
    hub.serve(features, train=[{"img": image, "fine_label": i % 2} for i in range(4)])
    sample = get_task("cifar100").load(Where()).train[0]
    assert sample["image"].shape == (3, 2, 4)
    assert sample["image"][:, 0, 0].tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("name", "request_", "columns"),
    [
        ("wikiart", ("huggan/wikiart", None, None), ("image", "style")),
        ("chest_falsetto", ("ccmusic-database/chest_falsetto", "eval", None), ("mel", "label")),
    ],
)
def test_large_images_become_small_squares(
    name: str, request_: tuple[str, ...], columns: tuple[str, str], hub: Hub
) -> None:
    """dev and test are split off where the hub has none."""
    pictures, style = columns
    image = pytest.importorskip("PIL.Image").new("RGB", (200, 100), (1, 2, 3))
    features = {pictures: datasets.Image(), style: classes("Baroque", "Cubism"), "artist": NUMBER}
    hub.serve(features, train=[{pictures: image, style: i % 2, "artist": i} for i in range(20)])
    data = get_task(name).load(Where())
    assert hub.requests == [request_]
    assert data.labels == ["Baroque", "Cubism"]
    assert data.train[0]["image"].shape == (3, 64, 64)
    assert data.train[0]["image"][:, 0, 0].tolist() == [1, 2, 3]


def test_hidden_labels_are_left_out(hub: Hub) -> None:
    features = {"sentence": TEXT, "label": classes("0", "1"), "idx": NUMBER}
    rows = [{"sentence": f"app {i}", "label": i % 2, "idx": i} for i in range(4)]
    hub.serve(features, train=rows[:3], validation=rows[3:], test=[{"sentence": "x", "label": -1, "idx": 0}])
    data = get_task("iflytek").load(Where())
    assert data.test == [{"text": "app 3", "label": "1"}]
    assert (len(data.train), len(data.dev)) == (2, 1)
    assert data.notes == (
        "no test labels: the published dev set is the test set",
        "no dev set: 1 samples split off train",
    )
    assert hub.requests == [("clue/clue", "iflytek", None)]


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
def test_glue(name: str, columns: tuple[str, ...], names: tuple[str, ...], hub: Hub) -> None:
    features = {**dict.fromkeys(columns, TEXT), "label": classes(*names), "idx": NUMBER}
    rows = [
        {**{column: f"{column} {i} " for column in columns}, "label": i % len(names), "idx": i}
        for i in range(5)
    ]
    matched = "_matched" if name == "mnli" else ""
    test = rows[:1] if name == "mrpc" else [{**rows[0], "label": -1}]
    splits = {"train": rows[:4], f"validation{matched}": rows[4:], f"test{matched}": test}
    if name == "mnli":
        splits["validation_mismatched"] = rows[:1]
    hub.serve(features, **splits)
    data = get_task(name).load(Where())
    assert hub.requests == [("nyu-mll/glue", name, None)]
    texts = dict(zip(("text", "text_b"), (f"{column} 4" for column in columns), strict=False))
    assert (data.dev if name == "mrpc" else data.test) == [{**texts, "label": names[4 % len(names)]}]
    assert len(data.train) + len(data.dev) == (5 if name == "mrpc" else 4)


@pytest.mark.parametrize("column", ["label", "intent"])
def test_a_column_without_names_is_refused(column: str, hub: Hub) -> None:
    hub.serve({"text": TEXT, "label": NUMBER}, train=[{"text": "a", "label": 0}])
    assert class_names(load_hub("some/set")["train"], column) is None
    with pytest.raises(DataError, match=f'some/set, train: expected class names with the column "{column}"'):
        HubSource("some/set", {"text": "text"}, classes=column).read()


def test_a_hub_out_of_reach_says_what_else_to_do(hub: Hub, tmp_path: Path) -> None:
    with pytest.raises(DataError) as error:
        get_task("sst5").load(Where(tmp_path))
    reason = "SetFit/sst5: could not be read from the Hugging Face hub: Couldn't reach the hub and more lines"
    advice = "put its files there, or train.jsonl, dev.jsonl and test.jsonl with multi-class samples"
    assert str(error.value) == f"{reason} (looked in: {tmp_path / 'sst5'}); {advice}"
    assert len(hub.requests) == 1


@pytest.mark.parametrize("name", ["sst5", "conll2003", "clinc_oos", "eurlex", "iflytek", "mnli"])
def test_a_hub_that_is_off_is_not_asked(name: str, hub: Hub, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="or let it be read from the hub"):
        get_task(name).load(Where(tmp_path, hub=False))
    assert hub.requests == []


def test_the_library_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    usual: Callable[..., Any] = builtins.__import__

    def without(name: str, *args: Any, **more: Any) -> Any:
        if name == "datasets":
            raise ImportError(name)
        return usual(name, *args, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(DataError, match="pip install datasets"):
        load_hub("some/set")
