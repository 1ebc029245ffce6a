"""Contestants on the same task with the same seeds: one row each, mean and spread, time against the first of them.

Rows are made from summaries alone, so a folder of runs can be compared again without training.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from typing import Any

from sparring.lab.config import LOSS_SETTINGS, Config
from sparring.lab.runner import Plan, plan
from sparring.lab.tasks import Data, Task, UserError

Summary = dict[str, Any]


def plans_for(config: Config, contestants: Sequence[str | None], n_seeds: int, task: Task, data: Data) -> list[Plan]:
    """Seed by seed, contestants in turn: what slows the machine down for a while slows all of them. None is the config as it is."""
    if n_seeds < 1:
        raise UserError(f"seeds must be at least 1, got {n_seeds}")
    configs = [config if text is None else config.with_contestant(text) for text in contestants]
    _check_used(config, [plan(each, task, data, strict=text is None) for each, text in zip(configs, contestants, strict=True)])
    plans = [plan(each.replace(seed=config.seed + i), task, data, strict=False) for i in range(n_seeds) for each in configs]
    folders = [each.folder.path for each in plans]
    if len(set(folders)) < len(folders):
        raise UserError(f"two contestants are the same run: {', '.join(map(str, contestants))}")
    return plans


def _check_used(config: Config, plans: Sequence[Plan]) -> None:
    """A setting given for all must be taken by one at least."""
    for name in LOSS_SETTINGS:
        if getattr(config, name) is not None and all(getattr(each.config, name) is None for each in plans):
            raise UserError(f"none of {', '.join(str(each.config.loss) for each in plans)} takes {name}")


def rows_of(summaries: Sequence[Summary], metric: str) -> list[dict[str, Any]]:
    """One row a contestant, in the order they came; times are ratios to the first one's, seed by seed, and their median."""
    groups: dict[str, list[Summary]] = {}
    for summary in summaries:
        groups.setdefault(json.dumps({**summary["config"], "seed": None}, sort_keys=True), []).append(summary)
    firsts = [group[0] for group in groups.values()]
    base = {summary["seed"]: summary for summary in next(iter(groups.values()))}
    return [_row(_name(group[0], firsts), group, base, metric) for group in groups.values()]


def _name(summary: Summary, others: Sequence[Summary]) -> str:
    """The contestant, and what else tells it from the others."""
    config, shown = summary["config"], (*LOSS_SETTINGS, "task", "loss", "accumulation", "seed", "out", "threads")
    differs = [name for name in config if name not in shown and any(one["config"].get(name) != config[name] for one in others)]
    said = [name if config[name] is True else f"{name}={config[name]}" for name in differs if config[name] != getattr(Config, name)]
    return " ".join([summary["contestant"], *said])


def _row(name: str, group: Sequence[Summary], base: dict[int, Summary], metric: str) -> dict[str, Any]:
    ratios = [base[one["seed"]]["seconds"] / one["seconds"] for one in group if one["seed"] in base and one["seconds"]]
    looks = [one["n_samples"] * one["epochs"] for one in group]
    r = [one["correlation"] for one in group if one["correlation"] is not None]
    return {
        "contestant": name,
        "seeds": [one["seed"] for one in group],
        "metric": metric,
        "test": spread([one["test"][metric] for one in group if one["test"]]),
        "dev": spread([one["dev"][metric] for one in group]),
        "seconds": statistics.mean(one["seconds"] for one in group),
        "faster": statistics.median(ratios) if ratios else None,
        "forwards": statistics.mean(one["n_forward"] / n for one, n in zip(group, looks, strict=True)),
        "backwards": statistics.mean(one["n_backward"] / n for one, n in zip(group, looks, strict=True)),
        "updates": statistics.mean(one["n_updates"] for one in group),
        "won_share": statistics.mean(one["won_share"] for one in group),
        "correlation": statistics.mean(r) if r else None,
        "folders": [one["folder"] for one in group],
    }


def spread(values: Sequence[float]) -> dict[str, Any] | None:
    """Mean and standard deviation over seeds (None for one)."""
    if not values:
        return None
    return {"mean": statistics.mean(values), "std": statistics.stdev(values) if len(values) > 1 else None, "values": list(values)}
