"""``sparring tune``: choose a setting of a loss on dev."""

import argparse
import shlex

from sparring.cli.terminal import print_json
from sparring.cli.training import add_config_arguments, print_failures, run_options
from sparring.lab.api import tune
from sparring.lab.runs.tune import parse_values
from sparring.lab.table import console

EXAMPLES = """  sparring tune sst5 --loss as-softmax
  sparring tune clinc_oos --loss sparse-softmax --values k=5,10,20 --seeds 3"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    help = "values to try instead of the papers'"
    parser.add_argument("--values", action="append", default=[], metavar="NAME=V,V", help=help)
    add_config_arguments(parser)


def main(options: argparse.Namespace) -> int:
    result = tune(values=parse_values(options.values), **run_options(options))
    command = shlex.join(["sparring", "run", result.config.task, *result.config.flags()])
    if options.json:
        facts = {"task": result.task, "metric": result.rows[0]["metric"], "rows": result.rows}
        verdict = {"best": result.best, "verdict": result.verdict, "command": command}
        print_json({**facts, "failed": result.failures, **verdict})
        return print_failures(result.failures)
    terminal = console()
    result.table.print(terminal)
    terminal.print(f"\n{result.verdict}\n", style="bold", markup=False)
    print(f"best: {command}")
    return print_failures(result.failures)
