"""How long runs will take: from finished runs of the same network, else from a few batches."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from sparring.lab.runs.plan import Plan, plan, sizes
from sparring.lab.runs.records import find_runs
from sparring.lab.runs.runner import run

N_BATCHES = 4
EVALUATION_COST = 0.4  # of a sample on dev, against a trained one
SAME_NETWORK = (
    "task", "model", "layers", "freeze_embeddings", "freeze_layers", "pooling", "image_size", "max_length",
    "batch_size",
)  # fmt: skip


class Estimate(NamedTuple):
    """The seconds of all runs, one after another, and whether a few batches were trained to measure them."""

    seconds: float
    measured: bool


def estimate(plans: Sequence[Plan], jobs: int = 1) -> Estimate:
    """Estimate plans of one task and network. Several jobs have one thread each."""
    first = plans[0]
    if jobs > 1 and first.config.threads is None:
        first = replace(first, config=first.config.replace(threads=1))
    rate = _rate_of_finished_runs(first)
    measured = rate is None
    if rate is None:
        rate = _measured_rate(first)
    return Estimate(sum(rate * _n_samples(plan) for plan in plans), measured)


def _n_samples(plan: Plan) -> float:
    """The samples that a run trains and evaluates, in units of one trained sample."""
    config = plan.config
    n_train, n_dev, n_test = sizes(config, plan.data)
    if plan.chosen is not None:
        n_train = len(plan.chosen)
    assert config.epochs is not None
    assert config.batch_size is not None
    n_evaluations = float(config.epochs)
    if config.eval_every is not None:
        n_evaluations *= -(-n_train // config.batch_size) / config.eval_every
    return n_train * config.epochs + EVALUATION_COST * (n_evaluations * n_dev + n_test)


def _rate_of_finished_runs(plan: Plan) -> float | None:
    """Seconds for each sample in the finished runs of the same network on the same task."""
    root = Path(plan.config.out) / plan.task.name
    summaries = [folder.summary() for folder in find_runs(root)] if root.exists() else []
    wanted = {name: getattr(plan.config, name) for name in SAME_NETWORK}
    same = [
        summary
        for summary in summaries
        if wanted == {name: summary["config"].get(name) for name in SAME_NETWORK} and summary["n_forward"]
    ]
    if not same:
        return None
    return float(sum(s["seconds"] for s in same) / sum(s["n_forward"] for s in same))


_rates: dict[tuple[Any, ...], float] = {}  # the tables of one command share networks


def _measured_rate(plan_: Plan) -> float:
    """Seconds for each sample in the second of two epochs of a few batches."""
    config = plan_.config
    key = (plan_.data.fingerprint, config.threads, *(getattr(config, name) for name in SAME_NETWORK))
    if key not in _rates:
        assert config.batch_size is not None
        n_train = N_BATCHES * config.batch_size
        with tempfile.TemporaryDirectory() as folder:
            small = config.replace(
                n_train=n_train, n_dev=1, epochs=2, eval_every=None, test=False, out=folder
            )
            probe = replace(plan(small, plan_.task, plan_.data), config=small)
            run(probe)
            epoch = probe.folder.lines("epochs")[-1]
            _rates[key] = float(epoch["seconds"] / epoch["n_forward"])
    return _rates[key]


def duration(seconds: float) -> str:
    """
    >>> duration(40), duration(4000), duration(40000)
    ('less than a minute', 'about 67 minutes', 'about 11.1 hours')
    """
    if seconds < 60:
        return "less than a minute"
    return f"about {seconds / 60:.0f} minutes" if seconds < 7200 else f"about {seconds / 3600:.1f} hours"
