"""Saved records: their runs are not repeated on another machine, and stay when further ones are saved."""

from pathlib import Path

import pytest

from sparring.lab.paper.study_records import read_results
from sparring.lab.runs.records import find_runs
from tests.lab.paper.conftest import TINY, paper

Output = pytest.CaptureFixture[str]


def saved(folder: Path, study: str = "table2") -> list[tuple[str, int]]:
    records = read_results(folder / f"{study}.jsonl").records
    return [(record["method"], record["seed"]) for record in records]


def test_runs_are_added_to_what_was_saved(runs: Path, tmp_path: Path, capsys: Output) -> None:
    folder, elsewhere = tmp_path / "records", tmp_path / "elsewhere"
    settings = [*TINY, "--save", str(folder)]
    assert paper("table2", *settings, "--methods", "softmax", "--out", str(runs)) == 0
    assert saved(folder) == [("Softmax", 0)]
    assert paper("table2", *settings, "--methods", "AS-Softmax,Softmax", "--out", str(elsewhere)) == 0
    assert saved(folder) == [("Softmax", 0), ("AS-Softmax", 0)]
    assert "1 runs are in" in capsys.readouterr().err
    assert [run.read("summary")["contestant"] for run in find_runs(elsewhere)] == ["as-softmax delta=0.3"]
    # another study of the same runs
    nowhere = tmp_path / "nowhere"
    words = ["--methods", "as-softmax,softmax", "--out", str(nowhere)]
    assert paper("table4", *settings, *words) == 0
    assert saved(folder, "table4") == [("Softmax", 0), ("AS-Softmax", 0)]
    assert not list(find_runs(nowhere))
    assert paper("table2", *settings, *words, "--dry-run") == 0
    assert "all runs are done" in capsys.readouterr().out
    # another file in the folder is left alone; --fresh repeats a run, and keeps the records of the others
    (folder / "mine.jsonl").write_text("not a record\n")
    assert paper("table2", *settings, "--methods", "softmax", "--out", str(nowhere), "--fresh") == 0
    assert len(list(find_runs(nowhere))) == 1
    assert saved(folder) == [("Softmax", 0), ("AS-Softmax", 0)]
    # other settings: what was saved with the first ones goes
    assert paper("table2", *settings, "--methods", "softmax", "--out", str(runs), "--lr", "0.01") == 0
    assert saved(folder) == [("Softmax", 0)]


def test_hard_samples_need_no_model_where_their_runs_are_saved(runs: Path, tmp_path: Path) -> None:
    settings = ["table7", *TINY, "--save", str(tmp_path / "records")]
    assert paper(*settings, "--out", str(runs)) == 0
    before = (tmp_path / "records" / "table7.json").read_text()
    assert paper(*settings, "--out", str(tmp_path / "elsewhere")) == 0
    assert not (tmp_path / "elsewhere").exists()
    after = (tmp_path / "records" / "table7.json").read_text()
    assert after.replace("elsewhere", "") == before.replace(str(runs), str(tmp_path) + "/")


def test_a_method_that_there_is_not(runs: Path, tmp_path: Path, capsys: Output) -> None:
    assert paper("table2", *TINY, "--methods", "hinge", "--out", str(runs)) == 1
    assert "table2 has no method hinge here" in capsys.readouterr().err
