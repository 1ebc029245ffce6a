"""``sparring tasks``: list the tasks."""

import argparse

from sparring.cli.terminal import print_json, sizes_text
from sparring.lab.datasets import Where, list_tasks, survey
from sparring.lab.runs.config import SETTINGS
from sparring.lab.table import MISSING, Table

EXAMPLES = "  sparring tasks --data-dir ~/data"
NOTE = (
    "Not here: see --data-dir and SPARRING_DATA. A CSV, TSV or JSONL file or a folder of your own works, too."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data-dir", help=SETTINGS["data_dir"].help)


def main(options: argparse.Namespace) -> None:
    rows = survey(list_tasks(), Where.default(options.data_dir))
    if options.json:
        print_json(rows)
        return
    lines = []
    for row in rows:
        sizes = sizes_text(row["sizes"]) if row["sizes"] else MISSING
        classes = MISSING if row["classes"] is None else str(row["classes"])
        lines.append([row["name"], row["kind"], sizes, classes, row["where"], row["about"]])
    columns = ("task", "kind", "train/dev/test", "classes", "where", "about")
    Table("Tasks", columns, lines, notes=[NOTE], n_text=len(columns)).print()
