"""The Triton kernels, without a GPU: run by Triton's interpreter, and compiled for two kinds of GPU. They have not run on one."""

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
    variables = {
        **os.environ,
        "TRITON_CACHE_DIR": str(tmp_path),
        "TRITON_DEFAULT_FP_FUSION": "1",
        **environment,
    }
    done = subprocess.run(
        [sys.executable, "-m", "tests.losses.kernels.triton_cases", case],
        cwd=ROOT,
        env=variables,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]


@needs_triton
def test_interpreted_the_kernels_equal_the_torch_operations(tmp_path: Path) -> None:
    run("interpret", tmp_path, TRITON_INTERPRET="1")


@needs_triton
def test_they_compile_for_sm_80_and_sm_90(tmp_path: Path) -> None:
    run("compile", tmp_path)


def test_triton_is_not_imported_by_those_who_did_not_choose_it() -> None:
    program = (
        "import sys, torch, sparring\n"
        "sparring.LinearASSoftmaxLoss(4, 6)(torch.randn(3, 4), torch.arange(3)).backward()\n"
        "sys.exit('sparring.losses.kernels.margin_softmax_triton' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0
