"""benchmarks/linear.py, at a shape that takes a moment."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch.nn.functional as F

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "linear.py"
needs_rival = pytest.mark.skipif(
    not hasattr(F, "linear_cross_entropy"), reason="this torch has no F.linear_cross_entropy to compare with"
)


def run(*args: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, SCRIPT, *map(str, args)], capture_output=True, text=True)


@needs_rival
def test_table_and_json(tmp_path: Path) -> None:
    done = run("--shapes", "200,8,600", "--repeats", 1, "--threads", 1, "--out", tmp_path / "linear.json")
    assert done.returncode == 0, done.stderr[-2000:]
    assert "linear_as_softmax_loss" in done.stdout
    report = json.loads((tmp_path / "linear.json").read_text())
    assert {"command", "commit", "machine", "versions"} <= set(report)
    names = {result["loss"] for result in report["results"]}
    assert {"F.cross_entropy(F.linear)", "F.linear_cross_entropy", "linear_as_softmax_loss"} <= names
    states = {result["state"] for result in report["results"]}
    assert {"0 % won", "50 % won", "90 % won", "99 % won"} <= states
    assert all(result["ms"] > 0 and result["extra_mb"] >= 0 for result in report["results"])


@needs_rival
def test_a_shape_that_is_none() -> None:
    done = run("--shapes", "200,8")
    assert done.returncode == 2
    assert "--shapes takes sizes such as 2048,384,5201, got 200,8" in done.stderr
