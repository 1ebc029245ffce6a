"""What ``run``, ``compare`` and ``tune`` share: settings as flags, running plans, and printing results."""

import argparse
import os
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from sparring.cli.terminal import fail, print_json, sizes_text
from sparring.lab.errors import RunsDivergedError, UserError
from sparring.lab.runs.compare import rows_of
from sparring.lab.runs.config import SETTINGS, Config
from sparring.lab.runs.jobs import remove, run_all
from sparring.lab.runs.plan import Plan, sizes
from sparring.lab.runs.summaries import comparison
from sparring.lab.table import console

Failures = list[dict[str, str]]


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


def run_plans(
    options: argparse.Namespace, plans: Sequence[Plan]
) -> tuple[list[dict[str, Any] | None], Failures]:
    """Run what is not done. Return the summaries (None for a run that diverged) and the errors."""
    if options.jobs < 1:
        raise UserError(f"jobs must be at least 1, got {options.jobs}")
    if options.fresh:
        remove([plan.folder for plan in plans], cpu=plans[0].config.device == "cpu")
    try:
        return [*run_all(plans, options.jobs, console(stderr=True), anyway=options.resume_anyway)], []
    except RunsDivergedError as error:
        if all(summary is None for summary in error.summaries):
            raise
        return error.summaries, error.failures


def print_failures(failures: Failures) -> int:
    """Print a line for each run that diverged. Return the exit code."""
    for failure in failures:
        fail(failure["error"])
    return 1 if failures else 0


def train(options: argparse.Namespace, plans: Sequence[Plan]) -> int:
    """Run the plans and print one table of them. Return the exit code."""
    config = plans[0].config
    task = plans[0].task
    data = plans[0].data
    n_done = sum(plan.folder.done for plan in plans) if not options.fresh else 0
    summaries, failures = run_plans(options, plans)
    rows = rows_of([summary for summary in summaries if summary is not None], str(config.metric))
    if os.environ.get("RANK", "0") != "0":  # under torchrun, the first process prints
        return 1 if failures else 0
    if options.json:
        facts = {"task": task.name, "kind": task.kind.name, "source": data.source, "notes": list(data.notes)}
        print_json({**facts, "model": config.model, "rows": rows, "failed": failures})
        return print_failures(failures)
    classes = f", {len(data.labels)} classes" if data.labels else ""
    counts = sizes_text(sizes(config, data))
    title = f"{task.name} ({task.kind}, {counts}{classes}), model {config.model}"
    table = comparison(title, rows, [failure["run"] for failure in failures])
    first = [summary for summary in summaries if summary is not None and summary["seed"] == config.seed]
    notes = [f"{s['contestant']}: {note}" for s in first for note in s.get("notes") or []]
    replace(table, notes=[*table.notes, *notes]).print()
    for note in data.notes:
        print(f"data: {note}")
    if n_done:
        print(f"{n_done} of {len(plans)} runs were already done (--fresh runs them again)")
    for folder in sorted({str(plan.folder.path.parent) for plan in plans}):
        print(f"runs: {folder}")
    return print_failures(failures)
