"""The examples as they stand, on fewer samples."""

from __future__ import annotations

import importlib
import re
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from sklearn.model_selection import GridSearchCV

from tests.scripts import run_script

ROOT = Path(__file__).parents[2]
OUTPUT = {  # what an example prints at its end
    "plain_torch": "backward for",
    "accelerate_loop": "won, accumulation",
    "hf_sequence_classification": "eval_loss",
    "hf_token_classification": "eval_loss",
    "hf_multilabel": "eval_loss",
    "lightning_module": "'won_share'",
}
WINNERS: dict[
    str, tuple[tuple[str, ...], tuple[object, ...]]
] = {  # packages and arguments, until samples are won
    "cross_encoder": (("sentence_transformers",), ("--epochs", 8)),
    "setfit_head": (("setfit",), ("--epochs", 4)),
    "peft_lora": (("peft",), ("--epochs", 8)),
    "trl_sft": (("trl",), ("--epochs", 4)),
    "vision_loop": ((), ("--epochs", 6, "--samples", 500)),
    "timm_loop": (("torchvision", "timm"), ("--epochs", 4, "--samples", 500)),
}


@pytest.mark.parametrize("name", OUTPUT)
def test_example(name: str, tmp_path: Path) -> None:
    """Short, independent of the lab, and it runs."""
    path = ROOT / "examples" / f"{name}.py"
    text = path.read_text()
    assert len(text.splitlines()) < 60
    assert "sparring.lab" not in text
    assert OUTPUT[name] in run_script(path, "--epochs", 1, "--samples", 64, cwd=tmp_path)


@pytest.mark.parametrize("name", WINNERS)
def test_example_with_won_samples(name: str, tmp_path: Path) -> None:
    """It ends with how many samples had a backward pass: fewer than all."""
    packages, words = WINNERS[name]
    for package in packages:
        try:
            importlib.import_module(package)
        except (ImportError, RuntimeError) as error:  # torchvision for another build of torch
            pytest.skip(f"{package} cannot be imported here: {str(error).splitlines()[0]}")
    path = ROOT / "examples" / f"{name}.py"
    assert len(path.read_text().splitlines()) < 65
    _check_skipping(run_script(path, *words, cwd=tmp_path))


def _check_skipping(out: str) -> None:
    (counts,) = re.findall(r"backward for (\d+) of (\d+) samples", out)
    n_backward, n_samples = map(int, counts)
    assert 0 < n_backward < n_samples


def test_probabilities_of_skorch_sum_to_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The estimator of sklearn_style.py, after its search."""
    example = runpy.run_path(str(ROOT / "examples" / "sklearn_style.py"))
    searches: list[Any] = []

    class Search(GridSearchCV):  # type: ignore[misc]
        def fit(self, inputs: Any, targets: Any) -> Any:
            self.inputs = inputs
            searches.append(self)
            return super().fit(inputs, targets)

    monkeypatch.setitem(example["main"].__globals__, "GridSearchCV", Search)
    monkeypatch.setattr(sys, "argv", ["sklearn_style.py", "--epochs", "8", "--samples", "100"])
    example["main"]()
    out = capsys.readouterr().out
    assert "best δ" in out
    _check_skipping(out)
    (search,) = searches
    probabilities = torch.tensor(search.predict_proba(search.inputs))
    logits = search.best_estimator_.forward(search.inputs)
    torch.testing.assert_close(probabilities.sum(1), torch.ones(100))
    torch.testing.assert_close(probabilities, logits.softmax(-1))
    assert (probabilities.argmax(1).numpy() == search.predict(search.inputs)).all()
