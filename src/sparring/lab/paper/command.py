"""``sparring paper``: make a table or figure of the papers again."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sparring.lab.datasets import Where
from sparring.lab.errors import UserError
from sparring.lab.paper.page.results_page import write_page
from sparring.lab.paper.saved_records import SavedRecords
from sparring.lab.paper.setup_tables import SETUP_TABLES
from sparring.lab.paper.studies import STUDIES, Study, find_study, normal_name
from sparring.lab.paper.study_records import Results, errors_name, read_results, write_results
from sparring.lab.paper.study_runs import StudyRuns
from sparring.lab.paper.time_estimate import duration, estimate
from sparring.lab.runs.records import plain, write, write_json
from sparring.lab.table import Table, console

COMMITTED = Path("docs/results/paper")  # records in the repository


def paper(options: Any, flags: dict[str, Any]) -> Any:
    """Run the command, with ``flags`` for its runs. Returns what to print as JSON, if ``options.json``."""
    if not options.study:
        return _print_list()
    setup_tables = {normal_name([name]): name for name in SETUP_TABLES}
    if normal_name(options.study) in setup_tables:
        return _setup_table(setup_tables[normal_name(options.study)], options, flags)
    if options.study == ["page"]:
        if not options.records or not options.save:
            raise UserError("page makes README.md of records: --records FOLDER --save FOLDER")
        return write_page(Path(options.records), Path(options.save) / "README.md")
    if options.jobs < 1:
        raise UserError(f"jobs must be at least 1, got {options.jobs}")
    if flags.get("test") is False:
        raise UserError("the papers' figures are of the test set; leave out --no-test")
    if options.study != ["all"]:
        return _study(find_study(options.study), options, flags)
    outputs = []
    for study in STUDIES.values():
        try:
            output = _study(study, options, flags)
        except UserError as error:
            print(f"{study.name}: left out ({error})", file=sys.stderr)
        else:
            outputs += [] if output is None else [output]
    return outputs or None


def _print_list() -> None:
    for study in STUDIES.values():
        print(f"{study.name:<16} {study.about} ({', '.join(study.tasks)})")
    for name, setup_table in SETUP_TABLES.items():
        print(f"{name:<16} {setup_table.about} (no runs)")


def _setup_table(name: str, options: Any, flags: dict[str, Any]) -> Any:
    """A table that needs no runs."""
    about, make = SETUP_TABLES[name]
    table = make(options.size, Where.default(flags.get("data_dir")))
    if not options.json:
        table.print()
    if options.save:
        path = Path(options.save) / f"{name.replace(' ', '_')}.md"
        write(path, f"{table.markdown()}\nMade by `{_command()}`.\n")
        print(path, file=sys.stderr)
    return plain({"study": name, "about": about, **table.json()}) if options.json else None


def _study(study: Study, options: Any, flags: dict[str, Any]) -> Any:
    """A study's tables, printed and saved as the options say; nothing for a dry run."""
    results = _results(study, options, flags)
    if results is None:
        return None
    with errors_name(Path(options.records) if options.records else None):
        tables = study.tables(results)
        if not options.json:
            for table in tables:
                table.print()
        if options.save:
            for path in save(Path(options.save), study, results, tables):
                print(path, file=sys.stderr)
    facts = {"study": study.name, "about": study.about, "tables": [table.json() for table in tables]}
    return plain(facts) if options.json else None


def _results(study: Study, options: Any, flags: dict[str, Any]) -> Results | None:
    """Results from records, or from runs, the missing ones made first; None for a dry run."""
    if options.records:
        results = read_results(Path(options.records))
        if results.study != study.name:
            raise UserError(f"{options.records}: records of {results.study}, not of {study.name}")
        return results
    saved = SavedRecords(Path(options.save) if options.save else None)
    settings = {"scale": options.size, "seeds": options.seeds, "flags": flags}
    runs = StudyRuns(
        study, tasks=_names(options.tasks), methods=_names(options.methods), saved=saved, **settings
    )
    for message in runs.missing:
        print(message, file=sys.stderr)
    if options.dry_run:
        print_plan(runs, options.jobs)
        return None
    if runs.unfinished:
        n_runs, time = len(runs.unfinished), time_needed(runs, options.jobs)
        n_saved = sum(runs.is_saved(run) for run in runs.runs)
        if n_saved and not options.fresh:
            print(
                f"{study.name}: {n_saved} runs are in {options.save}, --fresh repeats them", file=sys.stderr
            )
        print(f"{study.name}: {n_runs} runs to do, {time}", file=sys.stderr)
    terminal = console(stderr=True)
    return runs.execute(options.jobs, terminal, fresh=options.fresh, anyway=options.resume_anyway)


def _names(text: str | None) -> list[str] | None:
    """Names separated by commas, each once; None for no text."""
    return list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip())) if text else None


def print_plan(runs: StudyRuns, jobs: int) -> None:
    """Print the runs, which are done, which have a committed record, and how long the others will take."""
    rows = []
    committed = SavedRecords(COMMITTED if COMMITTED.exists() else None)
    n_recorded = 0
    for task, group in runs.by_network().items():
        for name in dict.fromkeys(run.name for run in group):
            plans = [run.plan for run in group if run.name == name]
            config = plans[0].config
            label = config.label if config.speed == "off" else f"{config.label} speed={config.speed}"
            seeds = ", ".join(str(plan.config.seed) for plan in plans)
            of_name = [run for run in group if run.name == name]
            n_done = sum(runs.is_done(run) for run in of_name)
            others = [run for run in of_name if not runs.is_done(run) and runs.records_of(run, committed)]
            n_recorded += len(others)
            state = "done" if n_done == len(plans) else f"{n_done} of {len(plans)} done"
            if n_done == 0:
                state = f"{len(others)} of {len(plans)} recorded" if others else "never run"
            rows.append([task, name, label, seeds, state])
    title = f"{runs.study.name}: {runs.study.about}"
    Table(title, ["task", "method", "trained as", "seeds", ""], rows, n_text=5).print()
    for task, text in runs.descriptions.items():
        print(f"{task}, {text}")
    if runs.unfinished:
        more = ", and then two more for each on a part of the data" if runs.study.splits_samples else ""
        print(f"{len(runs.unfinished)} runs to do{more}: {time_needed(runs, jobs)}")
    else:
        print("all runs are done")
    if n_recorded:
        print(f"recorded: in {COMMITTED}, and --save {COMMITTED} does not repeat those {n_recorded}")


def time_needed(runs: StudyRuns, jobs: int) -> str:
    """How long the unfinished runs will take."""
    seconds = 0.0
    for group in runs.by_network().values():
        plans = [run.plan for run in group if not runs.is_done(run)]
        try:
            seconds += estimate(plans, jobs).seconds / min(jobs, len(plans)) if plans else 0.0
        except UserError as error:  # a network that is not available
            return f"unknown time ({error})"
    return f"{duration(seconds)} with --jobs {jobs}"


# ------------------------------------------------------------ files


def save(folder: Path, study: Study, results: Results, tables: Sequence[Table]) -> list[Path]:
    """Write the tables as Markdown and JSON, the charts as SVG, and the records that make them again."""
    stem = folder / study.name.replace(" ", "_")
    commit = _commit()
    for record in results.records:
        record.setdefault("commit", commit)
    text = "\n".join(table.markdown() for table in tables)
    origin = {
        "command": _command(),
        "commit": ", ".join(sorted({str(record["commit"]) for record in results.records})),
        "seeds": sorted({record["seed"] for record in results.records}),
        "machine": results.records[0]["machine"],
    }
    facts = {"study": study.name, **origin, "tables": [table.json() for table in tables]}
    paths = [stem.with_suffix(suffix) for suffix in (".md", ".json", ".jsonl")]
    write(paths[0], f"# {study.name}: {study.about}\n\n{text}\nMade by `{_command()}`.\n")
    write_json(paths[1], facts)
    write_results(paths[2], results)
    for name, chart in study.charts(results).items():
        from sparring.lab.report.charts import save as save_chart  # needs altair, which a table does not

        paths.append(save_chart(chart, stem.with_name(f"{stem.name}_{name}.svg")))
    return paths


def _command() -> str:
    return shlex.join(["sparring", *sys.argv[1:]])


def _commit() -> str | None:
    """The commit of this package if it is run from its repository."""

    def git(*words: str) -> str:
        command = ["git", *words]
        folder = Path(__file__).parent
        return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout.strip()

    try:
        git(
            "ls-files", "--error-unmatch", Path(__file__).name
        )  # not a repository around an installed package
        return git("rev-parse", "--short", "HEAD")
    except (OSError, subprocess.CalledProcessError):
        return None
