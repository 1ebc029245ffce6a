"""Run folders: whole files, journals that a kill cannot spoil."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sparring.lab.errors import UserError
from sparring.lab.runs import records
from sparring.lab.runs.records import Journal, RunFolder


def test_a_journal_drops_what_comes_by_again(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    first = Journal(path)
    for step in range(1, 6):
        first.add({"step": step, "run": 1})
    with path.open("a") as file:
        file.write('{"step": 6, "ru')  # killed while writing
    second = Journal(path)  # resumed from the checkpoint at step 3
    for step in (4, 5):
        second.add({"step": step, "run": 2})
    assert [(row["step"], row["run"]) for row in records.read_lines(path)] == [
        (1, 1),
        (2, 1),
        (3, 1),
        (4, 2),
        (5, 2),
    ]
    assert [*tmp_path.iterdir()] == [path]


def test_a_journal_keeps_as_many_lines_as_its_run_knows_of(tmp_path: Path) -> None:
    """Two batches of an epoch may end at the same planned step. Lines that are missing are an error."""
    path = tmp_path / "journal.jsonl"
    for n, step in enumerate((1, 2, 2, 3)):
        Journal(path).add({"step": step}, n)
    Journal(path).add({"step": 2}, 2)  # from the checkpoint after the first of the two
    assert [row["step"] for row in records.read_lines(path)] == [1, 2, 2]
    with pytest.raises(UserError, match="3 lines where the run wrote 4; --fresh begins it anew"):
        Journal(path).add({"step": 4}, 4)
    journal = Journal(path)
    journal.add({"step": 3}, 3)
    journal.check(4)
    path.unlink()
    for act in (lambda: journal.add({"step": 4}, 4), lambda: journal.check(4)):
        with pytest.raises(UserError, match=r"journal.jsonl: removed while its run was under way"):
            act()


def test_lines_may_hold_any_separator(tmp_path: Path) -> None:
    rows = [{"text": "a\u2028b\u0085c\nd"}, {"text": "e"}]
    records.write_lines(tmp_path / "a.jsonl", rows)
    assert records.read_lines(tmp_path / "a.jsonl") == rows


def test_json_has_no_nan(tmp_path: Path) -> None:
    records.write_json(tmp_path / "summary.json", {"a": float("nan"), "b": [1.0, float("inf")], "c": ("x",)})
    assert json.loads((tmp_path / "summary.json").read_text()) == {"a": None, "b": [1.0, None], "c": ["x"]}
    assert RunFolder(tmp_path).done


def test_finished_runs_are_found(tmp_path: Path) -> None:
    for name in ("b/seed-0", "a/seed-1", "a/seed-0"):
        records.write_json(tmp_path / name / "summary.json", {})
    (tmp_path / "c").mkdir()
    assert [run.path for run in records.find_runs(tmp_path)] == [
        tmp_path / n for n in ("a/seed-0", "a/seed-1", "b/seed-0")
    ]
    assert [run.path for run in records.find_runs(tmp_path / "b/seed-0")] == [tmp_path / "b/seed-0"]


def test_the_machine_is_named() -> None:
    facts = records.machine()
    assert facts["versions"]["torch"]
    assert facts["cores"] >= 1
