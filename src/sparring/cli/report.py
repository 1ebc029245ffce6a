"""``sparring report``: draw the results of runs on one page."""

import argparse
from pathlib import Path

from sparring.cli.terminal import print_json
from sparring.lab.report.build import build_report
from sparring.lab.table import plural

EXAMPLES = """  sparring report runs/languages
  sparring report runs/sst5 runs/clinc_oos -o results.html --title "Two tasks, three seeds" --json"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", metavar="RUN", nargs="+", help="folders of runs, or folders above several")
    parser.add_argument("-o", "--output", default="report.html", help="the page (default: report.html)")
    parser.add_argument("--title", help="title of the page (default: the tasks)")


def main(options: argparse.Namespace) -> None:
    facts = build_report([Path(run) for run in options.runs], Path(options.output), options.title)
    if options.json:
        print_json(facts)
    else:
        print(f"{facts['report']}: {plural(facts['n_runs'], 'run')}, {facts['bytes'] / 1e6:.1f} MB")
