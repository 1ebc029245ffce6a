"""A finished run put to use."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from sparring.lab.errors import UserError
from sparring.lab.runs.config import Config
from sparring.lab.runs.plan import plan
from sparring.lab.runs.predict import Predictor, find_run
from sparring.lab.runs.records import RunFolder
from sparring.lab.runs.runner import run
from tests.lab.data import data, task


def finished(kind: str, out: Path, epochs: int = 1, seed: int = 0) -> RunFolder:
    made = data(kind)
    planned = plan(
        Config("colours", out=str(out), epochs=epochs, batch_size=8, seed=seed), task(kind, made), made
    )
    run(planned)
    return planned.folder


def test_the_best_of_several_runs_on_dev(tmp_path: Path) -> None:
    folders = [finished("multi-class", tmp_path, seed=seed) for seed in range(3)]
    scores = [folder.summary()["dev"]["accuracy"] for folder in folders]
    assert find_run(tmp_path).summary()["dev"]["accuracy"] == max(scores)
    assert find_run(folders[1].path).path == folders[1].path


def test_runs_on_different_data_are_not_mixed(tmp_path: Path) -> None:
    finished("multi-class", tmp_path)
    finished("multi-label", tmp_path)
    with pytest.raises(UserError, match="runs on different data; name one of the folders"):
        find_run(tmp_path)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return finished("multi-class", tmp_path_factory.mktemp("whole")).path


@pytest.mark.parametrize(
    "name", ["model/model.safetensors", "model/config.json", "data.json", "summary.json"]
)
def test_a_damaged_run_is_named(name: str, whole: Path, tmp_path: Path) -> None:
    shutil.copytree(whole, tmp_path / "run")
    (tmp_path / "run" / name).write_text("{")
    with pytest.raises(UserError, match=r"cannot be read.*fresh=True runs it again"):
        Predictor(find_run(tmp_path))


def test_what_is_no_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such folder"):
        find_run(tmp_path / "nowhere")
    with pytest.raises(UserError, match="no finished run"):
        find_run(tmp_path)
    folder = finished("image", tmp_path)
    with pytest.raises(
        UserError,
        match=r"a ruby thing: no such file; colours is about image files, so predict takes their paths",
    ):
        Predictor(folder)(["a ruby thing"])
    shutil.rmtree(folder.model)
    with pytest.raises(UserError, match="no finished run"):
        find_run(tmp_path)
