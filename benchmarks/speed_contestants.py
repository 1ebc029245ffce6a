"""Who takes part in the speed benchmark, and on what."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from controls import InfoBatchCard, RandomCard

from sparring.lab.runs.plan import Plan
from sparring.lab.runs.records import RunFolder


class Contestant(NamedTuple):
    name: str
    words: str  # as `sparring compare` takes them
    control: str = ""  # random, fewer or infobatch: made from what softmax and "everything on" took


class Setting(NamedTuple):
    """A task, how it is trained, and by whom."""

    task: str
    config: dict[str, Any]  # for every contestant
    n_seeds: int
    names: tuple[str, ...]  # of the contestants
    once: tuple[str, ...] = ()  # and of those that run with the first seed only
    speed: str = ""  # λ and most steps of AS-Speed: the paper's, where it has them
    multilabel: bool = False

    def seeds(self, name: str) -> range:
        return range(1 if name in self.once else self.n_seeds)


MINILM = {"model": "minilm", "freeze_embeddings": True}
CONTROLS = ("random", "fewer epochs", "InfoBatch")
SHORT = ("softmax", "AS-Softmax", "AS-Speed", "skip: rows", "everything on", *CONTROLS)

TASKS = {
    setting.task: setting
    for setting in (
        Setting(
            "clinc_oos",
            {**MINILM, "layers": 2, "lr": 5e-4, "epochs": 10, "batch_size": 32, "n_dev": 1000},
            3,
            (*SHORT, "rest"),
            once=("AS-Speed", "skip: rows", "rest", "fewer epochs", "InfoBatch"),
            speed=":lam=0.5:max_steps=5",
        ),
        Setting(
            "sst5",
            {**MINILM, "pooling": "mean", "layers": 2, "lr": 5e-4, "epochs": 7, "batch_size": 16},
            3,
            ("softmax", "AS-Softmax", "AS-Speed", "everything on", "random"),
            once=("AS-Softmax", "AS-Speed", "random"),
            speed=":lam=1.5:max_steps=4",
        ),
        Setting(
            "conll2003",
            {
                **MINILM,
                "layers": 1,
                "lr": 1e-3,
                "epochs": 5,
                "batch_size": 32,
                "n_train": 4000,
                "n_dev": 1000,
            },
            1,
            (
                *SHORT,
                "skip: micro",
                "skip: two-pass",
                "skip: auto",
                "checks without rest",
                "rest",
                "adaptive δ",
                "everything and AS-Speed",
            ),
            speed=":lam=0.5:max_steps=5",
        ),
        Setting(
            "reuters21578",
            {
                **MINILM,
                "layers": 1,
                "lr": 1e-3,
                "epochs": 5,
                "batch_size": 32,
                "max_length": 64,
                "n_train": 2000,
            },
            1,
            SHORT,
            speed=":lam=0.5:max_steps=2",
            multilabel=True,
        ),
    )
}
QUICK = TASKS["clinc_oos"]._replace(
    config={**TASKS["clinc_oos"].config, "layers": 1, "lr": 1e-3, "epochs": 5, "n_dev": 500},
    n_seeds=1,
    names=("softmax", "AS-Softmax", "AS-Speed", "everything on", "random", "fewer epochs"),
    once=(),
)


def contestants_of(setting: Setting) -> list[Contestant]:
    prefix = "multilabel-" if setting.multilabel else ""
    softmax, ours = f"{prefix}softmax:speed=off", f"{prefix}as-softmax"
    made = [
        Contestant("softmax", softmax),
        Contestant("AS-Softmax", f"{ours}:speed=off"),
        Contestant("AS-Speed", f"{ours}:speed=off:accumulation=adaptive{setting.speed}"),
        Contestant("skip: micro", f"{ours}:skip=micro"),
        Contestant("skip: rows", f"{ours}:skip=rows"),
        Contestant("skip: two-pass", f"{ours}:skip=two-pass"),
        Contestant("skip: auto", f"{ours}:skip=auto"),
        Contestant("checks without rest", f"{ours}:check=true:rest=false"),
        Contestant("rest", f"{ours}:rest=true"),
        Contestant("adaptive δ", f"{ours}:delta=adaptive"),
        Contestant("everything on", f"{ours}:speed=all"),
        Contestant("everything and AS-Speed", f"{ours}:speed=all:accumulation=adaptive{setting.speed}"),
        Contestant("random", softmax, "random"),
        Contestant("fewer epochs", softmax, "fewer"),
        Contestant("InfoBatch", softmax, "infobatch"),
    ]
    return [c for c in made if c.name in setting.names]


def control(contestant: Contestant, plan: Plan, done: dict[tuple[str, int], dict[str, Any]]) -> Plan:
    """A softmax run that leaves something out, in a folder of its own."""
    config = plan.config
    assert config.epochs is not None
    softmax, ours = done["softmax", config.seed], done["everything on", config.seed]
    n_samples = softmax["n_samples"]
    folder = RunFolder(
        plan.folder.path.parent.with_name(f"{contestant.control}-{plan.folder.path.parent.name}")
        / f"seed-{config.seed}"
    )
    if contestant.control == "fewer":
        epochs = min(config.epochs, math.ceil(config.epochs * ours["seconds"] / softmax["seconds"]))
        return replace(plan, folder=folder, config=config.replace(epochs=epochs))
    if contestant.control == "infobatch":
        return replace(plan, folder=folder, card=InfoBatchCard(n_samples, config.epochs, config.seed))
    full = softmax["seconds"] / config.epochs
    sizes = [min(n_samples, math.ceil(n_samples * epoch["seconds"] / full)) for epoch in epochs_of(ours)]
    return replace(plan, folder=folder, card=RandomCard(n_samples, sizes, config.seed))


def lines(summary: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """A journal of a run."""
    return [json.loads(line) for line in (Path(summary["folder"]) / f"{name}.jsonl").read_text().splitlines()]


def epochs_of(summary: dict[str, Any]) -> list[dict[str, Any]]:
    return lines(summary, "epochs")
