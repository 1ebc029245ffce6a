"""Run folders: what a run leaves on disk, and reading it back. No training is imported here: a report needs none.

runs/TASK/CONTESTANT-MODEL-DIGEST/seed-0/
    config.toml          everything that was set; `sparring run --config` takes it
    machine.json         versions and machine
    data.json            where the data came from, sizes, labels, what to know of them
    steps.jsonl          a line for each optimizer step
    epochs.jsonl         a line for each epoch: counts, won share, seconds
    evaluations.jsonl    a line for each look at dev, with the histogram of margins
    checkpoint.pt        while it is under way
    predictions.jsonl    the test samples as the best model sees them
    summary.json         the result; it is there when the run is done
    model/               the best model in Hugging Face form
"""

from __future__ import annotations

import json
import math
import os
import platform
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from sparring.lab.errors import UserError

try:
    import fcntl
except ImportError:  # Windows: no lock
    fcntl = None  # type: ignore[assignment]

PACKAGES = ("sparring", "torch", "entmax", "accelerate", "transformers", "tokenizers", "scikit-learn", "seqeval", "pycountry", "numpy")


def write(path: Path, text: str) -> None:
    """Beside, then renamed: a file is whole or not there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f"{path.name}.{os.getpid()}.part")
    beside.write_text(text, encoding="utf-8")
    os.replace(beside, path)


def plain(value: Any) -> Any:
    """JSON has no NaN: null instead."""
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def write_json(path: Path, value: Any) -> None:
    write(path, json.dumps(plain(value), indent=2, ensure_ascii=False) + "\n")


def write_lines(path: Path, rows: Iterable[Any]) -> None:
    write(path, "".join(_line(row) for row in rows))


def _line(row: Any) -> str:
    return json.dumps(plain(row), ensure_ascii=False) + "\n"


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The whole lines of a journal; one that a kill cut short is left out."""
    if not path.exists():
        return []
    *lines, _ = path.read_text(encoding="utf-8").split("\n")  # a text may hold separators that splitlines would take for line ends
    return [json.loads(line) for line in lines]


class Journal:
    """Lines that grow with a run. What a killed run wrote after its last checkpoint is dropped when it comes by again."""

    def __init__(self, path: Path, key: str = "step") -> None:
        self.path, self.key = path, key
        self.opened = False

    def add(self, row: dict[str, Any]) -> None:
        if not self.opened:
            earlier = read_lines(self.path)
            write_lines(self.path, [old for old in earlier if old[self.key] < row[self.key]])
            self.opened = True
        with self.path.open("a", encoding="utf-8") as file:
            file.write(_line(row))


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """Two processes must not write the same run; the other processes of one distributed run may. A lock dies with its process."""
    if fcntl is None or os.environ.get("RANK", "0") != "0":
        yield
        return
    path.mkdir(parents=True, exist_ok=True)
    with (path / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UserError(f"{path}: another process is at work on this run; wait for it, or give another --out") from None
        try:
            yield
        finally:
            (path / "lock").unlink(missing_ok=True)


class RunFolder:
    """One run's folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def model(self) -> Path:
        return self.path / "model"

    @property
    def done(self) -> bool:
        return (self.path / "summary.json").exists()

    def read(self, name: str) -> dict[str, Any]:
        """``summary``, ``data`` or ``machine``."""
        path = self.path / f"{name}.json"
        try:
            return json.loads(path.read_text(encoding="utf-8"))  # type: ignore[no-any-return]
        except (OSError, ValueError) as error:
            raise UserError(f"{path}: cannot be read ({error}); --fresh runs it again") from None

    def lines(self, name: str) -> list[dict[str, Any]]:
        """``steps``, ``epochs``, ``evaluations`` or ``predictions``."""
        return read_lines(self.path / f"{name}.jsonl")

    def summary(self) -> dict[str, Any]:
        return self.read("summary")


def find_runs(path: Path) -> list[RunFolder]:
    """The finished runs under a folder, or the folder itself."""
    return [RunFolder(found.parent) for found in sorted(path.rglob("summary.json"))]


def machine() -> dict[str, Any]:
    """Versions and machine, to make a run again."""
    import torch

    versions: dict[str, str | None] = {}
    for name in PACKAGES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = None
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    facts = {"python": platform.python_version(), "platform": platform.platform(), "processor": _processor(), "cores": os.cpu_count()}
    return {**facts, "gpu": gpu, "threads": torch.get_num_threads(), "versions": versions}


def _processor() -> str:
    if sys.platform == "linux":
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()
