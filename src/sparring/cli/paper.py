"""``sparring paper``: reproduce a table or figure of the papers."""

import argparse

from sparring.cli.terminal import print_json
from sparring.cli.training import add_fields, add_run_arguments, flag_values
from sparring.lab.paper.command import paper
from sparring.lab.runs.config import SETTINGS

EXAMPLES = """  sparring paper
  sparring paper table2 --tasks clinc_oos,sst5 --seeds 1 --dry-run
  sparring paper figure2 --tasks languages --jobs 2 --save figures
  sparring paper sparse table1 --scale full --mixed-precision bf16"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which table or figure, at which scale; then the flags of a run, except those of the loss."""
    parser.add_argument(
        "study",
        metavar="TABLE",
        nargs="*",
        help="table2, figure1, sparse table1, ...; all; page; without it, list them",
    )
    parser.add_argument(
        "--scale",
        dest="size",
        default="small",
        choices=("small", "full"),
        help="full: the papers' settings, for a GPU",
    )
    parser.add_argument("--tasks", help="names separated by commas (default: the paper's)")
    parser.add_argument(
        "--methods", help="names as the papers print them, separated by commas (default: all)"
    )
    parser.add_argument("--dry-run", action="store_true", help="list the runs and how long they will take")
    parser.add_argument(
        "--save",
        metavar="DIR",
        help="write Markdown, JSON, SVG and the records to a folder, whose runs are not repeated",
    )
    parser.add_argument(
        "--records",
        metavar="FILE",
        help="use what --save wrote instead of runs (page: a folder of such files)",
    )
    add_run_arguments(parser, seeds=3)
    add_fields(parser, without=("loss",))


def main(options: argparse.Namespace) -> None:
    flags = {name: SETTINGS[name].parse(text) for name, text in flag_values(options).items()}
    output = paper(options, flags)
    if output is not None:
        print_json(output)
