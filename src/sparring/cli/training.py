"""What ``run``, ``compare`` and ``tune`` share: settings as flags, and printing results."""

import argparse
import os
from collections.abc import Collection
from typing import Any

from sparring.cli.terminal import fail, print_json
from sparring.lab.results import Comparison, Failures
from sparring.lab.runs.config import SETTINGS
from sparring.lab.table import console


def add_config_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the task, a file of settings and a flag for each setting."""
    parser.add_argument("task", metavar="TASK", nargs="?", help=SETTINGS["task"].help)
    about = "TOML with any of the settings below; flags override it"
    parser.add_argument("--config", metavar="FILE", help=about)
    add_run_arguments(parser, seeds=1)
    parser.add_argument("--wide", action="store_true", help="show all columns of the table")
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


def flag_values(options: argparse.Namespace) -> dict[str, Any]:
    """The settings that were set by flags."""
    return {name: value for name, value in vars(options).items() if name in SETTINGS and value is not None}


def run_options(options: argparse.Namespace) -> dict[str, Any]:
    """The keyword arguments of the lab's functions that the flags give."""
    names = ("seeds", "jobs", "fresh", "resume_anyway", "config")
    settings = flag_values(options)
    data = settings.pop("task", None)
    return {"data": data, **{name: getattr(options, name) for name in names}, **settings}


def print_failures(failures: Failures) -> int:
    """Print a line for each run that diverged. Return the exit code."""
    for failure in failures:
        fail(failure["error"])
    return 1 if failures else 0


def print_comparison(options: argparse.Namespace, result: Comparison) -> int:
    """Print the tables, the verdict, and what to know. Return the exit code."""
    if os.environ.get("RANK", "0") != "0":  # under torchrun, the first process prints
        return 1 if result.failures else 0
    if options.json:
        facts = {"verdict": result.verdict.splitlines(), "failed": result.failures}
        print_json({**result.facts, "rows": result.rows, **facts})
        return print_failures(result.failures)
    terminal = console()
    first, *others = result.tables(wide=options.wide)
    first.print(terminal)
    if result.verdict:
        terminal.print(f"\n{result.verdict}\n", style="bold", markup=False)
    elif others:
        terminal.print()
    for table in others:
        table.print(terminal)
    for note in result.notes:
        terminal.print(note, markup=False)
    if result.n_done:
        n_runs = len(result.folders) + len(result.failures)
        print(f"{result.n_done} of {n_runs} runs were already done (--fresh runs them again)")
    for folder in sorted({str(path.parent) for path in result.folders}):
        print(f"runs: {folder}")
    return print_failures(result.failures)
