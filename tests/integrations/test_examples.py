"""The examples as they stand, on fewer samples."""

from __future__ import annotations

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


@pytest.mark.parametrize("name", OUTPUT)
def test_example(name: str, tmp_path: Path) -> None:
    """Short, independent of the lab, and it runs."""
    path = ROOT / "examples" / f"{name}.py"
    text = path.read_text()
    assert len(text.splitlines()) < 60
    assert "sparring.lab" not in text
    assert OUTPUT[name] in run_script(path, "--epochs", 1, "--samples", 64, cwd=tmp_path)


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
    monkeypatch.setattr(sys, "argv", ["sklearn_style.py", "--epochs", "1", "--samples", "100"])
    example["main"]()
    assert "best δ" in capsys.readouterr().out
    (search,) = searches
    probabilities = torch.tensor(search.predict_proba(search.inputs))
    logits = search.best_estimator_.forward(search.inputs)
    torch.testing.assert_close(probabilities.sum(1), torch.ones(100))
    torch.testing.assert_close(probabilities, logits.softmax(-1))
    assert (probabilities.argmax(1).numpy() == search.predict(search.inputs)).all()
