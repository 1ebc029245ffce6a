"""What the benchmarks share: provenance, peak memory, result files, and work that processes share."""

from __future__ import annotations

import fcntl
import json
import os
import platform
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

import sparring
from sparring.files import write_text

ROOT = Path(__file__).parents[1]


def provenance(script: str, argv: list[str], threads: int) -> dict[str, Any]:
    """The command, commit, seed, machine and versions of a benchmark."""

    def git(*args: str) -> str:
        return subprocess.run(
            ["git", *args], capture_output=True, text=True, cwd=ROOT, check=False
        ).stdout.strip()

    capability = torch.backends.cpu.get_cpu_capability()
    return {
        "command": " ".join(["python", f"benchmarks/{Path(script).name}", *argv]),
        "commit": git("rev-parse", "--short", "HEAD")
        + ("+changes" if git("status", "--porcelain", "--", "src", "benchmarks") else ""),
        "seed": 0,
        "machine": f"{os.cpu_count()} cores ({platform.machine()}), {threads} threads, {capability}",
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "sparring": sparring.__version__,
        },
    }


def peak_memory(step: Callable[[], object]) -> int:
    """The most bytes allocated at once by a step, from the profiler's record of allocations."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        step()
    assert record.profiler is not None
    alive = peak = 0
    for event in sorted(record.profiler.kineto_results.events(), key=lambda event: event.start_ns()):
        if event.name() == "[memory]":
            alive += event.nbytes()
            peak = max(peak, alive)
    return peak


def write(report: dict[str, Any], path: Path) -> None:
    write_text(path, json.dumps(report, indent=1) + "\n")


def once(path: Path, compute: Callable[[], dict[str, Any]], *, wait: bool = False) -> None:
    """Compute a result and write it, unless it is there or another process computes it (``wait`` for that).

    The operating system frees the lock of a process that is killed, so its work is done again.
    """
    if path.exists():
        return
    with path.with_suffix(".claim").open("a") as claim:
        try:
            fcntl.flock(claim, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        if not path.exists():
            write_text(path, json.dumps(compute(), indent=1) + "\n")
            print(path.stem, flush=True)


def file_of(out: Path, *words: Any) -> Path:
    return out / ("_".join(str(word).replace(" ", "-").replace(",", "") for word in words) + ".json")
