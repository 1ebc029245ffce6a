"""Nothing on the hot path reads a value back or lands on the CPU: see `fake_device.py`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from torch.utils import backend_registration


@pytest.mark.skipif(
    not hasattr(backend_registration, "_setup_privateuseone_for_python_backend"),
    reason="this release of torch has no stand-in for an accelerator",
)
def test_steps_on_a_device_without_values() -> None:
    command = [sys.executable, "-m", "tests.fake_device"]
    process = subprocess.run(command, cwd=Path(__file__).parents[1], capture_output=True, text=True)
    assert process.returncode == 0, process.stdout + process.stderr[-3000:]
    assert "as-softmax: " in process.stdout
    assert "compact reads the surviving rows: aten.nonzero" in process.stdout
