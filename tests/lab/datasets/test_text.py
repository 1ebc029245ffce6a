"""The publishers' forms of data sets for classifying and generating texts."""

import json
from pathlib import Path
from typing import Any

import pytest

from sparring.lab.datasets import Where, get_task
from tests.lab.datasets.folders import check_read, check_refused, jsonl, read, write

CLINC = {
    "train": [["hello there", "greeting"]],
    "oos_train": [["how far is the moon", "oos"]],
    "val": [["good day", "greeting"]],
    "oos_val": [],
    "test": [["see you", "goodbye"]],
    "oos_test": [["who am i", "oos"]],
}
IFLYTEK = jsonl(
    {"label": "110", "label_des": "社区超市", "sentence": "买菜"},
    {"label": "70", "label_des": "工具", "sentence": "手电"},
)
FORMS: dict[str, tuple[str, dict[str, str], dict[str, Any]]] = {
    "trees have the root's label and the leaves' words": (
        "text.sst5",
        {
            "train.txt": "(3 (2 It) (4 (2 -LRB-) (3 (2 and\\/or) (2 works))))\n(0 (2 Bad))\n",
            "trees/dev.txt": "(2 (2 So) (2 so))\n",
            "test.txt": "(1 (1 no) (2 .))\n\n",
        },
        {
            "train": [
                {"text": "It ( and/or works", "label": "positive"},
                {"text": "Bad", "label": "very negative"},
            ],
            "dev": [{"text": "So so", "label": "neutral"}],
            "test": [{"text": "no .", "label": "negative"}],
        },
    ),
    "lines with a label in front": (
        "text.sst5",
        {"stsa.fine.train": "4 a stirring film\n0 bad .\n"},
        {
            "train": [
                {"text": "a stirring film", "label": "very positive"},
                {"text": "bad .", "label": "very negative"},
            ]
        },
    ),
    "intents and out-of-scope questions are joined": (
        "text.clinc_oos",
        {"data_full.json": json.dumps(CLINC)},
        {
            "train": [
                {"text": "hello there", "label": "greeting"},
                {"text": "how far is the moon", "label": "oos"},
            ],
            "dev": [{"text": "good day", "label": "greeting"}],
            "test": [{"text": "see you", "label": "goodbye"}, {"text": "who am i", "label": "oos"}],
        },
    ),
    "descriptions are the labels, and the hidden test set is not read": (
        "text.iflytek",
        {
            "train.json": IFLYTEK,
            "dev.json": jsonl({"label": "70", "label_des": "工具", "sentence": "日历"}),
            "test.json": jsonl({"id": 0, "sentence": "x"}),
        },
        {
            "train": [{"text": "买菜", "label": "社区超市"}, {"text": "手电", "label": "工具"}],
            "dev": [{"text": "日历", "label": "工具"}],
        },
    ),
}
WORKS = "(3 (2 It) (4 works))\n"
ABSTRACTS = {"X.txt": "a\nb\n", "YL1.txt": "0\n1\n", "Y.txt": "3\n4\n"}
REFUSED: list[tuple[str, dict[str, str], str]] = [
    (
        "text.sst5",
        {"train.txt": WORKS + WORKS[:-2]},
        r"train.txt:2: expected a tree like .*, got '\(3 \(2 It\)",
    ),
    ("text.sst5", {"train.txt": "(7 (2 It) (4 works))\n"}, "train.txt:1: expected a tree .* labels 0 to 4"),
    ("text.sst5", {"train.txt": "It works\n"}, "train.txt:1: expected a tree"),
    ("text.sst5", {"stsa.fine.train": "4 good\n5 great\n"}, "fine.train:2: expected a label 0 to 4"),
    ("text.sst5", {"stsa.fine.train": "4\n"}, "stsa.fine.train:1: expected a label 0 to 4"),
    ("text.clinc_oos", {"data_full.json": '{"train":\n oops}'}, "data_full.json:2: not JSON"),
    (
        "text.clinc_oos",
        {"data_full.json": '{"train": []}'},
        "expected the keys train, val and test, got train",
    ),
    ("text.clinc_oos", {"data_full.json": '{"train": {}}'}, "expected a list under train and oos_train"),
    (
        "text.clinc_oos",
        {"data_full.json": '{"train": [["a", "b", "c"]]}'},
        r"expected \[text, intent\] .*'c'\]",
    ),
    ("text.iflytek", {"train.json": IFLYTEK + jsonl({"sentence": "x"})}, 'train.json:3: .* "label_des", got'),
    (
        "text.iflytek",
        {"train.json": jsonl({"label_des": "x", "sentence": None})},
        "json:1: expected the texts",
    ),
    ("text.iflytek", {"train.json": IFLYTEK + "x\n"}, "train.json:3: expected one JSON object a line"),
    ("text.wos", {**ABSTRACTS, "Y.txt": "3\n"}, "equally many lines, got 2 abstracts, 2 domains, 1 areas"),
    ("text.wos", {**ABSTRACTS, "YL1.txt": "0\nCS\n"}, "YL1.txt:2: expected the number of a class, got 'CS'"),
    ("text.wos", {"X.txt": "a\n", "Y.txt": "3\n"}, "expected YL1.txt and Y.txt"),
    (
        "text.squad_qg",
        {"src-train.txt": "a\nb\n", "tgt-train.txt": "c\n"},
        "2 lines and .* 1: expected as many",
    ),
    ("text.squad_qg", {"src-train.txt": "a\n"}, "expected src-train.txt and .*; tgt-train.txt is missing"),
]


@pytest.mark.parametrize("form", FORMS)
def test_forms(form: str, tmp_path: Path) -> None:
    module, files, expected = FORMS[form]
    check_read(module, tmp_path, files, expected)


@pytest.mark.parametrize(("module", "files", "message"), REFUSED)
def test_other_content_is_refused(module: str, files: dict[str, str], message: str, tmp_path: Path) -> None:
    check_refused(module, tmp_path, files, message)


def test_clinc_plus_is_preferred(tmp_path: Path) -> None:
    plus = {**CLINC, "oos_train": [["plus", "oos"]]}
    write(tmp_path, {"data_full.json": json.dumps(CLINC), "data_oos_plus.json": json.dumps(plus)})
    assert read("text.clinc_oos", tmp_path)["train"][1]["text"] == "plus"


# --- WOS: 134 areas in 7 domains, split as in the paper

AREAS = [(domain, area) for domain, n in enumerate((17, 16, 19, 9, 11, 53, 9)) for area in range(n)]


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("Y.txt", (30070, 7518, 9397)),  # areas are numbered throughout
        ("YL2.txt", (429, 107, 134)),  # areas are numbered within their domain
    ],
)
def test_wos_has_141_classes_in_the_parts_of_the_paper(
    name: str, sizes: tuple[int, int, int], tmp_path: Path
) -> None:
    assert read("text.wos", tmp_path) is None
    rows = [(*AREAS[i % 134], i % 134) for i in range(sum(sizes))]
    areas = [number if name == "Y.txt" else within for _, within, number in rows]
    files = {
        "X.txt": "".join(f"abstract {i}\n" for i in range(sum(sizes))),
        "YL1.txt": "".join(f"{domain}\n" for domain, _, _ in rows),
        name: "".join(f"{area}\n" for area in areas),
    }
    write(tmp_path / "wos46985", files)
    data = get_task("wos").load(Where(tmp_path))
    assert (len(data.train), len(data.dev), len(data.test)) == sizes
    assert len(data.labels) == 7 + 134
    labels = {sample["text"]: sample["labels"] for sample in [*data.train, *data.dev, *data.test]}
    assert labels == {
        f"abstract {i}": [str(domain), f"{domain}/{areas[i]}"] for i, (domain, _, _) in enumerate(rows)
    }
    assert data.test == get_task("wos").load(Where(tmp_path)).test


# --- pairs of files with aligned lines

SQUAD = {
    "src-train.txt": "denver won the super bowl .\n\nbeyoncé gave $ 250,000 .\n",
    "tgt-train.txt": "who won the super bowl ?\nwhat ?\nhow much did beyonce give ?\n",
    "src-dev.txt.gz": "it is a replica .\n",
    "tgt-dev.txt.gz": "what is it ?\n",
    "src-test.txt": "rome is old .",
    "tgt-test.txt": "what is old ?",
}


@pytest.mark.parametrize("place", ["", "data/processed"])
def test_squad_qg(place: str, tmp_path: Path) -> None:
    assert read("text.squad_qg", tmp_path) is None
    write(tmp_path / "squad_qg" / place, SQUAD)
    data = get_task("squad_qg").load(Where(tmp_path, hub=False))
    assert data.train == [
        {"source": "denver won the super bowl .", "target": "who won the super bowl ?"},
        {"source": "beyoncé gave $ 250,000 .", "target": "how much did beyonce give ?"},
    ]
    assert data.dev == [{"source": "it is a replica .", "target": "what is it ?"}]
    assert data.test == [{"source": "rome is old .", "target": "what is old ?"}]
    assert data.labels == []
    assert data.notes == (
        "1 pairs left out: an empty line on one side",
        "train is not the published one of 70,484 pairs: 2",
    )


@pytest.mark.parametrize(
    ("folder", "train", "dev", "test"),
    [
        ("", ("train.src", "train.tgt"), ("valid.src", "valid.tgt"), ("test.src", "test.tgt")),
        ("org_data", ("train.src", "train.tgt"), ("dev.src", "dev.tgt"), ("test.src", "test.tgt")),
        (
            "sumdata",
            ("train/train.article", "train/train.title"),
            ("train/valid.article.filter", "train/valid.title.filter"),
            ("Giga/input", "Giga/task1_ref0"),
        ),
    ],
)
def test_gigaword(folder: str, train: Any, dev: Any, test: Any, tmp_path: Path) -> None:
    texts = {train: ("a long story", "story"), dev: ("a b", "b"), test: ("c d", "d")}
    files = {
        f"{name}.txt": f"{text}\n" for names in texts for name, text in zip(names, texts[names], strict=True)
    }
    write(tmp_path / "gigaword" / folder, files)
    data = get_task("gigaword").load(Where(tmp_path, hub=False))
    expected = [[{"source": source, "target": target}] for source, target in texts.values()]
    assert [data.train, data.dev, data.test] == expected
