"""``sparring tasks``: list the tasks. Without ``--check`` no data is read, and torch is not imported."""

import argparse
import json
import os
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from sparring.cli.terminal import json_text, sizes_text
from sparring.lab.table import MISSING, Table
from sparring.lab.untrusted import check_text

EXAMPLES = "  sparring tasks --data-dir ~/data\n  sparring tasks --check"
MODULES = {"scikit-learn": "sklearn"}  # packages whose module has another name
NOTE = (
    "Not here: see --data-dir and SPARRING_DATA. A CSV, TSV or JSONL file or a folder of your own works, "
    "too. Sizes are those of the published data; --check reads the data that is here and counts."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data-dir", help="folder of the data sets (default: $SPARRING_DATA)")
    parser.add_argument("--check", action="store_true", help="read all data: actual sizes, damaged files")


def main(options: argparse.Namespace) -> None:
    rows = check(options.data_dir) if options.check else listing(options.data_dir)
    if options.json:
        print(json_text(rows))
        return
    lines = [
        [row["name"], row["kind"], sizes_text(row["sizes"]) if row["sizes"] else MISSING, row["where"]]
        for row in rows
    ]
    abouts = [row["about"] for row in rows]
    columns = ("task", "kind", "train/dev/test", "where", "about")
    cells = [[*line, about] for line, about in zip(lines, abouts, strict=True)]
    Table("Tasks", columns, cells, notes=[NOTE], n_text=len(columns)).print()


def listing(data_dir: str | None) -> list[dict[str, Any]]:
    """Each task, and where its data is, judged by names of folders and packages alone."""
    path = resources.files("sparring.lab").joinpath("datasets", "tasks.json")  # without importing datasets
    text = path.read_text(encoding="utf-8")
    folder = data_dir or os.environ.get("SPARRING_DATA")
    check_text(str(folder or ""), "the folder of data sets (--data-dir or SPARRING_DATA)")
    root = Path(folder).expanduser() if folder else None
    rows = []
    for task in json.loads(text):
        places = [root / name for name in task.pop("folders") if root is not None]
        place = next((str(path) for path in places if path.is_dir() and any(path.iterdir())), None)
        package = task.pop("package")
        if package is not None and find_spec(MODULES.get(package, package)) is not None:
            place = package
        rows.append({**task, "here": place is not None, "where": place or "not here"})
    return rows


def check(data_dir: str | None) -> list[dict[str, Any]]:
    """Each task, and what reading its data gives."""
    from sparring.lab.datasets import Where, list_tasks, survey

    return survey(list_tasks(), Where.default(data_dir))
