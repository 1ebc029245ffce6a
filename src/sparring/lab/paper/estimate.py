"""How long runs will take: from finished runs of the same kind where there are some, else from a few batches trained on the spot."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from sparring.lab.runs.plan import Plan, plan, sizes
from sparring.lab.runs.records import find_runs
from sparring.lab.runs.runner import run

BATCHES = 4
LOOK = 0.4  # a sample at dev costs so much of a trained one
ALIKE = ("task", "model", "layers", "freeze_embeddings", "pooling", "max_length", "batch_size")


class Estimate(NamedTuple):
    seconds: float  # of all runs, one after another
    measured: bool  # here and now, on a few batches


def estimate(plans: Sequence[Plan], jobs: int = 1) -> Estimate:
    """For plans of one task and network, one after another; each has one thread where several are to run at once."""
    first, measured = plans[0], False
    if jobs > 1 and first.config.threads is None:
        first = replace(first, config=first.config.replace(threads=1))
    rate = _rate(first)
    if rate is None:
        rate, measured = _probe(first), True
    return Estimate(sum(rate * _samples(each) for each in plans), measured)


def _samples(plan: Plan) -> float:
    """Samples trained, and looked at in between and at the end."""
    config, data = plan.config, plan.data
    n, n_dev, n_test = sizes(config, data)
    if plan.chosen is not None:
        n = len(plan.chosen)
    assert config.epochs is not None and config.batch_size is not None  # noqa: PT018, resolved
    looks = config.epochs * (
        1 if config.eval_every is None else -(-n // config.batch_size) / config.eval_every
    )
    return n * config.epochs + LOOK * (looks * n_dev + n_test)


def _rate(plan: Plan) -> float | None:
    """Seconds a sample, of the runs there are of the same network on the same task."""
    root = Path(plan.config.out) / plan.task.name
    found = [each.summary() for each in find_runs(root)] if root.exists() else []
    same = [
        s
        for s in found
        if all(s["config"].get(name) == getattr(plan.config, name) for name in ALIKE) and s["n_forward"]
    ]
    return sum(s["seconds"] for s in same) / sum(s["n_forward"] for s in same) if same else None


_probed: dict[tuple[Any, ...], float] = {}  # tables of one command share networks


def _probe(plan_: Plan) -> float:
    """Seconds a sample, from a few batches; the first epoch warms up."""
    config = plan_.config
    key = (plan_.data.fingerprint, config.threads, *(getattr(config, name) for name in ALIKE))
    if key not in _probed:
        _probed[key] = _measure(plan_)
    return _probed[key]


def _measure(plan_: Plan) -> float:
    config = plan_.config
    assert config.batch_size is not None
    with tempfile.TemporaryDirectory() as folder:
        small = config.replace(
            n_train=BATCHES * config.batch_size, n_dev=1, epochs=2, eval_every=None, test=False, out=folder
        )
        made = replace(plan(small, plan_.task, plan_.data), config=small)
        run(made)
        last = made.folder.lines("epochs")[-1]
        return float(last["seconds"] / last["n_forward"])


def words(seconds: float) -> str:
    """
    >>> words(40), words(4000), words(40000)
    ('less than a minute', 'about 67 minutes', 'about 11.1 hours')
    """
    if seconds < 60:
        return "less than a minute"
    return f"about {seconds / 60:.0f} minutes" if seconds < 7200 else f"about {seconds / 3600:.1f} hours"
