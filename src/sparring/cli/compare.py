"""``sparring compare``: train several losses."""

import argparse

from sparring.cli.training import add_config_arguments, print_comparison, run_options
from sparring.lab.api import compare

EXAMPLES = """  sparring compare languages --losses softmax,as-softmax --seeds 3 --jobs 2
  sparring compare conll2003 --model minilm --losses softmax,as-softmax:delta=0.35:warmup=0.25,as-speed"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--losses",
        help="names separated by commas, with settings of their own if needed: as-softmax:delta=0.2:skip=off",
    )
    add_config_arguments(parser)


def main(options: argparse.Namespace) -> int:
    losses = None
    if options.losses is not None:
        losses = [name for name in options.losses.split(",") if name.strip()]
    return print_comparison(options, compare(losses=losses, **run_options(options)))
