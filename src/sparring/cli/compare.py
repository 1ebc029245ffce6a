"""``sparring compare``: train several losses."""

import argparse

from sparring.cli.training import add_config_arguments, read_config, train
from sparring.lab.errors import UserError
from sparring.lab.runs.compare import contestants, plans_for
from sparring.lab.runs.plan import open_task

EXAMPLES = """  sparring compare languages --losses softmax,as-softmax --seeds 3 --jobs 2
  sparring compare conll2003 --model minilm --losses softmax,as-softmax:delta=0.35:warmup=0.25,as-speed"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--losses",
        help="names separated by commas, with settings of their own if needed: as-softmax:delta=0.2:skip=off",
    )
    add_config_arguments(parser)


def main(options: argparse.Namespace) -> int:
    config = read_config(options)
    if config.loss is not None and (options.loss is not None or options.losses is None):
        raise UserError(f"compare takes --losses, names separated by commas, not --loss {config.loss}")
    task, data = open_task(config)
    if options.losses is not None:
        names = [name for name in options.losses.split(",") if name.strip()]
    else:
        names = [task.kind.loss_name(name) for name in ("softmax", "as-softmax")]
    configs = contestants(config, names, task, data)
    return train(options, plans_for(configs, options.seeds, task, data, strict=False))
