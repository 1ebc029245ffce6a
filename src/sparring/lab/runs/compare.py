"""Contestants on the same task with the same seeds: their runs, and one row of results for each.

Rows are made from summaries alone, so finished runs can be compared again without training.
"""

import json
from collections.abc import Sequence
from typing import Any

from sparring.lab.errors import UserError, option
from sparring.lab.runs.config import IDENTITY, LOSS_SETTINGS, OWN, SETTINGS, Config
from sparring.lab.runs.plan import Plan, plan
from sparring.lab.runs.summaries import Summary, row
from sparring.lab.task import Data, Task


def contestants(config: Config, names: Sequence[str], task: Task, data: Data) -> list[Config]:
    """A config for each name, such as ``as-softmax:delta=0.2``.

    A setting of the loss in ``config`` applies to the contestants that take it; at least one must.
    """
    if not names:
        raise UserError("no losses: give names separated by commas, such as softmax,as-softmax")
    configs = [config.with_contestant(name) for name in names]
    resolved = [plan(contestant, task, data, strict=False).config for contestant in configs]
    for name in LOSS_SETTINGS:
        if getattr(config, name) is not None and all(getattr(other, name) is None for other in resolved):
            raise UserError(f"none of {', '.join(names)} takes {name}")
    return configs


def plans_for(
    configs: Sequence[Config], n_seeds: int, task: Task, data: Data, *, strict: bool = True
) -> list[Plan]:
    """Plans of all configs, seed by seed, so that a slow phase of the machine slows all of them."""
    if n_seeds < 1:
        raise UserError(f"{option('seeds')} must be at least 1, got {n_seeds}")
    plans: dict[Any, Plan] = {}
    for seed in range(n_seeds):
        for config in configs:
            planned = plan(config.replace(seed=config.seed + seed), task, data, strict=strict)
            if planned.folder.path in plans:
                raise UserError(f"two of the runs are the same: {planned.config.label}")
            plans[planned.folder.path] = planned
    return list(plans.values())


def rows_of(summaries: Sequence[Summary], metric: str) -> list[dict[str, Any]]:
    """One row per contestant, in the order of the summaries. Times are relative to the first contestant's."""
    groups: dict[str, list[Summary]] = {}
    for summary in summaries:
        groups.setdefault(json.dumps([summary["config"].get(name) for name in IDENTITY]), []).append(summary)
    firsts = [group[0] for group in groups.values()]
    base = {summary["seed"]: summary for summary in next(iter(groups.values()))}
    return [row(_name(group[0], firsts), group, base, metric) for group in groups.values()]


def _name(summary: Summary, others: Sequence[Summary]) -> str:
    """The contestant with the settings that distinguish it from the others."""
    config = summary["config"]
    words = [summary["contestant"]]
    for name in OWN:
        if name in (*LOSS_SETTINGS, "accumulation") or config[name] == SETTINGS[name].default:
            continue
        if any(other["config"].get(name) != config[name] for other in others):
            words.append(name if config[name] is True else f"{name}={config[name]}")
    return " ".join(words)
