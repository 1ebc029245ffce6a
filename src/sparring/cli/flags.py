"""The fields of Config as flags of the command line."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Collection
from pathlib import Path
from typing import Any

from sparring.lab.runs.config import TYPES, Config

FIELDS = {field.name: field for field in dataclasses.fields(Config)}


def add_config(parser: argparse.ArgumentParser) -> None:
    """The fields of Config as flags; unset ones stay out, so that a file's values hold."""
    parser.add_argument("task", metavar="TASK", nargs="?", help=FIELDS["task"].metadata["help"])
    parser.add_argument(
        "--config", metavar="FILE", help="TOML with any of the settings below; flags go on top"
    )
    add_runs(parser, seeds=1)
    add_fields(parser)


def add_paper(parser: argparse.ArgumentParser) -> None:
    """Which table or figure, at which scale; then a run's flags, but for those that a method of the papers decides."""
    parser.add_argument(
        "study",
        metavar="TABLE",
        nargs="*",
        help="table2, figure1, sparse table1, ...; all; page; nothing: list them",
    )
    parser.add_argument(
        "--scale",
        dest="size",
        default="small",
        choices=("small", "full"),
        help="full: the papers' own setting, for a GPU",
    )
    parser.add_argument("--tasks", help="names with commas between (default: the paper's)")
    parser.add_argument("--dry-run", action="store_true", help="list the runs and how long they will take")
    parser.add_argument("--save", metavar="DIR", help="write Markdown, JSON, SVG and the records to a folder")
    parser.add_argument(
        "--records",
        metavar="FILE",
        help="make it from what --save wrote, without runs (page: from a folder of such files)",
    )
    add_runs(parser, seeds=3)
    add_fields(parser, without=("loss",))


def add_runs(parser: argparse.ArgumentParser, seeds: int) -> None:
    """Flags of commands that train."""
    parser.add_argument(
        "--seeds", type=int, default=seeds, help=f"how many seeds, from --seed on (default: {seeds})"
    )
    parser.add_argument(
        "--jobs",
        type=int,
        default=1,
        help="runs side by side, each with one thread unless --threads says more",
    )
    parser.add_argument("--fresh", action="store_true", help="begin anew what was run or begun before")
    parser.add_argument(
        "--resume-anyway",
        action="store_true",
        help="go on with unfinished runs although their settings or data were others",
    )


def add_fields(parser: argparse.ArgumentParser, without: Collection[str] = ()) -> None:
    """A flag for each field, but for those of some groups."""
    groups = {}
    for name, field in FIELDS.items():
        group = field.metadata["group"]
        if name == "task" or group in without:
            continue
        if group not in groups:
            groups[group] = parser.add_argument_group(group)
        flag, about = f"--{name.replace('_', '-')}", field.metadata["help"]
        if TYPES[name] == ["bool"]:
            groups[group].add_argument(flag, action=argparse.BooleanOptionalAction, default=None, help=about)
        else:
            shown = "" if field.default is None else f" (default: {field.default})"
            words = field.metadata["choices"]
            kinds = [word.upper() for word in TYPES[name] if word != "str" or not words]
            metavar = "|".join([*kinds, *(words or ())])
            groups[group].add_argument(
                flag, metavar=metavar, default=None, help=about.replace("%", "%%") + shown
            )


def config_of(options: argparse.Namespace) -> Config:
    """The file that was named, with the flags on top."""
    flags = flags_of(options)
    return Config.read(Path(options.config) if options.config else None, flags)


def flags_of(options: argparse.Namespace) -> dict[str, Any]:
    """The fields that were given."""
    return {name: value for name, value in vars(options).items() if name in FIELDS and value is not None}
