"""Run folders: the files of a run, written and read back. Nothing of training is imported here.

runs/TASK/CONTESTANT-MODEL-DIGEST/seed-0/
    config.toml          all settings; `sparring run --config` takes it
    machine.json         versions and machine
    data.json            source, sizes and labels of the data, and notes on it
    steps.jsonl          one line per optimizer step
    epochs.jsonl         one line per epoch: counts, won share, seconds
    evaluations.jsonl    one line per evaluation on dev, with the histogram of margins
    checkpoint.pt        until the run is done
    history.npz          the margin of each training sample in each epoch (training/history.py)
    suspects.jsonl       the training samples whose labels look wrong, the first fifty
    predictions.jsonl    the test samples with the best model's predictions
    summary.json         the result, and checksums of the model; it exists when the run is done
    model/               the best model in Hugging Face form
"""

import json
import math
import os
import warnings
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from sparring.files import CheckpointWarning, changed_file, file_digest, file_names, write_text
from sparring.lab.errors import UserError, option
from sparring.lab.lock import alone as alone
from sparring.lab.runs.schema import FILES, LINES, check, check_prediction, parse

write = write_text


def run_again() -> str:
    return f"{option('fresh', True)} runs it again"


def start_again() -> str:
    """The advice for an unfinished run, whose checkpoint counts the lines."""
    return f"{option('fresh', True)} starts it again"


def plain(value: Any) -> Any:
    """Replace NaN and infinities, which JSON lacks, by None."""
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


def read_lines(
    path: Path,
    check: Callable[[Any], None] | None = None,
    advice: str | None = None,
) -> list[Any]:
    """Read the complete lines of a JSON Lines file. A last line that a kill cut short is left out.

    Args:
        path: The file. One that does not exist has no lines.
        check: Called with each line's content; raises ValueError to refuse it.
        advice: The end of the error message, instead of how to run it again.

    Raises:
        UserError: A line is not JSON or was refused.
    """
    try:
        *lines, _ = path.read_bytes().split(b"\n")  # splitlines would split at other characters, too
    except FileNotFoundError:
        return []
    rows = []
    for number, line in enumerate(lines, start=1):
        try:
            row = parse(line.decode("utf-8"))
            if check is not None:
                check(row)
        except ValueError as error:
            advice = advice or f"remove this line, or {run_again()}"
            raise UserError(f"{path}:{number}: {error}; {advice}") from None
        rows.append(row)
    return rows


class Journal:
    """A JSON Lines file of a run. A resumed run replaces the lines after its checkpoint."""

    def __init__(self, path: Path, key: str = "step") -> None:
        self.path = path
        self.key = key
        self.opened = False

    def add(self, row: dict[str, Any], n_before: int | None = None) -> None:
        """Append a line. ``n_before`` lines must precede it; further ones are dropped."""
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
        lines = read_lines(self.path, partial(check, LINES[self.path.stem]), start_again())
        if n_before is None:
            return [line for line in lines if line[self.key] < row[self.key]]
        self._check_length(min(len(lines), n_before), n_before)
        return lines[:n_before]

    def check(self, n_lines: int) -> None:
        """Raise UserError unless the file has this many lines."""
        if not self.path.exists():
            raise _removed(self.path)
        self._check_length(self.path.read_bytes().count(b"\n"), n_lines)

    def _check_length(self, n_lines: int, expected: int) -> None:
        if n_lines != expected:
            raise UserError(f"{self.path}: expected {expected} lines, got {n_lines}; {start_again()}")


def _removed(path: Path) -> UserError:
    return UserError(f"{path}: removed while its run was under way; {start_again()}")


class RunFolder:
    """The folder of a run."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def name(self) -> str:
        """The name that all seeds of the run share; it has a digest of settings, data and model."""
        return self.path.parent.name

    @property
    def model(self) -> Path:
        return self.path / "model"

    @property
    def done(self) -> bool:
        return (self.path / "summary.json").exists()

    def read(self, name: str) -> dict[str, Any]:
        """Read ``summary``, ``data`` or ``machine``."""
        path = self.path / f"{name}.json"
        try:
            value: dict[str, Any] = parse(path.read_text(encoding="utf-8"))
            check(FILES[name], value)
        except (OSError, ValueError) as error:
            raise UserError(f"{path}: cannot be read ({error}); {run_again()}") from None
        return value

    def lines(self, name: str, kind: str | None = None) -> list[dict[str, Any]]:
        """Read ``steps``, ``epochs``, ``evaluations`` or, for a kind of task, ``predictions``."""

        def check_line(row: Any) -> None:
            check(LINES[name], row)
            if kind is not None:
                check_prediction(kind, row)

        return read_lines(self.path / f"{name}.jsonl", check_line)

    def summary(self) -> dict[str, Any]:
        return self.read("summary")

    def threads(self) -> int | None:
        """The threads of an unfinished run, if it has begun: with others, sums are rounded in another way."""
        with suppress(UserError):
            threads = self.read("machine").get("threads")
            return threads if isinstance(threads, int) and threads > 0 else None
        return None

    def check_whole(self) -> None:
        """Raise UserError if a file that the run wrote at its start was removed."""
        for name in ("config.toml", "machine.json", "data.json"):
            if not (self.path / name).exists():
                raise _removed(self.path / name)

    def checksums(self) -> dict[str, str]:
        """SHA-256 of the files that predictions depend on, by their path in the folder."""
        names = ["data.json", *(f"model/{name}" for name in file_names(self.model))]
        return {name: file_digest(self.path / name) for name in names}

    def verify(self) -> None:
        """Raise UserError unless the model is as the run wrote it. Warn if there are no checksums."""
        checksums = self.summary().get("checksums")
        if checksums is None:
            message = f"{self.path}: its summary.json has no checksums, so the model cannot be verified"
            warnings.warn(message, CheckpointWarning, stacklevel=2)
            return
        further = [name for name in file_names(self.model) if f"model/{name}" not in checksums]
        problem = f"model/{further[0]} is not the run's" if further else changed_file(self.path, checksums)
        if problem is not None:
            raise UserError(f"{self.path}: cannot be read ({problem}); {run_again()}")


def find_runs(path: Path) -> list[RunFolder]:
    """The finished runs in a folder and below it."""
    return [RunFolder(summary.parent) for summary in sorted(path.rglob("summary.json"))]
