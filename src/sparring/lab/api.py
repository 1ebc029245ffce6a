"""The lab from Python: `compare`, `run`, `tune` and `predict`. The command line is a thin coat over it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from sparring.lab.errors import RunsDivergedError, UserError, option
from sparring.lab.readers.memory import write_data
from sparring.lab.results import Comparison, Failures, Tuning
from sparring.lab.runs.compare import contestants, plans_for, rows_of
from sparring.lab.runs.config import SETTINGS, Config
from sparring.lab.runs.jobs import remove, run_all
from sparring.lab.runs.plan import Plan, open_task, sizes
from sparring.lab.runs.predict import Predictor, find_run
from sparring.lab.runs.summaries import Summary
from sparring.lab.runs.tune import best_row, describe, grid, split_diverged, tuning_verdict
from sparring.lab.runs.tune import changes as changed_settings
from sparring.lab.table import console


def compare(
    data: Any,
    losses: Sequence[str] | None = None,
    seeds: int = 3,
    *,
    name: str = "data",
    jobs: int = 1,
    fresh: bool = False,
    resume_anyway: bool = False,
    progress: bool = True,
    config: str | Path | None = None,
    **settings: Any,
) -> Comparison:
    """Train several losses with the same seeds, and compare them. Runs that are done are not repeated.

    Args:
        data: The name of a task, a path, a pandas DataFrame, a list of dicts, or a ``datasets.Dataset``;
            also a dict of them with the keys train, dev and test. Missing splits are split off train.
        losses: Names, with settings of their own if needed, such as "as-softmax:delta=0.2"; softmax and
            AS-Softmax by default. The others are compared with the first.
        seeds: How many seeds.
        name: Name of data that has none: DataFrames, lists and Datasets.
        jobs: How many runs at the same time, each in a process of its own.
        fresh: Delete earlier runs and start again.
        resume_anyway: Continue unfinished runs although their settings or data have changed.
        progress: Show progress on standard error.
        config: A TOML file with settings.
        settings: Any setting of a run, such as ``model="minilm"``, ``epochs=3``, ``label_column="stars"`` or
            ``out="runs"``; see `sparring.lab.runs.config.Config`.

    Returns:
        The results. A run that diverged is in ``failures``.

    Raises:
        UserError: The data cannot be read, a setting does not fit, or all runs diverged.

    Example:
        >>> rows = [{"text": f"{word} {i}", "label": word} for i in range(20) for word in ("good", "bad")]
        >>> result = compare(rows, ["softmax", "as-softmax"], seeds=2, epochs=1)  # doctest: +SKIP
        >>> print(result.verdict)  # doctest: +SKIP
    """
    base = _config(data, name, config, settings)
    if "loss" in settings or (base.loss is not None and losses is None):
        raise UserError(f"compare takes {option('losses')}, several names, not {option('loss', base.loss)}")
    task, opened = open_task(base)
    defaults = [task.kind.loss_name(family) for family in ("softmax", "as-softmax")]
    names = defaults if losses is None else list(losses)
    configs = contestants(base, names, task, opened)
    plans = plans_for(configs, seeds, task, opened, strict=False)
    return _train(plans, jobs, fresh, resume_anyway, progress)


def run(
    data: Any,
    loss: str | None = None,
    seeds: int = 1,
    *,
    name: str = "data",
    jobs: int = 1,
    fresh: bool = False,
    resume_anyway: bool = False,
    progress: bool = True,
    config: str | Path | None = None,
    **settings: Any,
) -> Comparison:
    """Train one loss, by default the AS-Softmax that fits the data.

    The arguments are those of `compare`.

    Example:
        >>> result = run("digits", epochs=3, out="runs")  # doctest: +SKIP
        >>> result.predict(["seven.png"])  # doctest: +SKIP
    """
    base = _config(data, name, config, settings if loss is None else {**settings, "loss": loss})
    plans = plans_for([base], seeds, *open_task(base))
    return _train(plans, jobs, fresh, resume_anyway, progress)


def tune(
    data: Any,
    loss: str | None = None,
    values: Mapping[str, Iterable[Any]] | None = None,
    seeds: int = 1,
    *,
    name: str = "data",
    jobs: int = 1,
    fresh: bool = False,
    resume_anyway: bool = False,
    progress: bool = True,
    config: str | Path | None = None,
    **settings: Any,
) -> Tuning:
    """Choose a setting of a loss on dev. The test set is not used.

    Args:
        data: As in `compare`, like the arguments that are not named here.
        loss: The loss; by default the AS-Softmax that fits.
        values: Values to try by setting, instead of those of the papers: ``{"delta": [0.1, 0.3]}``.
        seeds: How many seeds for each point.

    Example:
        >>> tune("digits", values={"delta": [0.1, 0.3, 0.6]}, seeds=3).best  # doctest: +SKIP
        {'delta': 0.3}
    """
    base = _config(data, name, config, settings if loss is None else {**settings, "loss": loss})
    task, opened = open_task(base)
    loss_name = str(plans_for([base], 1, task, opened)[0].config.loss)
    tried = {setting: list(listed) for setting, listed in (values or {}).items()}
    points = grid(base.replace(test=False), loss_name, len(opened.labels), tried)
    plans = plans_for(points, seeds, task, opened)
    summaries, failures = _run(plans, jobs, fresh, resume_anyway, progress)
    finished, whole, diverged = split_diverged(points, summaries)
    rows = rows_of(whole, str(plans[0].config.metric))
    best = finished[rows.index(best_row(rows))].replace(test=base.test, loss=base.loss or loss_name)
    return Tuning(
        task=task.name,
        title=f"{task.name}: {base.loss or loss_name} on dev (test was not used)",
        rows=rows,
        points=finished,
        diverged=diverged,
        best=changed_settings(best, base),
        config=best,
        verdict=tuning_verdict([describe(point, base) for point in finished], rows),
        failures=failures,
        base=base,
    )


def predict(
    run: str | Path | Comparison,
    texts: Sequence[str],
    texts_b: Sequence[str] | None = None,
    *,
    trust_remote_code: bool = False,
) -> list[dict[str, Any]]:
    """Predict with the best model of finished runs.

    Args:
        run: The folder of a run or above several runs, of which the best on dev is used; or what `run` or
            `compare` returned.
        texts: Texts, or paths of files for images and sounds.
        texts_b: The second texts of pairs.
        trust_remote_code: Run code that comes with the model.

    Returns:
        For each text what is ``predicted`` and, with one label per sample, ``probabilities``. They are
        calibrated by the ``temperature`` that was fitted on dev; it is None for runs without one.
    """
    if isinstance(run, Comparison):
        return run.predict(texts, texts_b)
    return Predictor(find_run(Path(run)), trust_remote_code=trust_remote_code)(texts, texts_b)


# ------------------------------------------------------------ parts


def _config(data: Any, name: str, config: str | Path | None, settings: Mapping[str, Any]) -> Config:
    """The settings of a config file and of the arguments. Data in memory is written below the runs."""
    values = {setting: value for setting, value in settings.items() if value is not None}
    if unknown := [setting for setting in values if setting not in SETTINGS]:
        raise UserError(f"no setting named {', '.join(unknown)}; known: {', '.join(SETTINGS)}")
    if data is not None and not isinstance(data, (str, os.PathLike)):
        out = Path(values.get("out", SETTINGS["out"].default))
        data = write_data(data, out / name, name)
    if data is not None:
        values["task"] = os.fspath(data)
    return Config.read(Path(config) if config else None, values)


def _run(
    plans: Sequence[Plan], jobs: int, fresh: bool, anyway: bool, progress: bool
) -> tuple[list[Summary | None], Failures]:
    """Run what is not done. Return the summaries (None for a run that diverged) and the errors."""
    if jobs < 1:
        raise UserError(f"{option('jobs')} must be at least 1, got {jobs}")
    if fresh:
        remove([plan.folder for plan in plans], cpu=plans[0].config.device == "cpu")
    try:
        return [*run_all(plans, jobs, console(stderr=True) if progress else None, anyway=anyway)], []
    except RunsDivergedError as error:
        if all(summary is None for summary in error.summaries):
            raise
        return error.summaries, error.failures


def _train(plans: Sequence[Plan], jobs: int, fresh: bool, anyway: bool, progress: bool) -> Comparison:
    """Run the plans and put their results together."""
    config, task, data = plans[0].config, plans[0].task, plans[0].data
    n_done = 0 if fresh else sum(plan.folder.done for plan in plans)
    summaries, failures = _run(plans, jobs, fresh, anyway, progress)
    whole = [summary for summary in summaries if summary is not None]
    notes = [
        f"{summary['contestant']}: {note}"
        for summary in whole
        if summary["seed"] == config.seed
        for note in summary.get("notes") or []
    ]
    classes = f", {len(data.labels)} classes" if data.labels else ""
    counts = "/".join(f"{size:,}" for size in sizes(config, data))
    return Comparison(
        title=f"{task.name} ({task.kind}, {counts}{classes}), model {config.model}",
        rows=rows_of(whole, str(config.metric)),
        failures=failures,
        notes=[*(f"data: {note}" for note in data.notes), *notes],
        folders=[plan.folder.path for plan, summary in zip(plans, summaries, strict=True) if summary],
        n_done=n_done,
        facts={
            "task": task.name,
            "kind": task.kind.name,
            "source": data.source,
            "notes": list(data.notes),
            "model": config.model,
        },
    )
