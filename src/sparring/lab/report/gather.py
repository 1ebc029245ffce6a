"""Run folders gathered for a report: one section a task, one contestant for the runs that differ by their seed alone.

Only records are read.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sparring.lab.errors import UserError
from sparring.lab.runs.config import IDENTITY, LOSS_SETTINGS, OWN
from sparring.lab.runs.records import RunFolder, find_runs
from sparring.lab.runs.summaries import Summary, row

PLAIN = ("softmax", "multilabel-softmax")  # what the others are measured against, where it is there


@dataclass
class Contestant:
    """The runs of one contestant, by seed."""

    name: str
    runs: dict[int, RunFolder]
    summaries: dict[int, Summary]

    @property
    def first(self) -> Summary:
        return next(iter(self.summaries.values()))

    @property
    def config(self) -> dict[str, Any]:
        return dict(self.first["config"])

    @property
    def folder(self) -> str:
        """The name of the folder above the seeds."""
        return next(iter(self.runs.values())).path.resolve().parent.name

    @property
    def prefix(self) -> str:
        """What stands in the folder's name before the contestant's own: a benchmark's word for a control."""
        before, found, _ = self.folder.partition(self.first["contestant"].replace(" ", "-").replace("=", ""))
        return before.strip("-") if found else ""

    def figures(self, part: str, name: str) -> dict[int, float]:
        """A figure of dev or test by seed; runs without it are left out."""
        found = {seed: (summary[part] or {}).get(name) for seed, summary in self.summaries.items()}
        return {seed: value for seed, value in found.items() if value is not None}


@dataclass
class Section:
    """The contestants on one task's data. The first one is the one that the others are measured against."""

    name: str
    facts: dict[str, Any]  # of data.json
    metric: str
    contestants: list[Contestant]

    @property
    def names(self) -> list[str]:
        return [contestant.name for contestant in self.contestants]

    @property
    def part(self) -> str:
        """Test where every contestant was scored on it, else dev."""
        return "test" if all(each.figures("test", self.metric) for each in self.contestants) else "dev"


# ------------------------------------------------------------ reading


def find(paths: Sequence[Path]) -> list[RunFolder]:
    """The finished runs in these folders, each once, in the order given."""
    found: dict[Path, RunFolder] = {}
    for path in paths:
        if not path.exists():
            raise UserError(
                f"{path}: no such folder; sparring run and compare print the folders of their runs"
            )
        for run in find_runs(path):
            found.setdefault(run.path.resolve(), run)
    if not found:
        under_way = len(unfinished(paths))
        hint = (
            f"{under_way} under way: the command that began a run finishes it"
            if under_way
            else "sparring run TASK makes one"
        )
        raise UserError(f"{', '.join(map(str, paths))}: no finished run in there ({hint})")
    return list(found.values())


def unfinished(paths: Sequence[Path]) -> list[Path]:
    """Runs that were begun and are not done."""
    begun = {config.parent.resolve() for path in paths for config in path.rglob("config.toml")}
    return sorted(
        path for path in begun if (path / "machine.json").exists() and not (path / "summary.json").exists()
    )


def sections(runs: Iterable[RunFolder]) -> list[Section]:
    """One for each task, or several where runs of a task had other data; in the order they come."""
    groups: dict[tuple[str, str], list[tuple[RunFolder, dict[str, Any]]]] = {}
    for run in runs:
        facts = run.read("data")
        groups.setdefault((facts["task"], facts["fingerprint"]), []).append((run, facts))
    twice = {task for task, n in Counter(task for task, _ in groups).items() if n > 1}
    return [
        _section(
            f"{task} (data {digest[:8]})" if task in twice else task, [run for run, _ in group], group[0][1]
        )
        for (task, digest), group in groups.items()
    ]


def _section(name: str, runs: Sequence[RunFolder], facts: dict[str, Any]) -> Section:
    groups: dict[str, list[tuple[Summary, RunFolder]]] = {}
    for run in runs:
        summary = run.summary()
        # Controls of a benchmark have the config of what they control; their folder's name tells them apart.
        key = json.dumps(
            [run.path.resolve().parent.name, *(summary["config"].get(field) for field in IDENTITY)]
        )
        groups.setdefault(key, []).append((summary, run))
    contestants = sorted((_contestant(group) for group in groups.values()), key=_rank)
    for contestant, own in zip(contestants, _names(contestants), strict=True):
        contestant.name = own
    return Section(name, facts, contestants[0].first["metric"], contestants)


def _contestant(group: Sequence[tuple[Summary, RunFolder]]) -> Contestant:
    """By seed; of two copies of a run the first one counts."""
    by_seed = {summary["seed"]: (summary, run) for summary, run in reversed(group)}
    seeds = sorted(by_seed)
    return Contestant(
        "", {seed: by_seed[seed][1] for seed in seeds}, {seed: by_seed[seed][0] for seed in seeds}
    )


def _rank(contestant: Contestant) -> tuple[bool, bool]:
    """Plain softmax first, its controls after it, the others as they come."""
    return contestant.config["loss"] not in PLAIN, bool(contestant.prefix)


def _names(contestants: Sequence[Contestant]) -> list[str]:
    """The contestant, what else tells it from the first one, and its folder's digest where that is not enough."""
    shown, first = (*LOSS_SETTINGS, "loss", "accumulation"), contestants[0].config
    names = []
    for each in contestants:
        given = {
            field: each.config.get(field)
            for field in OWN
            if field not in shown and each.config.get(field) != first.get(field)
        }
        words = [field if value is True else f"{field}={_short(value)}" for field, value in given.items()]
        names.append(
            " ".join([each.first["contestant"], *words, *([f"[{each.prefix}]"] if each.prefix else [])])
        )
    count = Counter(names)
    return [
        f"{name} {each.folder.rpartition('-')[2]}" if count[name] > 1 else name
        for name, each in zip(names, contestants, strict=True)
    ]


def _short(value: Any) -> str:
    return {"None": "default", "False": "no"}.get(str(value), str(value))


# ------------------------------------------------------------ rows


def rows(section: Section) -> list[dict[str, Any]]:
    """One row a contestant: figures, times and counts against the first."""
    base = section.contestants[0].summaries
    return [
        {
            **row(each.name, list(each.summaries.values()), base, section.metric),
            "folders": [str(run.path) for run in each.runs.values()],
        }
        for each in section.contestants
    ]


def settings(section: Section) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """What all runs had in common, and what each contestant had of its own."""
    configs = [each.config for each in section.contestants]
    common = {
        f: configs[0].get(f)
        for f in IDENTITY
        if all(config.get(f) == configs[0].get(f) for config in configs)
    }
    other = [f for f in IDENTITY if f not in common]
    own = [
        {"contestant": each.name, **{f: each.config.get(f) for f in other}} for each in section.contestants
    ]
    return {field: value for field, value in common.items() if value is not None}, own


def machines(section: Section) -> list[dict[str, Any]]:
    """Versions and machines, each combination once, with the number of runs."""
    seen = Counter(
        json.dumps(run.read("machine"), sort_keys=True)
        for each in section.contestants
        for run in each.runs.values()
    )
    return [{**json.loads(text), "runs": n} for text, n in seen.most_common()]
