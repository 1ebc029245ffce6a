"""Several processes, real ones: torchrun and gloo."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.training.toy import N

ROOT = Path(__file__).parents[2]


def launch(n: int, module: str, *words: str) -> None:
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "true"}
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(n)]
    command = [*torchrun, "-m", module, *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-4000:]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[int, list[dict[str, Any]]]:
    """By number of processes: what each ended with."""
    found = {}
    for n in (1, 2):
        folder = tmp_path_factory.mktemp(f"processes{n}")
        launch(n, "tests.training.two_processes", str(folder / "out"), str(folder / "run"))
        found[n] = [torch.load(folder / f"out.{rank}") for rank in range(n)]
        assert (folder / "run" / "checkpoint.pt").exists()
    return found


@pytest.mark.parametrize("name", ["everything", "checks", "all", "auto", "micro", "batch-norm"])
def test_processes_end_with_equal_weights(results: dict[int, list[dict[str, Any]]], name: str) -> None:
    """With AS-Speed, skipping and the scorecard on, although one process's batch was at times all won and the other's was not."""
    a, b = (result[name] for result in results[2])
    assert all(torch.equal(a["weights"][key], b["weights"][key]) for key in a["weights"])
    assert all(
        torch.equal(torch.as_tensor(v).nan_to_num(9), torch.as_tensor(b["card"][k]).nan_to_num(9))
        for k, v in a["card"].items()
    )
    assert (a["steps"], a["n_updates"], a["delta"]) == (b["steps"], b["n_updates"], b["delta"])
    assert len(a["lost"]) == len(b["lost"])
    assert a["counts"] == b["counts"]
    if name == "everything":
        assert any((x == 0) != (y == 0) for x, y in zip(a["lost"], b["lost"], strict=True))
        assert a["steps"] > 1


def test_two_processes_do_what_one_does(results: dict[int, list[dict[str, Any]]]) -> None:
    """Half the batch each, without dropout: the same mean over the same window."""
    one, two = results[1][0]["micro"]["weights"], results[2][0]["micro"]["weights"]
    for name, value in one.items():
        torch.testing.assert_close(two[name], value, rtol=1e-4, atol=1e-5)
    assert [counts[0] for counts in results[2][0]["micro"]["counts"]] == [N] * 5
    assert [counts[2] for counts in results[2][0]["micro"]["counts"]] == [
        counts[2] for counts in results[1][0]["micro"]["counts"]
    ]


def test_compaction_inside_distributed_data_parallel(results: dict[int, list[dict[str, Any]]]) -> None:
    a, b = (result["by-hand"] for result in results[2])
    for name, value in a["plain"].items():
        assert torch.equal(a["compacted"][name], b["compacted"][name])
        torch.testing.assert_close(a["compacted"][name], value)


def test_two_processes_resume_and_refuse_together(tmp_path: Path) -> None:
    """Both go on from the same checkpoint, also where the last one is damaged; both refuse another rate; one of them warns."""
    launch(2, "tests.training.two_resumes", str(tmp_path / "run"), str(tmp_path / "out"))
    first, second = ((tmp_path / f"out.{rank}").read_text() for rank in range(2))
    assert (first, second) == ("[0.0, True, 0.0, 1]", "[0.0, True, 0.0, 0]")
