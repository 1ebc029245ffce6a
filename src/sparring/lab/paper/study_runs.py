"""The runs of a study: which are needed, how they are planned and run, and Table 7's hard samples."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from rich.console import Console

from sparring.lab.datasets import get_task
from sparring.lab.errors import MissingDataError, UserError
from sparring.lab.models import wheels
from sparring.lab.paper import run_settings
from sparring.lab.paper.methods import HARD_SAMPLES, RANDOM_SAMPLES, Method
from sparring.lab.paper.saved_records import SavedRecords
from sparring.lab.paper.studies import Study, normal_name
from sparring.lab.paper.study_records import Record, Results, record
from sparring.lab.runs.config import Config
from sparring.lab.runs.jobs import remove, run_all
from sparring.lab.runs.plan import Plan, open_task, plan, sizes
from sparring.lab.runs.records import RunFolder
from sparring.lab.task import Data, Task

# settings that are chosen for one network
OF_THE_NETWORK = ("layers", "freeze_embeddings", "freeze_layers", "pooling", "lr")


@dataclass(frozen=True)
class StudyRun:
    """One run of a study: a method in a form of the study's settings."""

    method: Method
    plan: Plan
    form: str = ""

    @property
    def name(self) -> str:
        return self.method.printed(self.form)


class StudyRuns:
    """The runs of a study at a scale, on some tasks or on those of the paper that are available.

    ``flags`` are the user's settings, which take precedence over the scale's. ``methods`` names some methods,
    if not all are to run. Runs in ``saved`` are not repeated.
    """

    def __init__(
        self,
        study: Study,
        *,
        scale: str = "small",
        tasks: Sequence[str] | None = None,
        seeds: int = 3,
        flags: dict[str, Any],
        methods: Sequence[str] | None = None,
        saved: SavedRecords | None = None,
    ) -> None:
        if seeds < 1:
            raise UserError(f"seeds must be at least 1, got {seeds}")
        self.study = study
        self.scale = scale
        self.flags = flags
        self.methods = methods
        self.saved = saved or SavedRecords()
        self.runs: list[StudyRun] = []
        self.missing: list[str] = []  # messages about what was left out
        self.descriptions: dict[str, str] = {}
        for name in study.tasks if tasks is None else tasks:
            try:
                self._add_task(name, seeds)
            except MissingDataError as error:
                if tasks is not None:
                    raise
                self.missing.append(f"{name}: not here, left out ({error})")
        if not self.runs and methods is not None:
            raise UserError(f"{study.name} has no method {', '.join(methods)} here; without it, all are run")
        if not self.runs:
            raise UserError(
                f"{study.name}: none of its tasks is here; "
                "--data-dir says where data is, --tasks languages needs none"
            )

    def _add_task(self, name: str, seeds: int) -> None:
        descriptions = []
        for form, settings in self._forms(name).items():
            sparse = self.study.is_sparse
            config, task, data = base_config(name, self.scale, self.flags, sparse=sparse, form=settings)
            runs = runs_on(self.study, config, task, data, seeds, form, self.methods)
            if not runs:
                continue
            self.runs += runs
            text = run_settings.description(runs[0].plan.config, task, data)
            descriptions.append(f"{form}: {text}" if form else text)
        if descriptions:
            self.descriptions[get_task(name).name] = f"{self.scale} scale: {'; '.join(descriptions)}"

    def _forms(self, task: str) -> dict[str, dict[str, Any]]:
        """The study's forms whose network is installed; a network that the user names is the only form."""
        forms = {}
        for form, settings in self.study.forms(get_task(task), self.scale).items():
            if "model" in settings and "model" in self.flags:
                return {self.flags["model"]: {}}
            try:
                wheels.need(settings.get("model", ""))
                forms[form] = settings
            except UserError as error:
                self.missing.append(f"{task}, {form}: left out ({error})")
        return forms

    @property
    def unfinished(self) -> list[StudyRun]:
        return [run for run in self.runs if not self.is_done(run)]

    def is_done(self, run: StudyRun) -> bool:
        return run.plan.folder.done or self.is_saved(run)

    def is_saved(self, run: StudyRun) -> bool:
        """Whether its record, though not its folder, is there."""
        return not run.plan.folder.done and bool(self.records_of(run, self.saved))

    def records_of(self, run: StudyRun, saved: SavedRecords) -> list[Record]:
        """The saved records of a run, and of those that build on it; none if one of them is missing."""
        folder, seed = run.plan.folder, run.plan.config.seed
        known = saved.find(folder, seed, self.study.curves)
        parts = saved.on_parts(folder, seed) if self.study.splits_samples else []
        if known is None or (self.study.splits_samples and len(parts) < len(PARTS)):
            return []
        return [{**known, "study": self.study.name, "method": run.name}, *parts]

    def by_network(self) -> dict[str, list[StudyRun]]:
        """Runs of one network on one task together, by task, and by model where a task has several."""
        groups: dict[tuple[str, str], list[StudyRun]] = {}
        for run in self.runs:
            groups.setdefault((run.plan.task.name, run.plan.config.model), []).append(run)
        one_each = len({task for task, _ in groups}) == len(groups)
        return {task if one_each else f"{task}, {model}": runs for (task, model), runs in groups.items()}

    def execute(self, jobs: int, console: Console, *, fresh: bool = False, anyway: bool = False) -> Results:
        """Run what is not done (``fresh``: everything), then the runs that build on these."""
        runs = [run for run in self.runs if fresh or not self.is_saved(run)]
        if runs:
            self._run(runs, jobs, console, fresh, anyway)
        further = hard_and_random(runs) if self.study.splits_samples else []
        if further:
            self._run(further, jobs, console, fresh, anyway)
        study = self.study
        records = []
        for run in self.runs:
            if run.plan.folder.done:
                records.append(record(run.plan.folder, study.name, run.name, study.curves))
            else:
                records += self.records_of(run, self.saved)
        records += [record(run.plan.folder, study.name, run.name, study.curves) for run in further]
        return self.saved.merged(Results(study.name, records, self.descriptions))

    def _run(self, runs: Sequence[StudyRun], jobs: int, console: Console, fresh: bool, anyway: bool) -> None:
        plans = [run.plan for run in runs]
        if fresh:
            remove([plan.folder for plan in plans], cpu=plans[0].config.device == "cpu")
        run_all(plans, jobs, console, anyway=anyway)


def base_config(
    name: str, scale: str, flags: dict[str, Any], *, sparse: bool = False, form: dict[str, Any] | None = None
) -> tuple[Config, Task, Data]:
    """A task's config for all methods: the scale's settings, the form's, and the user's flags.

    Speed is off, as in the papers, and text tasks are evaluated often enough for Table 4.
    """
    task = get_task(name)
    settings = {**run_settings.settings_of(task, scale, sparse=sparse), **(form or {})}
    if "model" in flags:
        settings = {key: value for key, value in settings.items() if key not in OF_THE_NETWORK}
    config = Config(**{"task": task.name, "speed": "off", **settings, **flags})
    task, data = open_task(config)
    if config.eval_every is None and task.kind.reads_text and not task.kind.generates:
        resolved = plan(config, task, data, strict=False).config
        n_train, _, _ = sizes(resolved, data)
        assert resolved.epochs is not None
        assert resolved.batch_size is not None
        n_batches = resolved.epochs * -(-n_train // resolved.batch_size)
        config = config.replace(eval_every=max(1, -(-n_batches // run_settings.EVALUATIONS)))
    return config, task, data


def runs_on(
    study: Study,
    config: Config,
    task: Task,
    data: Data,
    n_seeds: int,
    form: str = "",
    only: Sequence[str] | None = None,
) -> list[StudyRun]:
    """The runs of a study on a task: seed by seed, methods in turn; ``only`` names some of them."""
    methods = study.methods_on(task, len(data.labels))
    if only is not None:
        names = {normal_name([name]) for name in only}
        methods = [method for method in methods if normal_name([method.name]) in names]
    return [
        StudyRun(method, plan(method.configure(seeded, task), task, data, strict=False), form)
        for seeded in (config.replace(seed=config.seed + i) for i in range(n_seeds))
        for method in methods
    ]


# ------------------------------------------------------------ Table 7


PARTS = (HARD_SAMPLES, RANDOM_SAMPLES)


def hard_and_random(runs: Sequence[StudyRun]) -> list[StudyRun]:
    """Softmax on the samples that each run's best model has not won, and on as many random ones."""
    further = []
    for run in runs:
        config = run.plan.config
        task, data = run.plan.task, run.plan.data
        hard = hard_samples(run.plan)
        n_train, _, _ = sizes(config, data)
        at_random = sorted(random.Random(config.seed).sample(range(n_train), len(hard)))
        for method, indices in zip(PARTS, (hard, at_random), strict=True):
            softmax = method.configure(config.replace(delta=None, warmup=None), task)
            base = plan(softmax, task, data)
            digest = hashlib.sha256(repr(indices).encode()).hexdigest()[:8]
            name = f"{method.name.split()[0].lower()}-{digest}-of-{run.plan.folder.path.parent.name}"
            seed_folder = base.folder.path
            folder = RunFolder(seed_folder.parent.with_name(name) / seed_folder.name)
            further.append(StudyRun(method, replace(base, folder=folder, chosen=tuple(indices))))
    return further


def hard_samples(plan: Plan) -> list[int]:
    """Indices of the training samples in which a finished run's best model leaves an opponent within δ."""
    from sparring.lab.runs.evaluate import Evaluator
    from sparring.lab.runs.plan import cut
    from sparring.losses.delta import delta_value

    config, data = plan.config, plan.data
    plan.folder.verify()
    model = data.kind.load_model(plan.folder.model, trust_remote_code=config.trust_remote_code)
    encoder = data.encoder(model.processor, top_k=plan.task.top_k)
    loss: Any = config.make_loss(1, schedule=False)
    outcome = Evaluator(data.kind, encoder, cut(data.train, config.n_train), loss).outcome(model.net)
    hard = [i for i, margin in enumerate(outcome.margins) if margin <= delta_value(loss.delta)]
    if not hard:
        raise UserError(f"{plan.folder.path}: every training sample is won; fewer epochs leave some")
    return hard
