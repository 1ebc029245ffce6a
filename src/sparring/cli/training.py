"""Run plans and print their results: what ``run``, ``compare`` and ``tune`` share."""

import argparse
import os
from collections.abc import Sequence
from typing import Any

from sparring.cli.terminal import fail, print_json, sizes_text
from sparring.lab.errors import RunsDivergedError, UserError
from sparring.lab.runs.compare import rows_of
from sparring.lab.runs.jobs import remove, run_all
from sparring.lab.runs.plan import Plan, sizes
from sparring.lab.runs.summaries import comparison
from sparring.lab.table import console

Failures = list[dict[str, str]]


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
    comparison(title, rows, [failure["run"] for failure in failures]).print()
    for note in data.notes:
        print(f"data: {note}")
    if n_done:
        print(f"{n_done} of {len(plans)} runs were already done (--fresh runs them again)")
    for folder in sorted({str(plan.folder.path.parent) for plan in plans}):
        print(f"runs: {folder}")
    return print_failures(failures)
