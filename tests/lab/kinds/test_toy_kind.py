"""A new kind is one file: `toy_kind.py` goes through every command, and nothing else knows of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sparring.cli.app import main
from sparring.lab import datasets
from sparring.lab.kinds import base


@pytest.fixture(autouse=True)
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kind and its task, known during these tests only."""
    monkeypatch.setattr(base, "_KINDS", dict(base._KINDS))
    monkeypatch.setattr(datasets, "_TASKS", dict(datasets._TASKS))
    from tests.lab.kinds import toy_kind

    base.register_kind(toy_kind.PointKind)
    facts = {"about": "quadrants", "metric": "accuracy", "home": "made", "settings": {"batch_size": 16}}
    datasets.register("quadrants", kind="point", load=toy_kind.load, **facts)


def command(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    assert main([*words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_ninth_kind_runs_compares_predicts_and_reports(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = ["--out", str(tmp_path / "runs"), "--threads", "1"]
    compared = command(capsys, "compare", "quadrants", *out)
    assert compared["kind"] == "point"
    assert [row["contestant"].split()[0] for row in compared["rows"]] == ["softmax", "as-softmax"]
    finished = command(capsys, "run", "quadrants", *out)  # the second contestant: not trained again
    assert finished["rows"][0]["test"]["mean"] > 0.8
    predicted = command(capsys, "predict", str(tmp_path / "runs"), "0.9,0.9", "0.9,-0.9")
    assert [row["predicted"] for row in predicted] == ["north-east", "south-east"]
    assert predicted[0]["probabilities"]["north-east"] > 0.5
    report = tmp_path / "report.html"
    command(capsys, "report", str(tmp_path / "runs"), "-o", str(report))
    text = report.read_text()
    assert "quadrants" in text
    assert "south-" in text  # the hardest samples, shown as the kind shows them
