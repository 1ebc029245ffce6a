"""benchmarks/linear.py, at a shape that takes a moment."""

import json
from pathlib import Path

import pytest
import torch.nn.functional as F

from tests.scripts import run_script

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "linear.py"
needs_rival = pytest.mark.skipif(
    not hasattr(F, "linear_cross_entropy"), reason="this torch has no F.linear_cross_entropy to compare with"
)


@needs_rival
def test_table_and_json(tmp_path: Path) -> None:
    flags = ("--shapes", "200,8,600", "--repeats", 1, "--threads", 1, "--out", tmp_path / "linear.json")
    assert "linear_as_softmax_loss" in run_script(SCRIPT, *flags)
    report = json.loads((tmp_path / "linear.json").read_text())
    assert {"command", "commit", "machine", "versions"} <= set(report)
    names = {result["loss"] for result in report["results"]}
    assert {"F.cross_entropy(F.linear)", "F.linear_cross_entropy", "linear_as_softmax_loss"} <= names
    states = {result["state"] for result in report["results"]}
    assert {"0 % won", "50 % won", "90 % won", "99 % won"} <= states
    assert all(result["ms"] > 0 and result["extra_mb"] >= 0 for result in report["results"])


@needs_rival
def test_a_shape_that_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        run_script(SCRIPT, "--shapes", "200,8")
    assert stop.value.code == 2
    assert "--shapes takes sizes such as 2048,384,5201, got 200,8" in capsys.readouterr().err
