"""Run folders gathered for a report: a section for each task, a contestant for runs that differ in seed only.

Only records are read. Nothing here trains or builds a network.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sparring.lab.errors import UserError
from sparring.lab.runs.records import RunFolder, find_runs
from sparring.lab.runs.summaries import Summary, row

PLAIN = ("softmax", "multilabel-softmax")  # what the others are compared with, if it was run
LOSS_SETTINGS = (
    "delta", "warmup", "tau", "epsilon", "k", "scale", "margin", "q", "gamma", "alpha", "beta",
    "concede", "concede_warmup",
)  # fmt: skip
NAMED = (*LOSS_SETTINGS, "loss", "accumulation")  # settings that a contestant's name holds
INCIDENTAL = (  # settings that do not change the result of a run, and the seed
    *("task", "seed", "data_dir", "out", "device", "threads", "tensorboard"),
    *("save_every", "on_divergence", "trust_remote_code", "missing"),
)


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
        """The settings that its runs have in common and that tell it from others."""
        return {name: value for name, value in self.first["config"].items() if name not in INCIDENTAL}

    @property
    def folder(self) -> str:
        """The name of the folder above the seeds."""
        return next(iter(self.runs.values())).path.resolve().parent.name

    @property
    def prefix(self) -> str:
        """What the folder's name has before the contestant's: a benchmark's word for a control."""
        label = self.first["contestant"].replace(" ", "-").replace("=", "")
        before, separator, _ = self.folder.partition(label)
        return before.strip("-") if separator else ""

    def scores(self, part: str, metric: str) -> dict[int, float]:
        """A metric on dev or test by seed, without the runs that lack it."""
        scores = {seed: (summary[part] or {}).get(metric) for seed, summary in self.summaries.items()}
        return {seed: score for seed, score in scores.items() if score is not None}


@dataclass
class Section:
    """The contestants on one task's data; the others are compared with the first one."""

    name: str
    facts: dict[str, Any]  # of data.json
    metric: str
    contestants: list[Contestant]

    @property
    def names(self) -> list[str]:
        return [contestant.name for contestant in self.contestants]

    @property
    def part(self) -> str:
        """Test if every contestant was scored on it, else dev."""
        return "test" if all(c.scores("test", self.metric) for c in self.contestants) else "dev"

    def rows(self) -> list[dict[str, Any]]:
        """One row for each contestant: metrics, and times and counts against the first."""
        base = self.contestants[0].summaries
        rows = []
        for contestant in self.contestants:
            folders = [str(run.path) for run in contestant.runs.values()]
            summaries = list(contestant.summaries.values())
            rows.append({**row(contestant.name, summaries, base, self.metric), "folders": folders})
        return rows

    def settings(self) -> dict[str, Any]:
        """The settings that all runs had in ``common``, and each contestant's ``own``."""
        configs = {contestant.name: contestant.config for contestant in self.contestants}
        first = next(iter(configs.values()))
        common = [name for name in first if all(c.get(name) == first[name] for c in configs.values())]
        return {
            "common": {name: first[name] for name in common if first[name] is not None},
            "own": [
                {"contestant": contestant, **{f: config.get(f) for f in first if f not in common}}
                for contestant, config in configs.items()
            ],
        }

    def machines(self) -> list[dict[str, Any]]:
        """Each combination of versions and machine, with its number of runs."""
        folders = [folder for contestant in self.contestants for folder in contestant.runs.values()]
        counts = Counter(json.dumps(folder.read("machine"), sort_keys=True) for folder in folders)
        return [{**json.loads(text), "runs": n} for text, n in counts.most_common()]


def find(paths: Sequence[Path]) -> list[RunFolder]:
    """The finished runs in these folders, each once, in the order given. Raises UserError without any."""
    runs: dict[Path, RunFolder] = {}
    for path in paths:
        if not path.exists():
            message = f"{path}: no such folder; sparring run and compare print the folders of their runs"
            raise UserError(message)
        for run in find_runs(path):
            runs.setdefault(run.path.resolve(), run)
    if not runs:
        hint = "sparring run TASK makes one"
        if n_started := len(unfinished(paths)):
            hint = f"{n_started} under way: the command that began a run finishes it"
        raise UserError(f"{', '.join(map(str, paths))}: no finished run in there ({hint})")
    return list(runs.values())


def unfinished(paths: Sequence[Path]) -> list[Path]:
    """Folders of runs that were begun and are not done."""
    folders = {config.parent.resolve() for path in paths for config in path.rglob("config.toml")}
    return sorted(
        path for path in folders if (path / "machine.json").exists() and not (path / "summary.json").exists()
    )


def sections(runs: Iterable[RunFolder]) -> list[Section]:
    """One section for each task, or several if runs of a task had different data."""
    groups: dict[tuple[str, str], list[RunFolder]] = {}
    facts: dict[tuple[str, str], dict[str, Any]] = {}
    for run in runs:
        data = run.read("data")
        key = (data["task"], data["fingerprint"])
        facts.setdefault(key, data)
        groups.setdefault(key, []).append(run)
    n_groups = Counter(task for task, _ in groups)
    return [
        _section(f"{key[0]} (data {key[1][:8]})" if n_groups[key[0]] > 1 else key[0], group, facts[key])
        for key, group in groups.items()
    ]


def _section(name: str, runs: Sequence[RunFolder], facts: dict[str, Any]) -> Section:
    contestants: dict[str, Contestant] = {}
    for run in runs:
        summary = run.summary()
        candidate = Contestant("", {summary["seed"]: run}, {summary["seed"]: summary})
        # A benchmark's controls have the config of what they control; the folder's name tells them apart.
        key = json.dumps([candidate.folder, candidate.config], sort_keys=True)
        contestant = contestants.setdefault(key, candidate)
        contestant.runs.setdefault(summary["seed"], run)  # of two copies of a run the first one counts
        contestant.summaries.setdefault(summary["seed"], summary)
    for contestant in contestants.values():
        contestant.runs = dict(sorted(contestant.runs.items()))
        contestant.summaries = dict(sorted(contestant.summaries.items()))
    ordered = sorted(contestants.values(), key=_rank)
    _name(ordered)
    return Section(name, facts, ordered[0].first["metric"], ordered)


def _rank(contestant: Contestant) -> tuple[bool, bool]:
    """Plain softmax first, its controls after it, the others in their order."""
    return contestant.config["loss"] not in PLAIN, bool(contestant.prefix)


def _name(contestants: Sequence[Contestant]) -> None:
    """Name contestants by what tells them from the first, and by the folder's digest if need be."""
    first = contestants[0].config
    for contestant in contestants:
        words = [contestant.first["contestant"]]
        for name, value in contestant.config.items():
            if name not in NAMED and value != first.get(name):
                words.append(name if value is True else f"{name}={_short(value)}")
        words += [f"[{contestant.prefix}]"] if contestant.prefix else []
        contestant.name = " ".join(words)
    count = Counter(contestant.name for contestant in contestants)
    for contestant in contestants:
        if count[contestant.name] > 1:
            contestant.name += f" {contestant.folder.rpartition('-')[2]}"


def _short(value: Any) -> str:
    return {"None": "default", "False": "no"}.get(str(value), str(value))
