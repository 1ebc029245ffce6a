"""Contestants on the same task with the same seeds: one row each, mean and spread, time against the first of them.

Rows are made from summaries alone, so a folder of runs can be compared again without training.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from sparring.lab.datasets import Data, Task, UserError
from sparring.lab.runs.config import IDENTITY, LOSS_SETTINGS, OWN, Config
from sparring.lab.runs.plan import Plan, plan
from sparring.lab.runs.summaries import Summary, row


def contestants(config: Config, names: Sequence[str], task: Task, data: Data) -> list[Config]:
    """A config for each name with its own settings; a setting given for all goes to those that take it, and must be taken by one."""
    if not names:
        raise UserError("which losses? give names with commas between, such as softmax,as-softmax")
    configs = [config.with_contestant(name) for name in names]
    plans = [plan(each, task, data, strict=False) for each in configs]
    for name in LOSS_SETTINGS:
        if getattr(config, name) is not None and all(getattr(each.config, name) is None for each in plans):
            raise UserError(f"none of {', '.join(names)} takes {name}")
    return configs


def plans_for(
    configs: Sequence[Config], n_seeds: int, task: Task, data: Data, *, strict: bool = True
) -> list[Plan]:
    """Seed by seed, configs in turn: what slows the machine down for a while slows all of them."""
    if n_seeds < 1:
        raise UserError(f"seeds must be at least 1, got {n_seeds}")
    plans = [
        plan(config.replace(seed=config.seed + i), task, data, strict=strict)
        for i in range(n_seeds)
        for config in configs
    ]
    folders = [each.folder.path for each in plans]
    if len(set(folders)) < len(folders):
        twice = next(each for each in plans if folders.count(each.folder.path) > 1)
        raise UserError(f"two of the runs are the same: {twice.config.label}")
    return plans


def rows_of(summaries: Sequence[Summary], metric: str) -> list[dict[str, Any]]:
    """One row a contestant, in the order they came; times are ratios to the first one's, seed by seed, and their median."""
    groups: dict[str, list[Summary]] = {}
    for summary in summaries:
        groups.setdefault(json.dumps([summary["config"].get(name) for name in IDENTITY]), []).append(summary)
    firsts = [group[0] for group in groups.values()]
    base = {summary["seed"]: summary for summary in next(iter(groups.values()))}
    return [row(_name(group[0], firsts), group, base, metric) for group in groups.values()]


def _name(summary: Summary, others: Sequence[Summary]) -> str:
    """The contestant, and what else tells it from the others."""
    config, shown = summary["config"], (*LOSS_SETTINGS, "loss", "accumulation")
    differs = [
        name
        for name in OWN
        if name not in shown and any(one["config"].get(name) != config.get(name) for one in others)
    ]
    given = {name: config[name] for name in differs if config[name] != getattr(Config, name)}
    return " ".join(
        [
            summary["contestant"],
            *(name if value is True else f"{name}={value}" for name, value in given.items()),
        ]
    )
