from __future__ import annotations

from pathlib import Path

import pytest
from tests.lab.readers.folders import write

from sparring.lab.datasets import DataError, Where, get_task
from sparring.lab.datasets.text.wos import original

N = 46985
AREAS = [
    (domain, number) for domain, n_areas in enumerate((17, 16, 19, 9, 11, 53, 9)) for number in range(n_areas)
]  # 134 in 7 domains
CHOSEN = [AREAS[i % 134] for i in range(N)]
TEXTS = {
    "X.txt": "".join(f"abstract {i}\n" for i in range(N)),
    "YL1.txt": "".join(f"{domain}\n" for domain, _ in CHOSEN),
}


@pytest.mark.parametrize(
    ("name", "areas"),
    [
        ("Y.txt", [i % 134 for i in range(N)]),  # areas count through
        ("YL2.txt", [number for _, number in CHOSEN]),  # areas count anew in each domain
    ],
)
def test_141_classes_in_the_parts_of_the_paper(name: str, areas: list[int], tmp_path: Path) -> None:
    assert original(tmp_path) is None
    write(tmp_path / "wos46985", {**TEXTS, name: "".join(f"{area}\n" for area in areas)})
    data = get_task("wos").load(Where(tmp_path))
    assert (len(data.train), len(data.dev), len(data.test)) == (30070, 7518, 9397)
    assert len(data.labels) == 7 + 134
    samples = [*data.train, *data.dev, *data.test]
    assert {sample["text"] for sample in samples} == {f"abstract {i}" for i in range(N)}
    for sample in samples:
        i = int(sample["text"].removeprefix("abstract "))
        assert sample["labels"] == [str(CHOSEN[i][0]), f"{CHOSEN[i][0]}/{areas[i]}"]
    assert data.test == get_task("wos").load(Where(tmp_path)).test  # always the same parts


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (
            {"X.txt": "a\nb\n", "YL1.txt": "0\n1\n", "Y.txt": "3\n"},
            "expected equally many lines, got 2 abstracts, 2 domains, 1 areas",
        ),
        (
            {"X.txt": "a\nb\n", "YL1.txt": "0\nCS\n", "Y.txt": "3\n4\n"},
            "YL1.txt:2: expected the number of a class, got 'CS'",
        ),
        ({"X.txt": "a\n", "Y.txt": "3\n"}, "expected YL1.txt and Y.txt"),
    ],
)
def test_files_that_do_not_fit_are_refused(files: dict[str, str], message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=message):
        original(write(tmp_path, files))
