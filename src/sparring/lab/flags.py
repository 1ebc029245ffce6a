"""The fields of Config as flags of the command line."""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path

from sparring.lab.config import TYPES, Config

FIELDS = {field.name: field for field in dataclasses.fields(Config)}


def add_config(parser: argparse.ArgumentParser) -> None:
    """The fields of Config as flags; unset ones stay out, so that a file's values hold."""
    parser.add_argument("task", metavar="TASK", nargs="?", help=FIELDS["task"].metadata["help"])
    parser.add_argument("--config", metavar="FILE", help="TOML with any of the settings below; flags go on top")
    parser.add_argument("--seeds", type=int, default=1, help="how many seeds, from --seed on")
    parser.add_argument("--jobs", type=int, default=1, help="runs side by side, each with one thread unless --threads says more")
    parser.add_argument("--fresh", action="store_true", help="begin anew what was run or begun before")
    groups = {}
    for name, field in FIELDS.items():
        if name == "task":
            continue
        group = field.metadata["group"]
        if group not in groups:
            groups[group] = parser.add_argument_group(group)
        flag, about = f"--{name.replace('_', '-')}", field.metadata["help"]
        if TYPES[name] == ["bool"]:
            groups[group].add_argument(flag, action=argparse.BooleanOptionalAction, default=None, help=about)
        else:
            shown = "" if field.default is None else f" (default: {field.default})"
            words = field.metadata["choices"]
            kinds = [kind.upper() for kind in TYPES[name] if kind != "str" or not words]
            metavar = "|".join([*kinds, *(words or ())])
            groups[group].add_argument(flag, metavar=metavar, default=None, help=about.replace("%", "%%") + shown)


def config_of(options: argparse.Namespace) -> Config:
    """The file that was named, with the flags on top."""
    flags = {name: value for name, value in vars(options).items() if name in FIELDS and value is not None}
    return Config.read(Path(options.config) if options.config else None, flags)
