"""``sparring paper``: a table or figure of the papers, made again."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from sparring.cli.terminal import json_text
from sparring.lab.datasets import UserError, Where, get_task
from sparring.lab.errors import MissingDataError
from sparring.lab.models import wheels
from sparring.lab.paper import page, scales
from sparring.lab.paper.estimate import estimate, words
from sparring.lab.paper.listings import LISTINGS
from sparring.lab.paper.results import Results, made_from, read_results, record, write_results
from sparring.lab.paper.studies import STUDIES, Entry, Study, base_config, entries_of, find_study, stem
from sparring.lab.paper.tables import Sheet
from sparring.lab.runs.jobs import remove, run_all
from sparring.lab.runs.records import plain, write, write_json
from sparring.lab.table import Table, console


class Rerun:
    """A study at a scale on some tasks."""

    def __init__(
        self,
        study: Study,
        *,
        scale: str = "small",
        tasks: Sequence[str] | None = None,
        seeds: int = 3,
        flags: dict[str, Any],
    ) -> None:
        if seeds < 1:
            raise UserError(f"seeds must be at least 1, got {seeds}")
        self.study, self.entries, self.missing = study, list[Entry](), list[str]()
        self.words: dict[str, str] = {}
        for name in study.tasks if tasks is None else tasks:
            said: dict[str, str] = {}
            for form, own in self._forms(name, scale, flags):
                try:
                    config, task, data = base_config(
                        name, scale, flags, sparse=study.name.startswith("sparse"), form=own
                    )
                except MissingDataError as error:
                    if tasks is not None:  # asked for
                        raise
                    self.missing.append(f"{name}: not here, left out ({error})")
                    break
                entries = entries_of(study, config, task, data, seeds, form)
                self.entries += entries
                said[form] = scales.words(entries[0].plan.config, task, data)
            if said:
                self.words[get_task(name).name] = f"{scale} scale: " + "; ".join(
                    f"{form}: {text}" if form else text for form, text in said.items()
                )
        if not self.entries:
            raise UserError(
                f"{study.name}: none of its tasks is here; --data-dir says where data is, --tasks languages needs none"
            )

    def _forms(self, task: str, scale: str, flags: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
        """The study's forms of a task; those whose network is not installed are left out, and one that is asked for is the only one."""
        found = []
        for form, own in self.study.forms(get_task(task), scale).items():
            if "model" in own and "model" in flags:
                return [(flags["model"], {})]
            try:
                wheels.need(own.get("model", ""))
            except UserError as error:
                self.missing.append(f"{task}, {form}: left out ({error})")
            else:
                found.append((form, own))
        return found

    def by_task(self) -> dict[str, list[Entry]]:
        """Those of one network together."""
        found: dict[tuple[str, str], list[Entry]] = {}
        for entry in self.entries:
            found.setdefault((entry.plan.task.name, entry.plan.config.model), []).append(entry)
        return {
            task if len({t for t, _ in found}) == len(found) else f"{task}, {model}": each
            for (task, model), each in found.items()
        }

    def run(self, jobs: int, console: Console, *, fresh: bool = False, anyway: bool = False) -> Results:
        """Every run that is not there yet (``fresh``: all of them), then those that build on them."""
        self._begin(self.entries, fresh)
        run_all([entry.plan for entry in self.entries], jobs, console, anyway=anyway)
        entries = list(self.entries)
        if self.study.then is not None:
            entries += (further := self.study.then(self.entries))
            self._begin(further, fresh)
            run_all([entry.plan for entry in further], jobs, console, anyway=anyway)
        records = [
            record(entry.plan.folder, self.study.name, entry.method, self.study.curves) for entry in entries
        ]
        return Results(self.study.name, records, self.words)

    def _begin(self, entries: Sequence[Entry], fresh: bool) -> None:
        if fresh:
            remove([entry.plan.folder for entry in entries], cpu=entries[0].plan.config.device == "cpu")


def print_plan(rerun: Rerun, jobs: int) -> None:
    """The runs, what is done, and how long the others will take."""
    rows = []
    for task, entries in rerun.by_task().items():
        for name in dict.fromkeys(entry.method for entry in entries):
            plans = [entry.plan for entry in entries if entry.method == name]
            label = plans[0].config.label + (
                "" if plans[0].config.speed == "off" else f" speed={plans[0].config.speed}"
            )
            seeds = ", ".join(str(plan.config.seed) for plan in plans)
            done = sum(plan.folder.done for plan in plans)
            rows.append(
                (task, name, label, seeds, "done" if done == len(plans) else f"{done} of {len(plans)} done")
            )
    title = f"{rerun.study.name}: {rerun.study.about}"
    Table(title, ("task", "method", "trained as", "seeds", ""), rows, n_text=5).print()
    for task, text in rerun.words.items():
        print(f"{task}, {text}")
    more = ", and then two more for each on a part of the data" if rerun.study.then else ""
    print(
        f"{_n_todo(rerun)} runs to do{more}: {_time(rerun, jobs)}" if _n_todo(rerun) else "all runs are done"
    )


def _n_todo(rerun: Rerun) -> int:
    return sum(not entry.plan.folder.done for entry in rerun.entries)


def _time(rerun: Rerun, jobs: int) -> str:
    """How long those to do will take."""
    seconds = 0.0
    for entries in rerun.by_task().values():
        todo = [entry.plan for entry in entries if not entry.plan.folder.done]
        try:
            seconds += estimate(todo, jobs).seconds / min(jobs, len(todo)) if todo else 0.0
        except UserError as error:  # a network that is not here
            return f"nobody knows how long they take ({error})"
    return f"{words(seconds)} with --jobs {jobs}"


def print_sheets(sheets: Sequence[Sheet]) -> None:
    for sheet in sheets:
        Table(sheet.title, ("", *sheet.columns), sheet.rows(), sheet.notes).print()


def save(folder: Path, study: Study, results: Results, command: str) -> list[Path]:
    """Tables as Markdown and JSON, figures as SVG, and the records that make them again."""
    stem = folder / study.name.replace(" ", "_")
    sheets = study.sheets(results)
    made = [stem.with_suffix(".md"), stem.with_suffix(".json"), stem.with_suffix(".jsonl")]
    write(
        made[0],
        f"# {study.name}: {study.about}\n\n"
        + "\n".join(sheet.markdown() for sheet in sheets)
        + f"\nMade by `{command}`.\n",
    )
    write_json(
        made[1],
        {"study": study.name, **_origin(results, command), "sheets": [sheet.json() for sheet in sheets]},
    )
    write_results(made[2], results)
    if study.charts is None:
        return made
    from sparring.lab.report import charts  # altair, for those who draw

    for name, chart in study.charts(results).items():
        made.append(stem.with_name(f"{stem.name}_{name}.svg"))
        charts.save(chart, made[-1])
    return made


def _origin(results: Results, command: str) -> dict[str, Any]:
    """What made it, to make it again."""
    seeds = sorted({each["seed"] for each in results.records})
    return {"command": command, "commit": _commit(), "seeds": seeds, "machine": results.records[0]["machine"]}


def _commit() -> str | None:
    """Of this package, where it is run from its repository."""

    def git(*words: str) -> str:
        return subprocess.run(
            ["git", *words], cwd=Path(__file__).parent, capture_output=True, text=True, check=True
        ).stdout.strip()

    try:
        git(
            "ls-files", "--error-unmatch", Path(__file__).name
        )  # not somebody else's repository around an installed package
        return git("rev-parse", "--short", "HEAD")
    except (OSError, subprocess.CalledProcessError):
        return None


def paper(options: Any, flags: dict[str, Any]) -> None:
    """The command. ``flags``: of a run."""
    if not options.study:
        for study in STUDIES.values():
            print(f"{study.name:<16} {study.about} ({', '.join(study.tasks)})")
        for name, (about, _) in LISTINGS.items():
            print(f"{name:<16} {about} (no runs)")
        return
    if (name := stem(options.study)) in (listed := {stem([known]): known for known in LISTINGS}):
        _list(listed[name], options, flags)
        return
    if options.study == ["page"]:
        if not options.records or not options.save:
            raise UserError("page makes README.md of records: --records FOLDER --save FOLDER")
        page.make(Path(options.records), Path(options.save) / "README.md")
        return
    if options.jobs < 1:
        raise UserError(f"jobs must be at least 1, got {options.jobs}")
    if flags.get("test") is False:
        raise UserError("the papers' figures are of the test set; leave out --no-test")
    every = options.study == ["all"]
    outputs = []
    for study in STUDIES.values() if every else [find_study(options.study)]:
        try:
            results = _results(study, options, flags)
        except UserError as error:
            if not every:
                raise
            print(f"{study.name}: left out ({error})", file=sys.stderr)
            continue
        if results is not None:
            with made_from(Path(options.records) if options.records else None):
                outputs.append(_give(study, results, options))
    if options.json and outputs:
        print(json_text(plain(outputs if every else outputs[0])))


def _list(name: str, options: Any, flags: dict[str, Any]) -> None:
    """A table that needs no runs."""
    made = LISTINGS[name][1](options.size, Where.default(flags.get("data_dir")))
    if options.json:
        print(json_text({"study": name, "about": LISTINGS[name][0], **made.json()}))
    else:
        Table(made.title, made.columns, made.cells).print()
    if options.save:
        path = Path(options.save) / f"{name.replace(' ', '_')}.md"
        write(path, f"{made.markdown()}\nMade by `{shlex.join(['sparring', *sys.argv[1:]])}`.\n")
        print(path, file=sys.stderr)


def _results(study: Study, options: Any, flags: dict[str, Any]) -> Results | None:
    """From records, or from runs, those that are missing made first; None for a dry run."""
    if options.records:
        results = read_results(Path(options.records))
        if results.study != study.name:
            raise UserError(f"{options.records}: records of {results.study}, not of {study.name}")
        return results
    tasks = (
        list(dict.fromkeys(name.strip() for name in options.tasks.split(",") if name.strip()))
        if options.tasks
        else None
    )
    rerun = Rerun(study, scale=options.size, tasks=tasks, seeds=options.seeds, flags=flags)
    for text in rerun.missing:
        print(text, file=sys.stderr)
    if options.dry_run:
        print_plan(rerun, options.jobs)
        return None
    if _n_todo(rerun):
        print(f"{study.name}: {_n_todo(rerun)} runs to do, {_time(rerun, options.jobs)}", file=sys.stderr)
    return rerun.run(options.jobs, console(stderr=True), fresh=options.fresh, anyway=options.resume_anyway)


def _give(study: Study, results: Results, options: Any) -> dict[str, Any]:
    """Print it and write it, as asked; as JSON it comes back."""
    sheets = study.sheets(results)
    if not options.json:
        print_sheets(sheets)
    if options.save:
        for path in save(Path(options.save), study, results, shlex.join(["sparring", *sys.argv[1:]])):
            print(path, file=sys.stderr)
    return {"study": study.name, "about": study.about, "sheets": [sheet.json() for sheet in sheets]}
