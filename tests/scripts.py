"""Examples and benchmarks as scripts in the process of the tests: a new one would import torch first."""

from __future__ import annotations

import contextlib
import io
import runpy
import sys
import warnings
from pathlib import Path

import pytest


def run_script(path: Path, *words: object, cwd: Path | None = None) -> str:
    """Run ``python path words`` as it were, in the folder ``cwd``; returns what it prints."""
    out = io.StringIO()
    with contextlib.ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setattr(sys, "argv", [str(path), *map(str, words)])
        patch.syspath_prepend(str(path.parent))
        if cwd is not None:
            patch.chdir(cwd)
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        stack.enter_context(contextlib.redirect_stdout(out))
        runpy.run_path(str(path), run_name="__main__")
    return out.getvalue()
