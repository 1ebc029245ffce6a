"""The process of a run: its machine, device, threads and signals."""

from __future__ import annotations

import os
import platform
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from sparring.lab.errors import UserError, option

PACKAGES = "sparring torch entmax accelerate transformers tokenizers scikit-learn seqeval pycountry numpy"
BUSY = 50.0  # percent: a core that other programs use more than this is not free


def machine() -> dict[str, Any]:
    """The machine and the versions of packages that a run uses."""
    versions: dict[str, str | None] = {}
    for name in PACKAGES.split():
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = None
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "threads": torch.get_num_threads(),
        "versions": versions,
    }


def _processor() -> str:
    if sys.platform == "linux":
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()


def check_device(device: str | None) -> None:
    """Raise UserError for a device that torch does not have. None stands for a GPU if there is one."""
    if device == "cuda" and not torch.cuda.is_available():
        raise UserError(f"device cuda: torch finds no CUDA GPU here; {_other_device()}")
    if device == "mps" and not torch.backends.mps.is_available():
        raise UserError(f"device mps: torch finds no Apple GPU here; {_other_device()}")


def _other_device() -> str:
    return f"leave {option('device')} out, or use {option('device', 'cpu')}"


@cache
def free_threads() -> int:
    """Threads for a run: one for each core that this process may use and other programs leave free.

    Asked once, before the first run keeps cores busy itself. $OMP_NUM_THREADS is an upper bound.
    """
    import psutil  # type: ignore[import-untyped,unused-ignore]  # comes with accelerate

    affinity: Any = getattr(os, "sched_getaffinity", None)
    cores = set(range(os.cpu_count() or 1)) if affinity is None else affinity(0)
    usage = psutil.cpu_percent(0.1, percpu=True)
    n_free = sum(percent < BUSY for core, percent in enumerate(usage) if core in cores)
    return max(1, min(int(n_free), int(_quota()), torch.get_num_threads()))


def _quota() -> float:
    """The cores that the control group of a container grants."""
    with suppress(OSError, ValueError):
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text(encoding="ascii").split()
        return float(quota) / float(period)
    return float(os.cpu_count() or 1)


# ------------------------------------------------------------ signals


@contextmanager
def stop_on_interrupt(stop: Callable[[], None], *, enabled: bool = True) -> Iterator[None]:
    """Call ``stop`` at the first Ctrl-C; the second one interrupts at once."""
    if not enabled or threading.current_thread() is not threading.main_thread():
        yield
        return

    def handler(number: int, frame: Any) -> None:
        signal.signal(signal.SIGINT, previous)
        stop()

    previous = signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)


@contextmanager
def ignore_interrupts() -> Iterator[None]:
    """Ignore Ctrl-C, also in the processes that are started meanwhile."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
