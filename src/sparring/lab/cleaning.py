"""Clean the data of a finished run: its suspects, and a copy without them or with other labels."""

from __future__ import annotations

import csv
import io
import json
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sparring.files import write_text
from sparring.lab.datasets import known
from sparring.lab.errors import EmptyCellError, UserError, option
from sparring.lab.readers.columns import map_columns
from sparring.lab.readers.files import RawTable, Row, form_of
from sparring.lab.readers.user_data import train_table
from sparring.lab.runs.config import Config
from sparring.lab.runs.plan import columns_of, cut, open_task
from sparring.lab.runs.records import RunFolder
from sparring.lab.suspects import Suspect, rank_suspects
from sparring.lab.task import Data, Sample, plain
from sparring.lab.untrusted import archive_names
from sparring.training.history import DEFAULT_SCORE, MarginHistory


@dataclass(frozen=True)
class RunSuspects:
    """The suspects of a run, and the data that it was trained on."""

    run: RunFolder
    config: Config
    data: Data
    samples: list[Sample]  # the training samples, in the order of training
    suspects: list[Suspect]  # the most suspicious first


def open_suspects(run: RunFolder, *, score: str = DEFAULT_SCORE, top: int | None = None) -> RunSuspects:
    """Open the data of a finished run again, and rank its training samples; see `rank_suspects`.

    Raises:
        UserError: The run recorded no history, or its data is gone or was changed since.
    """
    path = run.path / "history.npz"
    if not path.exists():
        kind = run.read("data")["kind"]
        raise UserError(
            f"{run.path}: the run has no history.npz; run it again (kind {kind}; {option('fresh', True)})"
        )
    with suppress(zipfile.BadZipFile):  # `load` says what is wrong with it
        archive_names(path)
    try:
        history = MarginHistory.load(path)
    except ValueError as error:
        raise UserError(f"{error}; {option('fresh', True)} runs it again") from None
    config = Config.read(run.path / "config.toml", {})
    _, data = open_task(config)
    if data.fingerprint != run.read("data")["fingerprint"]:
        raise UserError(f"{data.source}: the data has changed since {run.path} was trained; run it again")
    samples = cut(data.train, config.n_train)
    suspects = rank_suspects(history, samples, data.kind, data.labels, score=score, top=top)
    return _with_lines(RunSuspects(run, config, data, samples, suspects))


def _with_lines(found: RunSuspects) -> RunSuspects:
    """The same suspects with their lines in the user's file, if the data is one."""
    table = _user_table(found.config.task)
    if table is None or not found.data.kind.reads_text:
        return found
    lines: dict[str, list[int]] = {}
    for line, _, sample in _samples_of(table, found.config):
        lines.setdefault(_key(sample), []).append(line)
    suspects = []
    for suspect in found.suspects:
        same = lines.get(_key(suspect.sample), [])  # equal samples: one line each, in turn
        suspects.append(replace(suspect, line_number=same.pop(0) if same else None))
    return replace(found, suspects=suspects)


def write_cleaned(path: Path, found: RunSuspects, *, relabel: bool = False) -> dict[str, int]:
    """Write a copy of the training data without the suspects, or with the labels that are proposed for them.

    A table of the user's keeps its rows, columns and order, also those of dev and test if one file holds all.
    Any other data set is written as the samples of its train set.

    Args:
        path: A new CSV, TSV or JSONL file; nothing is overwritten.
        found: From `open_suspects`.
        relabel: Take the proposed labels instead of leaving the suspects out.

    Returns:
        How many rows were ``written``, ``dropped`` and ``relabelled``.

    Raises:
        UserError: The file exists, has another ending, or cannot hold such samples.
    """
    form = form_of(path)
    if form is None or path.name.endswith(".gz"):
        raise UserError(f"{path}: expected the name of a new .csv, .tsv or .jsonl file")
    if path.exists():
        raise UserError(f"{path}: exists already; nothing is overwritten, name another file")
    kind = found.data.kind
    if not kind.reads_text:
        raise UserError(f"{kind.noun} are in a folder, not in a table; --json lists the samples to remove")
    if relabel and not kind.one_label:
        raise UserError(f"--relabel is for data with one label per sample, this kind is {kind}; use --drop")
    proposed = {_key(suspect.sample): suspect.proposed for suspect in found.suspects}
    rows, label_column = _rows(found)
    counts = {"written": 0, "dropped": 0, "relabelled": 0}
    kept: list[Row] = []
    for row, sample in rows:
        label = proposed.get(_key(sample))
        if label is None:
            kept.append(row)
        elif relabel:
            kept.append({**row, label_column: label})
            counts["relabelled"] += 1
        else:
            counts["dropped"] += 1
    counts["written"] = len(kept)
    write_text(path, _text(kept, form))
    return counts


def _user_table(task: str) -> RawTable | None:
    """The user's table; None for a data set that the lab knows by name, whatever is on disk."""
    return None if known(task) else train_table(task)


def _rows(found: RunSuspects) -> tuple[list[tuple[Row, Sample]], str]:
    """The rows of the source with their samples, and the column of the label."""
    table = _user_table(found.config.task)
    if table is None:
        samples = [plain(sample) for sample in found.data.train]
        return [(sample, sample) for sample in samples], found.data.kind.target
    mapping = map_columns(table, columns_of(found.config))
    rows = [(row, sample) for _, row, sample in _samples_of(table, found.config)]
    return rows, mapping.roles.get("label", found.data.kind.target)


def _samples_of(table: RawTable, config: Config) -> Iterator[tuple[int, Row, Sample]]:
    """Number, row and sample of each row; no fields for a row that a run left out, since a cell is empty."""
    mapping = map_columns(table, columns_of(config))
    for number, row in table.rows:
        try:
            sample = mapping.sample(row, table.place(number))
        except EmptyCellError:
            sample = {}
        yield number, row, sample


def _key(sample: Sample) -> str:
    """The content of a sample: the same text with the same label is the same suspect."""
    return json.dumps(plain(sample), sort_keys=True, ensure_ascii=False)


def _text(rows: list[Row], form: str) -> str:
    if form == "jsonl":
        return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    columns = list(dict.fromkeys(column for row in rows for column in row))
    out = io.StringIO()
    writer = csv.writer(out, delimiter="\t" if form == "tsv" else ",", lineterminator="\n")
    writer.writerow(columns)
    for row in rows:
        writer.writerow([_cell(row.get(column)) for column in columns])
    return out.getvalue()


def _cell(value: Any) -> Any:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, (list, dict)) else value
