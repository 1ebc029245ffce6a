"""``sparring suspects``: the training samples whose labels look wrong, from the history of a run."""

import argparse
import csv
import sys
from pathlib import Path
from typing import Any

from sparring.cli.terminal import print_json
from sparring.lab.cleaning import open_suspects, write_cleaned
from sparring.lab.errors import UserError
from sparring.lab.runs.predict import find_run
from sparring.lab.suspects import suspects_table
from sparring.training.history import DEFAULT_SCORE, SCORES

EXAMPLES = """  sparring suspects runs/reviews
  sparring suspects runs/reviews --top 100 --csv suspects.csv
  sparring suspects runs/reviews --drop clean.csv && sparring run clean.csv
  sparring suspects runs/reviews --top 40 --relabel clean.csv"""
SHOWN = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    folder = "the folder of a run, or a folder above several runs: the best on dev"
    parser.add_argument("run", metavar="RUN", help=folder)
    top = "how many samples; default: as many as had a rival ahead on average"
    parser.add_argument("--top", type=int, metavar="N", help=top)
    score = f"how labels are ranked (default: {DEFAULT_SCORE})"
    parser.add_argument("--score", choices=tuple(SCORES), default=DEFAULT_SCORE, help=score)
    parser.add_argument("--csv", type=Path, metavar="FILE", help="write the suspects to a CSV file")
    drop = "write the training data without the suspects to a new file"
    parser.add_argument("--drop", type=Path, metavar="FILE", help=drop)
    relabel = "write the training data with the proposed labels to a new file"
    parser.add_argument("--relabel", type=Path, metavar="FILE", help=relabel)


def main(options: argparse.Namespace) -> None:
    if options.top is not None and options.top < 1:
        raise UserError(f"--top must be at least 1, got {options.top}")
    if options.drop and options.relabel:
        raise UserError("--drop and --relabel exclude each other; write one file after the other")
    found = open_suspects(find_run(Path(options.run)), score=options.score, top=options.top)
    kind, suspects = found.data.kind, found.suspects
    lines = [suspect.line(kind) for suspect in suspects]
    files: dict[str, dict[str, Any]] = {}
    if options.csv:
        _write_csv(options.csv, lines)
        files["csv"] = {"file": str(options.csv), "written": len(lines)}
    cleaned = options.drop or options.relabel
    if cleaned:
        counts = write_cleaned(cleaned, found, relabel=options.relabel is not None)
        files["cleaned"] = {"file": str(cleaned), **counts}
    if options.json:
        print_json({"run": str(found.run.path), "score": options.score, "suspects": lines, **files})
        return
    suspects_table(suspects, kind, len(found.samples), SHOWN).print()
    for entry in files.values():
        figures = ", ".join(f"{n} {name}" for name, n in entry.items() if name != "file" and n)
        print(f"{entry['file']}: {figures}", file=sys.stderr)


def _write_csv(path: Path, lines: list[dict[str, object]]) -> None:
    if path.exists():
        raise UserError(f"{path}: exists already; nothing is overwritten, name another file")
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(lines[0]) if lines else ["index"])
        writer.writeheader()
        writer.writerows(lines)
