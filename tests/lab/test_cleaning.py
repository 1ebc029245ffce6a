"""`sparring suspects` from a finished run on a user's own table, to a cleaned file that trains."""

from __future__ import annotations

import csv
import json
import random
import shutil
import zipfile
from pathlib import Path
from typing import Any

import pytest

from sparring.cli import main
from sparring.lab.cleaning import open_suspects, write_cleaned
from sparring.lab.errors import UserError
from sparring.lab.runs.predict import find_run
from sparring.lab.runs.records import RunFolder

WORDS = {"fruit": "apple pear plum fig", "tool": "saw axe file nail", "pet": "cat dog hare newt"}
FILLERS = ["a", "the", "my", "one", "some", "this", "that", "old", "new", "big"]
SETTINGS = ["--label-column", "kind", "--loss", "softmax", "--concede", "0.5", "--epochs", "12"]


def write_table(path: Path) -> set[str]:
    """A table with extra columns, a tenth of whose labels are wrong. Returns the ids of these rows."""
    rng = random.Random(0)
    wrong = set()
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "note", "kind"])
        for i in range(240):
            kind = rng.choice(list(WORDS))
            words = [
                *rng.sample(FILLERS, 4),
                rng.choice(WORDS[kind].split()),
                rng.choice(WORDS[kind].split()),
            ]
            rng.shuffle(words)
            if rng.random() < 0.1:
                wrong.add(str(i))
                kind = rng.choice([other for other in WORDS if other != kind])
            writer.writerow([i, " ".join(words), kind])
    return wrong


class Trained:
    """One run, which all tests of this file share."""

    def __init__(self, folder: Path) -> None:
        self.table = folder / "mine.csv"
        self.wrong = write_table(self.table)
        self.out = folder / "runs"
        assert main(["run", str(self.table), *SETTINGS, "--out", str(self.out), "--text-column", "note"]) == 0
        self.run = find_run(self.out)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return Trained(tmp_path_factory.mktemp("suspects"))


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def ids_of(trained: Trained, suspects: Any) -> list[str]:
    ids = {row["note"]: row["id"] for row in rows_of(trained.table)}
    return [ids[suspect.sample["text"]] for suspect in suspects]


def test_wrong_labels_are_found_and_the_right_ones_proposed(trained: Trained) -> None:
    found = open_suspects(trained.run)
    ids = ids_of(trained, found.suspects)
    n_wrong = sum(i in trained.wrong for i in ids)
    assert n_wrong >= 0.8 * len(ids)
    in_train = set(ids_of(trained, open_suspects(trained.run, top=10**6).suspects))
    assert n_wrong >= 0.8 * len(trained.wrong & in_train)
    for suspect in found.suspects[:5]:
        assert any(word in suspect.sample["text"] for word in WORDS[suspect.proposed].split())
        assert suspect.given != suspect.proposed
    assert [s.score for s in found.suspects] == sorted((s.score for s in found.suspects), reverse=True)
    assert all(suspect.lead > 0 for suspect in found.suspects[:5])


def test_drop_keeps_columns_and_other_rows_and_the_file_trains(trained: Trained, tmp_path: Path) -> None:
    before = trained.table.read_bytes()
    clean = tmp_path / "clean.csv"
    found = open_suspects(trained.run)
    counts = write_cleaned(clean, found)
    dropped = set(ids_of(trained, found.suspects))
    assert rows_of(clean) == [row for row in rows_of(trained.table) if row["id"] not in dropped]
    assert counts == {"written": 240 - len(dropped), "dropped": len(dropped), "relabelled": 0}
    assert trained.table.read_bytes() == before
    words = ["--text-column", "note", "--label-column", "kind", "--epochs", "1", "--out", str(tmp_path)]
    assert main(["run", str(clean), *words]) == 0


def test_relabel_changes_the_label_alone(trained: Trained, tmp_path: Path) -> None:
    clean = tmp_path / "clean.jsonl"
    found = open_suspects(trained.run, top=3)
    assert write_cleaned(clean, found, relabel=True) == {"written": 240, "dropped": 0, "relabelled": 3}
    proposed = {s.sample["text"]: s.proposed for s in found.suspects}
    rows = [json.loads(line) for line in clean.read_text(encoding="utf-8").splitlines()]
    expected = [{**row, "kind": proposed.get(row["note"], row["kind"])} for row in rows_of(trained.table)]
    assert rows == expected


def test_command_line(trained: Trained, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["suspects", str(trained.out), "--csv", str(tmp_path / "list.csv"), "--top", "4"]) == 0
    table = capsys.readouterr().out
    assert "Labels that look wrong" in table
    assert "training labels look wrong" in table
    assert len(rows_of(tmp_path / "list.csv")) == 4
    assert (
        main(["suspects", str(trained.out), "--json", "--top", "4", "--drop", str(tmp_path / "c.csv")]) == 0
    )
    answer = json.loads(capsys.readouterr().out)
    assert len(answer["suspects"]) == 4
    assert answer["cleaned"]["dropped"] == 4
    assert set(answer["suspects"][0]) == {
        *("index", "line", "sample", "given", "proposed"),
        *("score", "lead", "conceded"),
    }
    lines = trained.table.read_text(encoding="utf-8").splitlines()
    for suspect in open_suspects(trained.run).suspects:
        assert suspect.sample["text"] in lines[suspect.line_number - 1]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--drop", "mine.csv"], "exists already; nothing is overwritten"),
        (["--drop", "clean.xlsx"], "expected the name of a new .csv, .tsv or .jsonl file"),
        (["--top", "0"], "--top must be at least 1"),
        (["--drop", "a.csv", "--relabel", "b.csv"], "exclude each other"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_mistakes_of_a_user(
    words: list[str],
    message: str,
    trained: Trained,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(trained.table.parent)
    assert main(["suspects", str(trained.out), *words]) == 1
    assert message in capsys.readouterr().err


def test_changed_data_and_damaged_histories_are_refused(trained: Trained, tmp_path: Path) -> None:
    shutil.copytree(trained.run.path, tmp_path / "run")
    folder = RunFolder(tmp_path / "run")
    text = trained.table.read_text(encoding="utf-8")
    trained.table.write_text(text.replace(",tool", ",pet", 1), encoding="utf-8")
    try:
        with pytest.raises(UserError, match="the data has changed since"):
            open_suspects(folder)
    finally:
        trained.table.write_text(text, encoding="utf-8")
    (folder.path / "history.npz").write_bytes(b"PK not a zip file")
    with pytest.raises(UserError, match=r"cannot be read as a history.*fresh=True"):
        open_suspects(folder)
    with zipfile.ZipFile(folder.path / "history.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("margin.npy", bytes(100 * 2**20))  # a hundred kilobytes unpack to this
    with pytest.raises(UserError, match=r"unpack to .* or more"):
        open_suspects(folder)
    (folder.path / "history.npz").unlink()
    with pytest.raises(UserError, match=r"no history\.npz; run it again"):
        open_suspects(folder)


def test_report_shows_them(trained: Trained, tmp_path: Path) -> None:
    pytest.importorskip("altair")
    page = tmp_path / "report.html"
    assert main(["report", str(trained.out), "-o", str(page)]) == 0
    text = page.read_text(encoding="utf-8")
    assert "Labels that look wrong" in text
    assert open_suspects(trained.run).suspects[0].sample["text"] in text
