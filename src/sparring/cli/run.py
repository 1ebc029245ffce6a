"""``sparring run``: train one loss."""

import argparse

from sparring.cli.training import add_config_arguments, print_comparison, run_options
from sparring.lab.api import run

EXAMPLES = """  sparring run digits
  sparring run clinc_oos --loss as-softmax --speed fast --model minilm --layers 2 --seeds 3
  sparring run reviews.csv --text-column review --label-column stars
  sparring run --config runs/digits/.../seed-0/config.toml --lr 1e-3"""
add_arguments = add_config_arguments


def main(options: argparse.Namespace) -> int:
    return print_comparison(options, run(**run_options(options)))
