"""benchmarks/parallel.py runs, and measures the memory and bytes that its model predicts."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.processes import ROOT, run_ranks
from tests.scripts import run_script

SCRIPT = ROOT / "benchmarks" / "parallel.py"


def torchrun(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
    """Runs on ranks what torchrun would run."""
    n, script, *words = command[command.index("--nproc-per-node") + 1 :]
    assert Path(script) == SCRIPT
    return subprocess.CompletedProcess(command, 0, run_ranks(int(n), script, *words), "")


def table(monkeypatch: pytest.MonkeyPatch, *flags: str) -> list[list[str]]:
    monkeypatch.setattr(subprocess, "run", torchrun)
    out = run_script(SCRIPT, *flags)
    return [
        [cell.strip() for cell in line.split("│")[1:-1]] for line in out.splitlines() if line.startswith("│")
    ]


def test_what_is_measured_is_what_the_model_says(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = table(monkeypatch, "--quick", "--repeats", "1")
    assert [row[:2] for row in rows][-1] == ["class-parallel, AS-Softmax, 90 % won", "2"]
    assert len(rows) == 11
    for name, ranks, _, kept, says, *_ in rows:
        assert kept == says, (name, ranks)
    sent = {row[0]: (row[6], row[7]) for row in rows if row[1] == "2"}
    assert sent["class-parallel, softmax"] == ("17.2", "17.2")
    assert float(sent["gathering logits"][0].replace(",", "")) > 50 * 17.2


def test_clusters(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = table(monkeypatch, "--clusters")
    assert rows[0][:3] == ["10,000,000", "1", "81.9"]
    assert rows[-1][:3] == ["100,000,000", "256", "3.2"]
