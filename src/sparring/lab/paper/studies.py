"""The papers' tables and figures: which runs each needs, and what is made of them.

study ─► plans ─► runs ─► records ─► sheets and charts
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sparring.lab.datasets import UserError, get_task
from sparring.lab.paper import figures, scales, tables
from sparring.lab.paper import published as paper
from sparring.lab.paper.methods import ALL_NAMES, EVERYTHING, Method, method, methods
from sparring.lab.paper.results import Results
from sparring.lab.paper.tables import Sheet, named
from sparring.lab.runs.config import Config
from sparring.lab.runs.plan import Plan, open_task, plan, sizes
from sparring.lab.runs.records import RunFolder
from sparring.lab.task import Data, Task

GLUE = tuple(name for name in paper.GLUE["Softmax"] if name != "Avg")
HIGH_DIMENSIONAL = tuple(paper.SPARSE_DATASETS["train"])  # the tasks of the Sparse-Softmax paper
TEXTS = tuple(paper.SECONDS)  # the tasks of Tables 2 to 4
TEN_CLASSES = ("digits", "fsdd")  # of which to keep 20 would be softmax
BEYOND_TEXT = ("Softmax", "Sparse-Softmax", "AS-Softmax", EVERYTHING)


@dataclass(frozen=True)
class Entry:
    """One run of a study."""

    method: str
    plan: Plan


@dataclass(frozen=True)
class Study:
    """A table or a figure."""

    name: str
    about: str
    tasks: tuple[str, ...]  # the paper's
    methods: Callable[[Task], list[Method]]
    sheets: Callable[[Results], list[Sheet]]
    charts: Callable[[Results], dict[str, Any]] | None = None  # by name
    then: Callable[[Sequence[Entry]], list[Entry]] | None = (
        None  # further runs, planned once the first are done
    )
    curves: tuple[str, ...] = ()  # of its runs, that it needs: see results.CURVES
    forms: Callable[[Task, str], dict[str, dict[str, Any]]] = lambda *_: {
        "": {}
    }  # settings by name, at a scale: all methods in each


def _of(*names: str) -> Callable[[Task], list[Method]]:
    return lambda task: methods(names, task.name, task.kind)


def _varied(name: str, key: str, values: Sequence[float], *others: str) -> Callable[[Task], list[Method]]:
    """A method with one setting varied, by names such as ``k=10``; and others as they are."""

    def made(task: Task) -> list[Method]:
        points = [(value, method(name, task.name, task.kind, **{key: value})) for value in values]
        return [
            *methods(others, task.name, task.kind),
            *(Method(f"{key}={value:g}", each.words) for value, each in points if each is not None),
        ]

    return made


_some_k = _varied("Sparse-Softmax", "k", paper.SIZES, "Softmax")


def _large(task: Task) -> list[Method]:
    """Tables 3, 5 and 6 of the Sparse-Softmax paper: its method with k = 20, and beside it what came after."""
    k = {"k": 5 if task.name in TEN_CLASSES else 20}
    found = [
        method(name, task.name, task.kind, **(k if name == "Sparse-Softmax" else {})) for name in BEYOND_TEXT
    ]
    return [each for each in found if each is not None]


def _variant(task: Task) -> list[Method]:
    """Figure 5: a margin between logits, and the two lines it is compared with."""
    if task.kind.multilabel:
        raise UserError(f"figure5 is about losses with one target; {task.name} is multi-label")
    points = [Method(f"margin={margin}", f"as-logit:margin={margin}") for margin in paper.LOGIT_MARGINS]
    return [*methods(("Softmax", "AS-Softmax"), task.name, task.kind), *points]


def hard_and_random(entries: Sequence[Entry]) -> list[Entry]:
    """Table 7: softmax on the samples that AS-Softmax's best model has not won, and on as many random ones."""
    from sparring.lab.paper.hard import hard_samples

    further = []
    for entry in entries:
        made, config = entry.plan, entry.plan.config
        hard = hard_samples(made)
        n, _, _ = sizes(config, made.data)
        chosen = {
            "Hard samples": hard,
            "Random samples": sorted(random.Random(config.seed).sample(range(n), len(hard))),
        }
        loss = made.task.kind.loss_name("softmax")
        base = plan(config.replace(loss=loss, delta=None, warmup=None), made.task, made.data)
        for name, indices in chosen.items():
            path, digest = base.folder.path, hashlib.sha256(repr(indices).encode()).hexdigest()[:8]
            named = (
                path.parent.with_name(f"{name.split()[0].lower()}-{digest}-of-{made.folder.path.parent.name}")
                / path.name
            )
            further.append(Entry(name, replace(base, folder=RunFolder(named), chosen=tuple(indices))))
    return further


STUDIES = {
    study.name: study
    for study in (
        Study("table2", "quality of all methods", TEXTS, _of(*ALL_NAMES), tables.table2),
        Study(
            "table3",
            "training time against softmax",
            TEXTS,
            _of(*(name for name in ALL_NAMES if name != "T-Softmax")),
            tables.table3,
        ),
        Study(
            "table4",
            "correlation of loss and quality on dev",
            TEXTS,
            _of(*paper.CORRELATION),
            tables.table4,
            curves=("evaluations",),
        ),
        Study(
            "table7",
            "hard samples against random ones",
            ("sst5",),
            _of("AS-Softmax"),
            tables.table7,
            then=hard_and_random,
        ),
        Study("table8", "GLUE", GLUE, _of("Softmax", "AS-Softmax"), tables.table8),
        Study(
            "figure1",
            "won share over training",
            ("clinc_oos",),
            _of("AS-Softmax"),
            figures.won,
            figures.won_chart,
            curves=("steps",),
        ),
        Study(
            "figure2",
            "quality against δ",
            ("sst5", "conll2003"),
            _varied("AS-Softmax", "delta", paper.DELTAS, "Softmax"),
            figures.delta,
            figures.delta_chart,
        ),
        Study(
            "figure3",
            "quality and loss on dev over training",
            ("sst5",),
            _of(*paper.CORRELATION),
            figures.dev,
            figures.dev_chart,
            curves=("evaluations",),
        ),
        Study(
            "figure4",
            "distribution of p_margin on test",
            ("sst5",),
            _of("Softmax", "AS-Softmax"),
            figures.margins,
            figures.margins_chart,
            curves=("margins",),
        ),
        Study(
            "figure5",
            "the logit-margin variant against its margin",
            ("sst5",),
            _variant,
            figures.variant,
            figures.variant_chart,
        ),
        Study(
            "sparse table1",
            "Sparse-Softmax: text classification",
            HIGH_DIMENSIONAL,
            _some_k,
            tables.sparse_table1,
        ),
        Study(
            "sparse table3",
            "Sparse-Softmax: question generation",
            ("squad_qg",),
            _large,
            tables.sparse_table3,
        ),
        Study(
            "sparse table5",
            "Sparse-Softmax: summarisation",
            ("gigaword",),
            _large,
            tables.sparse_table5,
            forms=scales.beams,
        ),
        Study(
            "sparse table6",
            "Sparse-Softmax: images, from scratch and pre-trained",
            ("cifar100",),
            _large,
            tables.sparse_table6,
            forms=scales.networks,
        ),
        Study(
            "sparse figure1",
            "Sparse-Softmax: training loss",
            HIGH_DIMENSIONAL,
            _some_k,
            figures.losses,
            figures.losses_chart,
            curves=("steps",),
        ),
        Study(
            "sparse figure2",
            "Sparse-Softmax: micro F1 against k",
            ("iflytek", "clinc_oos"),
            _some_k,
            figures.sizes,
            figures.sizes_chart,
        ),
    )
}


def stem(words: Sequence[str]) -> str:
    """A name as it is looked for: ``table2`` is also ``table-2`` and ``Table 2``."""
    return "".join(words).lower().replace("-", "").replace(" ", "")


def find_study(words: Sequence[str]) -> Study:
    """``table2``, ``sparse table1``; also ``table-2`` and ``Figure 3``."""
    for study in STUDIES.values():
        if stem([study.name]) == stem(words):
            return study
    raise UserError(f'no table or figure "{" ".join(words)}"; there are {", ".join(STUDIES)}')


def base_config(
    name: str, scale: str, flags: dict[str, Any], *, sparse: bool = False, form: dict[str, Any] | None = None
) -> tuple[Config, Task, Data]:
    """A task's config at a scale, in a form of the study, with the user's flags on top: plain loops, as the papers had them, and looks at
    dev for Table 4."""
    task = get_task(name)
    given = {**scales.config_of(task, scale, sparse=sparse), **(form or {})}
    if "model" in flags:  # what was chosen for another network
        given = {
            key: value
            for key, value in given.items()
            if key not in ("layers", "freeze_embeddings", "pooling", "lr")
        }
    config = Config(**{"task": task.name, "speed": "off", **given, **flags})
    task, data = open_task(config)
    if config.eval_every is None and task.kind.reads_text and not task.kind.generates:
        filled = plan(config, task, data, strict=False).config
        n, _, _ = sizes(filled, data)
        assert filled.epochs is not None and filled.batch_size is not None  # noqa: PT018, resolved
        n_batches = filled.epochs * -(-n // filled.batch_size)
        config = config.replace(eval_every=max(1, -(-n_batches // scales.EVALUATIONS)))
    return config, task, data


def entries_of(
    study: Study, config: Config, task: Task, data: Data, n_seeds: int, form: str = ""
) -> list[Entry]:
    """The runs of a study on a task: seed by seed, methods in turn. ``form``: what is said of their settings."""
    n = len(data.labels)  # to keep as many classes as there are is softmax
    wanted = [
        each for each in study.methods(task) if not (each.name.startswith("k=") and int(each.name[2:]) >= n)
    ]
    return [
        Entry(
            named(each.name, form),
            plan(config.replace(seed=config.seed + i).with_contestant(each.words), task, data, strict=False),
        )
        for i in range(n_seeds)
        for each in wanted
    ]
