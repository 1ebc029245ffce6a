"""Run folders: whole files, journals that a kill cannot spoil."""

import json
from pathlib import Path
from typing import Any

import pytest

from sparring.lab.errors import UserError
from sparring.lab.runs import records
from sparring.lab.runs.records import Journal, RunFolder


def line(step: int, epoch: int = 0) -> dict[str, Any]:
    return {"step": step, "epoch": epoch, "loss": 0.5, "won_share": 0.5}


def test_a_resumed_journal_drops_the_lines_that_are_written_again(tmp_path: Path) -> None:
    path = tmp_path / "steps.jsonl"
    first = Journal(path)
    for step in range(1, 6):
        first.add(line(step))
    with path.open("a") as file:
        file.write('{"step": 6, "ru')  # killed while writing
    second = Journal(path)  # resumed from the checkpoint at step 3
    for step in (4, 5):
        second.add(line(step, epoch=1))
    lines = [(row["step"], row["epoch"]) for row in records.read_lines(path)]
    assert lines == [(1, 0), (2, 0), (3, 0), (4, 1), (5, 1)]
    assert [*tmp_path.iterdir()] == [path]


def test_a_resumed_journal_has_as_many_lines_as_its_run_counts(tmp_path: Path) -> None:
    """Two batches of an epoch may end at the same planned step. Lines that are missing are an error."""
    path = tmp_path / "steps.jsonl"
    for n, step in enumerate((1, 2, 2, 3)):
        Journal(path).add(line(step), n)
    Journal(path).add(line(2), 2)  # from the checkpoint after the first of the two
    assert [row["step"] for row in records.read_lines(path)] == [1, 2, 2]
    with pytest.raises(UserError, match=r"expected 4 lines, got 3; .*fresh=True"):
        Journal(path).add(line(4), 4)
    journal = Journal(path)
    journal.add(line(3), 3)
    journal.check(4)
    path.unlink()
    for act in (lambda: journal.add(line(4), 4), lambda: journal.check(4)):
        with pytest.raises(UserError, match=r"steps.jsonl: removed"):
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
