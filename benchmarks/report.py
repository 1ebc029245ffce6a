"""What every benchmark says of itself, and how its result file is written."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import torch

import sparring

ROOT = Path(__file__).parents[1]


def provenance(script: str, argv: list[str], threads: int) -> dict[str, Any]:
    def git(*args: str) -> str:
        return subprocess.run(["git", *args], capture_output=True, text=True, cwd=ROOT, check=False).stdout.strip()

    return {
        "command": " ".join(["python", f"benchmarks/{Path(script).name}", *argv]),
        "commit": git("rev-parse", "--short", "HEAD") + ("+changes" if git("status", "--porcelain", "--", "src", "benchmarks") else ""),
        "seed": 0,
        "machine": f"{os.cpu_count()} cores ({platform.machine()}), {threads} threads, {torch.backends.cpu.get_cpu_capability()}",
        "versions": {"python": platform.python_version(), "torch": torch.__version__, "sparring": sparring.__version__},
    }


def write(report: dict[str, Any], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_suffix(".tmp")
    beside.write_text(json.dumps(report, indent=1) + "\n")
    beside.replace(path)
