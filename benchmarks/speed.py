"""The share of softmax's training time that is needed for the same accuracy, and simpler ways to save it.

    python benchmarks/speed.py                   four tasks, three seeds on the first two: three hours
    python benchmarks/speed.py --tasks clinc_oos one of them
    python benchmarks/speed.py --quick           clinc_oos, fewer epochs and contestants: ten minutes

Every contestant trains the same network from the same seeds, on one thread, two contestants at a time; they
take turns, seed by seed. Runs are kept in --out: interrupted runs are resumed, finished ones are not
repeated. Seconds are of training alone, without evaluations and checkpoints. Table, JSON and chart go to
docs/results/speed (--quick prints only, unless --results names a folder).

Controls: `random` trains softmax on as many random samples in each epoch as fit into the time that
"everything on" took for it; `fewer epochs` gives softmax the whole time of "everything on", rounded up to
epochs; `InfoBatch` is the published rule in our own version.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any, NamedTuple

from report import ROOT, provenance, write
from rich.console import Console
from speed_contestants import QUICK, TASKS, Contestant, Setting, contestants_of, control
from speed_report import chart, row_of, table_of

from sparring.files import write_text
from sparring.lab.errors import UserError
from sparring.lab.runs.config import Config
from sparring.lab.runs.jobs import run_all
from sparring.lab.runs.plan import Plan, open_task, plan

RESULTS = ROOT / "docs" / "results" / "speed"


class Entry(NamedTuple):
    """A contestant's run with one seed."""

    contestant: Contestant
    plan: Plan


def run_task(
    setting: Setting, names: list[str] | None, out: str, jobs: int, console: Console
) -> dict[str, Any]:
    """All contestants of a task, controls last, since they need to know how long the others took."""
    base = Config(setting.task, out=out, threads=1, **setting.config)
    task, data = open_task(base)
    there = contestants_of(setting)
    chosen = [c for c in there if names is None or c.name in {"softmax", *names}]
    if any(c.control for c in chosen):
        chosen = [c for c in there if c in chosen or c.name == "everything on"]

    def entries(controls: bool) -> list[Entry]:
        """Seed by seed, contestants in turn: what slows the machine down for a while slows all of them."""
        turns = [
            (seed, c)
            for seed in range(setting.n_seeds)
            for c in chosen
            if seed in setting.seeds(c.name) and bool(c.control) == controls
        ]
        plans = [
            (c, plan(base.replace(seed=seed).with_contestant(c.words), task, data, strict=False))
            for seed, c in turns
        ]
        return [Entry(c, control(c, made, done) if controls else made) for c, made in plans]

    done: dict[tuple[str, int], dict[str, Any]] = {}
    for controls in (False, True):
        turn = entries(controls)
        summaries = run_all([each.plan for each in turn], jobs, console)
        done |= {(each.contestant.name, s["seed"]): s for each, s in zip(turn, summaries, strict=True)}
    rows = [row_of(c, [done[c.name, seed] for seed in setting.seeds(c.name)], done) for c in chosen]
    sizes = {"train": len(data.train), "dev": len(data.dev), "test": len(data.test)}
    return {
        "task": setting.task,
        "settings": setting.config,
        "sizes": sizes,
        "classes": len(data.labels),
        "rows": rows,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="ten minutes")
    parser.add_argument("--tasks", help=f"some of {', '.join(TASKS)}, with commas between")
    parser.add_argument(
        "--contestants", help="some of the contestants by name, with commas between; softmax is always there"
    )
    parser.add_argument("--seeds", type=int, help="seeds of every task")
    parser.add_argument("--jobs", type=int, default=2, help="runs side by side, one thread each")
    parser.add_argument("--out", default="runs/speed", help="run folders")
    parser.add_argument("--results", type=Path, help="folder of table, JSON and chart")
    args = parser.parse_args()
    console = Console(width=190)
    settings = [QUICK] if args.quick else list(TASKS.values())
    if args.tasks:
        wanted = args.tasks.split(",")
        if unknown := [name for name in wanted if name not in TASKS]:
            parser.error(f"no task {', '.join(unknown)} here; there are {', '.join(TASKS)}")
        settings = [TASKS[name] for name in wanted]
    if args.seeds:
        settings = [each._replace(n_seeds=args.seeds) for each in settings]
    names = args.contestants.split(",") if args.contestants else None
    known = {c.name for setting in settings for c in contestants_of(setting)}
    if names and (unknown := [name for name in names if name not in known]):
        parser.error(f"no contestant {', '.join(unknown)} here; there are {', '.join(sorted(known))}")
    results = args.results or (None if args.quick else RESULTS)
    facts = provenance(__file__, sys.argv[1:], threads=1)
    for setting in settings:
        try:
            result = run_task(setting, names, args.out, args.jobs, console)
        except UserError as error:  # data that is not there, say
            sys.exit(f"speed.py: {setting.task}: {error}")
        table_of(result).print(console)
        if results is not None:
            write({**facts, "seed": list(range(setting.n_seeds)), **result}, results / f"{setting.task}.json")
            write_text(results / f"{setting.task}.md", table_of(result).markdown())
            chart(result, results / f"{setting.task}.svg")


if __name__ == "__main__":
    main()
