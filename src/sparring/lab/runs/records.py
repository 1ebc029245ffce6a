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
    summary.json         the result, and checksums of the model; it is there when the run is done
    model/               the best model in Hugging Face form
"""

from __future__ import annotations

import json
import math
import os
import platform
import sys
import warnings
from collections.abc import Callable, Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from sparring.files import CheckpointWarning, atomic_write, changed_file, file_digest, file_names, sweep
from sparring.lab.errors import UserError
from sparring.lab.runs.lock import alone as alone
from sparring.lab.runs.schema import FILES, LINES, WHOLE, check_prediction, is_count, object_of, parse

PACKAGES = (
    "sparring",
    "torch",
    "entmax",
    "accelerate",
    "transformers",
    "tokenizers",
    "scikit-learn",
    "seqeval",
    "pycountry",
    "numpy",
)
ADVICE = "remove this line, or run it again with --fresh"
BEGIN_ANEW = "--fresh begins it anew"  # of a run under way, whose checkpoint knows how many lines there are


def write(path: Path, text: str) -> None:
    """Beside, then renamed: a file is whole or not there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    sweep(path.parent, path.name)
    with atomic_write(path) as part:
        part.write_text(text, encoding="utf-8")


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


def read_lines(path: Path, check: Callable[[Any], None] | None = None, advice: str = ADVICE) -> list[Any]:
    """The whole lines of a journal; a last one that a kill cut short is left out.

    Raises UserError for a line that is no JSON or that ``check`` refuses with a ValueError.
    """
    try:
        *lines, _ = path.read_bytes().split(b"\n")  # splitlines would take more for a line end
    except FileNotFoundError:
        return []
    rows = []
    for number, line in enumerate(lines, start=1):
        try:
            row = parse(line.decode("utf-8"))
            if check is not None:
                check(row)
        except ValueError as error:
            raise UserError(f"{path}:{number}: {error}; {advice}") from None
        rows.append(row)
    return rows


class Journal:
    """Lines that grow with a run. What a killed run wrote after its last checkpoint is dropped when it comes by again."""

    def __init__(self, path: Path, key: str = "step") -> None:
        self.path, self.key = path, key
        self.opened = False

    def add(self, row: dict[str, Any], n_before: int | None = None) -> None:
        """Append a line. ``n_before``: how many there should be before it; fewer are an error."""
        if not self.opened:
            if not self.path.parent.is_dir():
                raise _removed(self.path.parent)
            write_lines(self.path, self._earlier(row, n_before))
            self.opened = True
        try:
            descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND)  # not O_CREAT: there are earlier lines
        except FileNotFoundError:
            raise _removed(self.path) from None
        with open(descriptor, "a", encoding="utf-8") as file:
            file.write(_line(row))

    def _earlier(self, row: dict[str, Any], n_before: int | None) -> list[dict[str, Any]]:
        check = LINES.get(self.path.stem, object_of({self.key: is_count}))
        lines = read_lines(self.path, lambda line: check(line, WHOLE), BEGIN_ANEW)
        if n_before is None:
            return [line for line in lines if line[self.key] < row[self.key]]
        self._check_length(min(len(lines), n_before), n_before)
        return lines[:n_before]

    def check(self, n_lines: int) -> None:
        """Raise UserError unless it has so many lines."""
        if not self.path.exists():
            raise _removed(self.path)
        self._check_length(self.path.read_bytes().count(b"\n"), n_lines)

    def _check_length(self, n_lines: int, expected: int) -> None:
        if n_lines != expected:
            raise UserError(f"{self.path}: {n_lines} lines where the run wrote {expected}; {BEGIN_ANEW}")


def _removed(path: Path) -> UserError:
    return UserError(f"{path}: removed while its run was under way; {BEGIN_ANEW}")


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
            value: dict[str, Any] = parse(path.read_text(encoding="utf-8"))
            FILES[name](value, WHOLE)
        except (OSError, ValueError) as error:
            raise UserError(f"{path}: cannot be read ({error}); --fresh runs it again") from None
        return value

    def lines(self, name: str, kind: str | None = None) -> list[dict[str, Any]]:
        """``steps``, ``epochs``, ``evaluations`` or ``predictions``; ``kind``: of the task that these are for."""

        def check(row: Any) -> None:
            LINES[name](row, WHOLE)
            if kind is not None:
                check_prediction(kind, row)

        return read_lines(self.path / f"{name}.jsonl", check)

    def summary(self) -> dict[str, Any]:
        return self.read("summary")

    def check_whole(self) -> None:
        """Raise UserError where files are missing that a run writes: somebody removed them meanwhile."""
        for name in ("config.toml", "machine.json", "data.json"):
            if not (self.path / name).exists():
                raise _removed(self.path / name)

    def checksums(self) -> dict[str, str]:
        """SHA-256 of the files that predictions are made with, by their path in the folder."""
        names = ["data.json", *(f"model/{name}" for name in file_names(self.model))]
        return {name: file_digest(self.path / name) for name in names}

    def verify(self) -> None:
        """Raise UserError unless the model is as the run left it; warn where there are no checksums."""
        checksums = self.summary().get("checksums")
        if checksums is None:
            message = f"{self.path}: its summary.json has no checksums, so the model cannot be verified"
            warnings.warn(message, CheckpointWarning, stacklevel=2)
            return
        further = [name for name in file_names(self.model) if f"model/{name}" not in checksums]
        problem = f"model/{further[0]} is not the run's" if further else changed_file(self.path, checksums)
        if problem is not None:
            raise UserError(f"{self.path}: cannot be read ({problem}); --fresh runs it again")


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
    facts = {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count(),
    }
    return {**facts, "gpu": gpu, "threads": torch.get_num_threads(), "versions": versions}


def _processor() -> str:
    if sys.platform == "linux":
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()
