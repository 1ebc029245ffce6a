"""The lab from Python: every form of data, and what it returns."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import sparring
from sparring.cli import main
from sparring.lab.errors import DataError, UserError
from sparring.lab.readers.memory import write_data
from sparring.lab.runs.config import Config
from sparring.lab.runs.plan import open_task

ROWS = [
    {"review": f"it was {'good' if i % 2 else 'awful'}, number {i}", "sentiment": "up" if i % 2 else "down"}
    for i in range(60)
]
SMALL: dict[str, Any] = {"epochs": 1, "batch_size": 8, "threads": 1, "progress": False}


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> sparring.lab.Comparison:
    """The call of the notebook, at a small size."""
    frame = pd.DataFrame(ROWS)
    out = tmp_path_factory.mktemp("runs")
    return sparring.lab.compare(
        frame, losses=["softmax", "as-softmax"], seeds=2, out=str(out), name="reviews", **SMALL
    )


def test_a_frame_is_compared(result: sparring.lab.Comparison) -> None:
    assert "reviews (multi-class, 48/6/6, 2 classes), model tiny" in repr(result)
    assert [row[0] for row in result.table.rows] == ["softmax", "as-softmax delta=0.8"]
    assert "as-softmax delta=0.8" in result.verdict
    assert result.verdict in result._repr_html_().replace("&#x27;", "'")
    assert result.calibration is not None
    frame = result.frame
    assert list(frame.index) == ["softmax", "as-softmax delta=0.8"]
    assert frame.loc["softmax", "test_accuracy"] == result.rows[0]["test"]["mean"]
    assert {"ece", "brier", "nll", "aurc", "detectable"} <= set(frame.columns)


def test_it_is_drawn_and_reported(result: sparring.lab.Comparison, tmp_path: Path) -> None:
    chart = result.plot().to_dict()
    (points,) = chart["datasets"].values() if "datasets" in chart else [chart["data"]["values"]]
    assert len(points) == 4
    page = result.report(tmp_path / "report.html")
    assert "as-softmax delta=0.8" in page.read_text(encoding="utf-8")


def test_it_predicts(result: sparring.lab.Comparison) -> None:
    rows = sparring.lab.predict(result, ["it was good", "it was awful"])
    assert [set(row["probabilities"]) for row in rows] == [{"up", "down"}] * 2
    folder = result.folders[0]
    assert sparring.lab.predict(folder, ["it was good"])[0]["predicted"] in ("up", "down")


def test_its_runs_are_those_of_the_command_line(result: sparring.lab.Comparison) -> None:
    """The data of a run in memory can be opened again."""
    config = Config.read(result.folders[0] / "config.toml", {})
    assert config.task.endswith("reviews.jsonl")
    _, data = open_task(config)
    facts = json.loads((result.folders[0] / "data.json").read_text())
    assert data.fingerprint == facts["fingerprint"]
    again = sparring.lab.compare(config.task, seeds=2, out=config.out, **SMALL)
    assert again.n_done == 4
    assert again.rows == result.rows


def test_tuning(tmp_path: Path) -> None:
    tuned = sparring.lab.tune(ROWS, values={"delta": [0.1, 0.9]}, out=str(tmp_path), **SMALL)
    assert tuned.best["delta"] in (0.1, 0.9)
    assert "The best is within noise" in tuned.verdict
    assert len(tuned.table.rows) == 2
    assert "delta=0.1" in tuned._repr_html_()


def test_forms_of_data_are_the_same_data(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    features = datasets.Features(
        {"review": datasets.Value("string"), "sentiment": datasets.ClassLabel(names=["down", "up"])}
    )
    numbered = [{**row, "sentiment": int(row["sentiment"] == "up")} for row in ROWS]
    forms = (ROWS, pd.DataFrame(ROWS), datasets.Dataset.from_list(numbered, features=features))
    paths = {write_data(form, tmp_path, "reviews") for form in forms}
    assert len(paths) == 1
    splits = write_data({"train": pd.DataFrame(ROWS[:50]), "validation": ROWS[50:]}, tmp_path, "mine")
    assert sorted(path.name for path in splits.iterdir()) == ["dev.jsonl", "train.jsonl"]


def test_missing_values_and_arrays(tmp_path: Path) -> None:
    frame = pd.DataFrame({"text": ["a", None, "c"], "label": [1.0, 2.0, float("nan")], "n": [1, 2, 3]})
    lines = write_data(frame, tmp_path, "x").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [
        {"text": "a", "label": 1.0, "n": 1},
        {"text": None, "label": 2.0, "n": 2},
        {"text": "c", "label": None, "n": 3},
    ]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (3, "data must be a path, a pandas DataFrame.*got int"),
        ([1, 2], "got a row of type int"),
        ({"trian": []}, "got a dict with the key 'trian'"),
        ([{"text": object()}], "data, row 1: expected texts, numbers or lists"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "two columns have the same name"),
    ],
)
def test_other_data_is_refused(data: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=message):
        sparring.lab.run(data, out=str(tmp_path))


def test_mistakes_are_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no setting named epoch; known: task, loss"):
        sparring.lab.run(ROWS, epoch=3)
    with pytest.raises(UserError, match=r'compare takes losses, several names, not loss="softmax"'):
        sparring.lab.compare(ROWS, ["softmax"], loss="softmax", out=str(tmp_path))


def test_what_a_preset_changes_is_said_at_the_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = {**SMALL, "progress": True, "speed": "fast", "out": str(tmp_path)}
    result = sparring.lab.run(ROWS, seeds=2, **settings)
    lines = [line for line in capsys.readouterr().err.splitlines() if "speed fast" in line]
    assert len(lines) == 1  # once for both seeds
    assert lines[0].startswith("as-softmax delta=0.6: speed fast: as-softmax, δ 0.6")
    assert lines[0].endswith("(δ 0.6 instead of 0.8)")
    assert any("speed fast" in note for note in result.notes)


@pytest.mark.parametrize(
    ("settings", "argument", "flag"),
    [
        ({"n_train": 0}, "n_train must be at least 1, got 0", "--n-train must be at least 1, got 0"),
        ({"seeds": 0}, "seeds must be at least 1, got 0", "--seeds must be at least 1, got 0"),
        (
            {"label_column": "stars"},
            'no column "stars" (label_column);',
            'no column "stars" (--label-column);',
        ),
        (
            {"device": "mps"},
            'leave device out, or use device="cpu"',
            "leave --device out, or use --device cpu",
        ),
        ({}, 'is empty; missing="drop" leaves', "is empty; --missing drop leaves"),
    ],
)
def test_errors_name_arguments_in_python_and_flags_on_the_command_line(
    settings: dict[str, Any],
    argument: str,
    flag: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("torch.backends.mps.is_available", lambda: False)
    rows = ROWS if settings else [*ROWS, {**ROWS[0], "sentiment": None}]
    with pytest.raises(UserError) as raised:
        sparring.lab.run(rows, out=str(tmp_path), progress=False, **settings)
    assert argument in str(raised.value)
    assert "--" not in str(raised.value)
    file = write_data(rows, tmp_path, "reviews")
    words = [word for name, value in settings.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    assert main(["run", str(file), "--out", str(tmp_path), *words]) == 1
    assert flag in capsys.readouterr().err
