"""The Triton kernels without a GPU: run by Triton's interpreter, and compiled for three kinds of GPU."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
needs_triton = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None,
    reason="Triton is not installed: its kernels are not tested here",
)


def run(case: str, tmp_path: Path, **environment: str) -> None:
    triton = {"TRITON_CACHE_DIR": str(tmp_path), "TRITON_DEFAULT_FP_FUSION": "1"}
    variables = {**os.environ, **triton, **environment}
    command = [sys.executable, "-m", "tests.losses.kernels.triton_cases", case]
    process = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True)
    assert process.returncode == 0, process.stderr[-3000:]


@needs_triton
def test_interpreted_the_kernels_equal_the_torch_operations(tmp_path: Path) -> None:
    run("interpret", tmp_path, TRITON_INTERPRET="1")


@needs_triton
def test_they_compile_for_sm_80_sm_90_and_gfx942(tmp_path: Path) -> None:
    run("compile", tmp_path)
