"""``sparring tune``: choose a setting of a loss on dev."""

import argparse
import shlex

from sparring.cli.terminal import print_json
from sparring.cli.training import add_config_arguments, print_failures, read_config, run_plans
from sparring.lab.runs.compare import plans_for, rows_of
from sparring.lab.runs.plan import open_task
from sparring.lab.runs.summaries import percent_cell
from sparring.lab.runs.tune import best_row, changes, describe, grid, parse_values, split_diverged
from sparring.lab.table import MISSING, Row, Table, percent

EXAMPLES = """  sparring tune sst5 --loss as-softmax
  sparring tune clinc_oos --loss sparse-softmax --values k=5,10,20 --seeds 3"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    help = "values to try instead of the papers'"
    parser.add_argument("--values", action="append", default=[], metavar="NAME=V,V", help=help)
    add_config_arguments(parser)


def main(options: argparse.Namespace) -> int:
    config = read_config(options)
    task, data = open_task(config)
    loss = str(plans_for([config], 1, task, data)[0].config.loss)
    values = parse_values(options.values)
    points = grid(config.replace(test=False), loss, len(data.labels), values)
    plans = plans_for(points, options.seeds, task, data)
    summaries, failures = run_plans(options, plans)
    finished, whole, diverged = split_diverged(points, summaries)
    rows = rows_of(whole, str(plans[0].config.metric))
    best = best_row(rows)
    tuned = finished[rows.index(best)].replace(test=config.test, loss=config.loss or loss)
    command = shlex.join(["sparring", "run", config.task, *tuned.flags()])
    if options.json:
        facts = {"task": task.name, "metric": best["metric"], "rows": rows, "failed": failures}
        print_json({**facts, "best": changes(tuned, config), "command": command})
        return print_failures(failures)
    lines: list[Row] = []
    for point, row in zip(finished, rows, strict=True):
        mark = "best" if row is best else ""
        lines.append([describe(point, config), percent_cell(row["dev"]), percent(row["won_share"], 0), mark])
    lines += [[describe(point, config), "diverged", MISSING, ""] for point in diverged]
    columns = ("", f"dev {best['metric'].replace('_', ' ')} %", "won %", "")
    Table(f"{task.name}: {config.loss or loss} on dev (test was not used)", columns, lines).print()
    print(f"best: {command}")
    return print_failures(failures)
