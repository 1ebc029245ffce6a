"""The settings of a run as flags."""

import argparse
from collections.abc import Collection
from pathlib import Path
from typing import Any

from sparring.lab.runs.config import SETTINGS, Config


def add_config_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the task, a file of settings and a flag for each setting."""
    parser.add_argument("task", metavar="TASK", nargs="?", help=SETTINGS["task"].help)
    about = "TOML with any of the settings below; flags override it"
    parser.add_argument("--config", metavar="FILE", help=about)
    add_run_arguments(parser, seeds=1)
    add_fields(parser)


def add_run_arguments(parser: argparse.ArgumentParser, seeds: int) -> None:
    """Add the flags of commands that train."""
    parser.add_argument(
        "--seeds", type=int, default=seeds, help=f"how many seeds, beginning with --seed (default: {seeds})"
    )
    parser.add_argument(
        "--jobs", type=int, default=1, help="parallel runs, each with one thread unless --threads says more"
    )
    parser.add_argument("--fresh", action="store_true", help="delete earlier runs and start again")
    parser.add_argument(
        "--resume-anyway",
        action="store_true",
        help="continue unfinished runs although their settings or data have changed",
    )


def add_fields(parser: argparse.ArgumentParser, without: Collection[str] = ()) -> None:
    """Add a flag for each setting, except those of some groups. A flag that is not set stays None."""
    groups: dict[str, Any] = {}
    for name, setting in SETTINGS.items():
        if name == "task" or setting.group in without:
            continue
        if setting.group not in groups:
            groups[setting.group] = parser.add_argument_group(setting.group)
        if setting.types == (bool,):
            form: dict[str, Any] = {"action": argparse.BooleanOptionalAction}
            default = ""
        else:
            types = [t.__name__.upper() for t in setting.types if t is not str or not setting.choices]
            form = {"metavar": "|".join([*types, *setting.choices])}
            default = "" if setting.default is None else f" (default: {setting.default})"
        help = setting.help.replace("%", "%%") + default
        groups[setting.group].add_argument(setting.flag, default=None, help=help, **form)


def read_config(options: argparse.Namespace) -> Config:
    """Read the file of settings, if one is named. Flags override it."""
    return Config.read(Path(options.config) if options.config else None, flag_values(options))


def flag_values(options: argparse.Namespace) -> dict[str, Any]:
    """The settings that were set by flags."""
    return {name: value for name, value in vars(options).items() if name in SETTINGS and value is not None}
