"""Which runs a study plans, with what settings, and how long they will take."""

from pathlib import Path
from typing import Any

import pytest

from sparring.lab.datasets import get_task
from sparring.lab.paper.run_settings import beams, networks, settings_of
from sparring.lab.paper.studies import STUDIES, find_study
from sparring.lab.paper.study_runs import base_config, runs_on
from sparring.lab.paper.time_estimate import estimate
from sparring.lab.runs.config import Config
from sparring.lab.runs.plan import open_task, plan
from sparring.lab.runs.records import find_runs
from tests.lab.paper.conftest import TINY, paper


def test_names() -> None:
    assert find_study(["Table-2"]).name == "table2"
    assert find_study(["sparse", "figure", "1"]).name == "sparse figure1"


def test_every_method_is_trained_alike(runs: Path) -> None:
    plans = [run.plan for run in runs_on(STUDIES["table2"], *base_config("letters", "small", {}), n_seeds=2)]
    same = ("model", "lr", "epochs", "batch_size", "eval_every")
    assert len({tuple(getattr(plan.config, name) for name in same) for plan in plans}) == 1
    assert len({plan.folder.path for plan in plans}) == len(plans) == 20


def test_another_model_is_taken_whole(tmp_path: Path) -> None:
    config, _, _ = base_config("languages", "small", {"model": "tiny", "out": str(tmp_path)})
    assert (config.layers, config.lr, config.n_train) == (None, None, 4000)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("sst5", {"model": "bert-base-cased", "epochs": 7, "batch_size": 16, "lr": 2e-5}),
        ("wos", {"model": "bert-base-cased", "epochs": 10, "batch_size": 12}),
        ("squad_qg", {"epochs": 10, "lr": 2e-5, "max_length": 464}),
    ],
)
def test_full_scale_is_the_papers(name: str, settings: dict[str, Any]) -> None:
    assert settings.items() <= settings_of(get_task(name), "full").items()


def test_full_scale_of_the_other_paper() -> None:
    settings = settings_of(get_task("wos"), "full", sparse=True)
    assert {"epochs": 20, "batch_size": 16, "max_length": 360}.items() <= settings.items()
    images = networks(get_task("cifar100"), "full")["pre-trained"]
    assert {"epochs": 200, "batch_size": 62}.items() <= images.items()


def test_a_k_beyond_the_classes_is_left_out(runs: Path) -> None:
    study_runs = runs_on(STUDIES["sparse table1"], *base_config("letters", "small", {}), n_seeds=1)
    assert [run.name for run in study_runs] == ["Softmax", "k=1", "k=10"]  # of 12


def test_sparse_softmax_keeps_twenty(runs: Path) -> None:
    config = base_config("letters", "small", {})
    study_runs = runs_on(STUDIES["sparse table6"], *config, n_seeds=1, form="from scratch")
    methods = ("Softmax", "Sparse-Softmax", "AS-Softmax", "AS-Softmax, --speed fast")
    assert [run.name for run in study_runs] == [f"{name}, from scratch" for name in methods]
    assert study_runs[1].plan.config.k == 20


def test_generated_texts_are_searched_with_one_beam_and_five() -> None:
    assert list(beams(get_task("gigaword"), "small")) == ["beam=1", "beam=5"]
    assert beams(get_task("languages"), "small") == {"": {}}


def test_estimate_grows_with_the_work(runs: Path, tmp_path: Path) -> None:
    config, task, data = base_config("letters", "small", {"out": str(tmp_path)})
    once, more = (plan(config.replace(loss="softmax", epochs=n), task, data) for n in (1, 8))
    guess = estimate([once, more])
    assert guess.measured
    assert guess.seconds > estimate([once]).seconds > 0


def test_estimate_from_finished_runs(runs: Path) -> None:
    assert paper("figure1", *TINY, "--out", str(runs)) == 0
    config = Config(**find_runs(runs)[0].summary()["config"])
    again = plan(config.replace(seed=99), *open_task(config), strict=False)
    assert not estimate([again]).measured
