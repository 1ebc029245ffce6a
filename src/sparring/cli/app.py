"""The command line: sparring losses | tasks | run | compare | tune | paper | predict | report.

Results go to standard output, progress and remarks to standard error, and those only on a terminal. Exit codes: 0 done, 1 a mistake
that the message names, 2 a wrong command line, 130 interrupted (the same command goes on).
"""

from __future__ import annotations

import argparse
import inspect
import os
import shlex
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparring import __version__, list_losses
from sparring.cli.flags import FIELDS, add_config, add_paper, config_of, flags_of
from sparring.cli.terminal import check_arguments, input_lines, json_text, make_streams_safe
from sparring.files import CheckpointWarning
from sparring.lab.errors import RunsDivergedError, UserError
from sparring.lab.runs.config import OWN, Config, loss_settings
from sparring.losses.base import find_loss

if TYPE_CHECKING:
    from sparring.lab.datasets import Data, Task
    from sparring.lab.runs.plan import Plan

NEEDED = (
    "accelerate",
    "pycountry",
    "rich",
    "scipy",
    "seqeval",
    "sklearn",
    "tokenizers",
    "tomli",
    "transformers",
)  # the extra [lab]
DRAWING = ("altair", "jinja2", "vl_convert")  # the extra [report]
EXAMPLES = """examples:
  sparring tasks                                              what there is to train on
  sparring run digits                                         train with AS-Softmax, a few seconds
  sparring run reviews.csv --loss as-softmax --delta 0.3      a file of your own
  sparring compare languages --losses softmax,as-softmax --seeds 3
  sparring tune sst5 --loss as-softmax --model minilm --layers 2
  sparring predict runs/languages "Königreich Bayern"
  sparring report runs/languages -o report.html               everything on one page
  sparring paper table2 --tasks languages --jobs 2            a table of the papers, ours beside the published
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code. A user's mistake is one line on standard error."""
    make_streams_safe()  # before --help, which has Greek letters
    words = sys.argv[1:] if arguments is None else arguments
    try:
        check_arguments(words)
        options = build_parser().parse_args(words)
        with _short_warnings():
            return int(options.command(options) or 0)
    except KeyboardInterrupt:
        print("interrupted; the same command goes on where it stopped", file=sys.stderr)
        return 130
    except BrokenPipeError:  # head, less: whoever read has seen enough
        sys.stderr.close()
        return 0
    except ModuleNotFoundError as error:
        if error.name in DRAWING:
            return _fail(UserError(f"charts need {error.name}: pip install 'sparring[report]'"))
        if error.name in NEEDED:
            return _fail(UserError(f"the lab needs {error.name}: pip install 'sparring[lab]'"))
        raise
    except UserError as error:
        return _fail(error)
    except MemoryError:
        return _fail(UserError("not enough memory; try --n-train, a smaller --batch-size or a smaller file"))
    except OSError as error:  # a folder that cannot be written, a full disk
        return _fail(UserError(f"{error.filename}: {error.strerror}") if error.filename else error)


@contextmanager
def _short_warnings() -> Iterator[None]:
    """What happened to a checkpoint is one line on standard error, without the place in the code that says so."""
    before = warnings.formatwarning

    def shown(message: Any, category: type[Warning], *place: Any, **more: Any) -> str:
        return (
            f"sparring: {message}\n"
            if issubclass(category, CheckpointWarning)
            else before(message, category, *place, **more)
        )

    warnings.formatwarning = shown
    try:
        yield
    finally:
        warnings.formatwarning = before


def _fail(error: BaseException) -> int:
    print(f"sparring: {error}", file=sys.stderr)
    return 1


# ------------------------------------------------------------ the commands


def losses(options: argparse.Namespace) -> None:
    rows: list[dict[str, Any]] = []
    for name in list_losses():
        cls, settings = find_loss(name), loss_settings(name)
        about = (inspect.getdoc(cls) or "").split("\n\n")[0].replace("\n", " ")
        rows.append({"name": name, "class": cls.__name__, "settings": settings, "about": about})
    if options.json:
        _print_json(rows)
        return
    for row in rows:
        print(
            f"{row['name']:<26} {row['class']}({', '.join(f'{k}={v}' for k, v in row['settings'].items())})\n    {row['about']}"
        )


def tasks(options: argparse.Namespace) -> None:
    from sparring.lab import show
    from sparring.lab.datasets import Where, list_tasks, survey

    rows = survey(list_tasks(), Where.default(options.data_dir))
    if options.json:
        _print_json(rows)
        return
    cells = [
        (
            row["name"],
            row["kind"],
            _sizes(row["sizes"]),
            "–" if row["classes"] is None else str(row["classes"]),
            row["where"],
            row["about"],
        )
        for row in rows
    ]
    columns = ("task", "kind", "train/dev/test", "classes", "where", "about")
    show.console().print(show.table("Tasks", columns, cells, left=6))
    show.console().print(
        "Not here: see --data-dir and SPARRING_DATA. A CSV, TSV or JSONL file or a folder of your own is a task too.",
        style="dim",
    )


def run(options: argparse.Namespace) -> int:
    from sparring.lab.runs.compare import plans_for

    config = config_of(options)
    task, data = _open(config)
    return _train(options, config, task, data, plans_for([config], options.seeds, task, data))


def compare(options: argparse.Namespace) -> int:
    from sparring.lab.runs.compare import contestants, plans_for

    config = config_of(options)
    if config.loss is not None and (options.loss is not None or options.losses is None):
        raise UserError(f"compare takes --losses, names with commas between, not --loss {config.loss}")
    task, data = _open(config)
    own = [task.kind.loss_name(family) for family in ("softmax", "as-softmax")]
    names = own if options.losses is None else [name for name in options.losses.split(",") if name.strip()]
    configs = contestants(config, names, task, data)
    return _train(options, config, task, data, plans_for(configs, options.seeds, task, data, strict=False))


def tune(options: argparse.Namespace) -> int:
    from sparring.lab import show
    from sparring.lab.runs import tune
    from sparring.lab.runs.compare import plans_for, rows_of

    config = config_of(options)
    task, data = _open(config)
    loss = str(plans_for([config], 1, task, data)[0].config.loss)
    points = tune.grid(config.replace(test=False), loss, len(data.labels), tune.parse_values(options.values))
    plans = plans_for(points, options.seeds, task, data)
    summaries, failures = _summaries(options, plans)
    points, whole, diverged = tune.part(points, summaries)
    rows = rows_of(whole, str(plans[0].config.metric))
    best = tune.best(rows)
    chosen = points[rows.index(best)].replace(test=config.test, loss=config.loss or loss)
    command = shlex.join(["sparring", "run", config.task, *chosen.flags()])
    if options.json:
        settings = {
            name: getattr(chosen, name) for name in OWN if getattr(chosen, name) != getattr(config, name)
        }
        facts = {
            "task": task.name,
            "metric": best["metric"],
            "rows": rows,
            "failed": failures,
            "best": settings,
            "command": command,
        }
        _print_json(facts)
        return _tell_failures(failures)
    cells = [
        (
            tune.describe(point, config),
            show.mean_and_spread(row["dev"]),
            show.percent(row["won_share"]),
            "best" if row is best else "",
        )
        for point, row in zip(points, rows, strict=True)
    ]
    cells += [(tune.describe(point, config), "diverged", "–", "") for point in diverged]
    columns = ("", f"dev {best['metric'].replace('_', ' ')} %", "won %", "")
    show.console().print(
        show.table(f"{task.name}: {config.loss or loss} on dev (test was not looked at)", columns, cells)
    )
    print(f"the best: {command}")
    return _tell_failures(failures)


def paper(options: argparse.Namespace) -> None:
    from sparring.lab.paper.rerun import paper
    from sparring.lab.runs.config import typed

    paper(options, {name: typed(name, value, "") for name, value in flags_of(options).items()})


def predict(options: argparse.Namespace) -> None:
    from sparring.lab.runs.predict import Predictor, find_run

    texts = options.text or list(input_lines())
    if options.pair and len(options.pair) != len(texts):
        raise UserError(f"as many --pair as texts: got {len(options.pair)} and {len(texts)}")
    folder = find_run(Path(options.run))
    found = Predictor(folder, trust_remote_code=options.trust_remote_code)(texts, options.pair or None)
    if options.json:
        _print_json([{**one, "run": str(folder.path)} for one in found])
        return
    if sys.stderr.isatty():
        print(f"by {folder.path}", file=sys.stderr)
    for one in found:
        likely = "".join(f"  {label} {p:.2f}" for label, p in one.get("probabilities", {}).items())
        predicted = one["predicted"]
        if "tokens" in one:
            predicted = (
                [" ".join(f"{token}/{tag}" for token, tag in zip(one["tokens"], predicted, strict=True))]
                if predicted
                else []
            )
        print(
            (", ".join(predicted) or "(none)") if isinstance(predicted, list) else predicted,
            likely,
            sep="\t" if likely else "",
        )


def report(options: argparse.Namespace) -> None:
    from sparring.lab.report.report import make

    made = make([Path(run) for run in options.runs], Path(options.output), options.title)
    _print_json(made) if options.json else print(
        f"{made['report']}: {made['n_runs']} run(s), {made['bytes'] / 1e6:.1f} MB"
    )


# ------------------------------------------------------------ what they share


def _open(config: Config) -> tuple[Task, Data]:
    from sparring.lab.runs.plan import open_task

    return open_task(config)


def _summaries(
    options: argparse.Namespace, plans: Sequence[Plan]
) -> tuple[list[dict[str, Any] | None], list[dict[str, str]]]:
    """Run what is not done. Summaries of all runs, None for those that diverged, and what is known of these."""
    from sparring.lab import show
    from sparring.lab.runs.jobs import remove, run_all

    if options.jobs < 1:
        raise UserError(f"jobs must be at least 1, got {options.jobs}")
    if options.fresh:
        remove([plan.folder for plan in plans], cpu=plans[0].config.device == "cpu")
    try:
        return [*run_all(plans, options.jobs, show.console(stderr=True), anyway=options.resume_anyway)], []
    except RunsDivergedError as error:
        if all(summary is None for summary in error.summaries):
            raise
        return error.summaries, error.failures


def _tell_failures(failures: Sequence[dict[str, str]]) -> int:
    """One line for each run that diverged; the exit code."""
    for failure in failures:
        _fail(UserError(failure["error"]))
    return 1 if failures else 0


def _train(options: argparse.Namespace, config: Config, task: Task, data: Data, plans: Sequence[Plan]) -> int:
    from sparring.lab import show
    from sparring.lab.runs.compare import rows_of
    from sparring.lab.runs.plan import sizes as plan_sizes

    n_done = sum(plan.folder.done for plan in plans) if not options.fresh else 0
    summaries, failures = _summaries(options, plans)
    rows = rows_of([summary for summary in summaries if summary is not None], str(plans[0].config.metric))
    if os.environ.get("RANK", "0") != "0":  # of several processes under torchrun the first one speaks
        return 1 if failures else 0
    if options.json:
        facts = {
            "task": task.name,
            "kind": task.kind.name,
            "source": data.source,
            "notes": list(data.notes),
            "model": config.model,
        }
        _print_json({**facts, "rows": rows, "failed": failures})
        return _tell_failures(failures)
    console = show.console()
    sizes = _sizes(plan_sizes(config, data))
    classes = f", {len(data.labels)} classes" if data.labels else ""
    title = f"{task.name} ({task.kind}, {sizes}{classes}), model {config.model}"
    console.print(show.comparison(title, rows, [failure["run"] for failure in failures]))
    console.print(show.LEGEND, style="dim")
    for note in data.notes:
        print(f"data: {note}")
    if n_done:
        print(f"{n_done} of {len(plans)} runs were there already (--fresh runs them again)")
    for folder in sorted({str(plan.folder.path.parent) for plan in plans}):
        print(f"runs: {folder}")
    return _tell_failures(failures)


def _sizes(sizes: Sequence[int] | None) -> str:
    return "/".join(f"{n:,}" for n in sizes) if sizes else "–"


def _print_json(value: Any) -> None:
    from sparring.lab.runs.records import plain

    print(json_text(plain(value)))


# ------------------------------------------------------------ the flags


def build_parser() -> argparse.ArgumentParser:
    form: dict[str, Any] = {"formatter_class": argparse.RawDescriptionHelpFormatter}
    about = "Losses that train only against strong opponents: train, compare and tune classifiers."
    parser = argparse.ArgumentParser("sparring", description=about, epilog=EXAMPLES, **form)
    parser.add_argument("--version", action="version", version=f"sparring {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    def command(name: str, does: Any, help: str, example: str) -> argparse.ArgumentParser:
        about = f"{help[0].upper()}{help[1:]}."
        made = commands.add_parser(
            name, help=help, description=about, epilog=f"examples:\n{example}", allow_abbrev=False, **form
        )
        made.set_defaults(command=does)
        made.add_argument("--json", action="store_true", help="machine-readable output")
        return made

    command("losses", losses, "list the losses and their settings", "  sparring losses --json")
    made = command(
        "tasks",
        tasks,
        "list the tasks: what is here, sizes, where from",
        "  sparring tasks --data-dir ~/data",
    )
    made.add_argument("--data-dir", help=FIELDS["data_dir"].metadata["help"])
    made = command("run", run, "train one loss on a task", RUN)
    add_config(made)
    made = command("compare", compare, "train several losses with the same seeds: one table", COMPARE)
    made.add_argument(
        "--losses",
        help="names with commas between, each with settings if need be: as-softmax:delta=0.2:skip=off",
    )
    add_config(made)
    made = command("tune", tune, "choose a loss's setting on dev, never on test", TUNE)
    made.add_argument(
        "--values",
        action="append",
        default=[],
        metavar="NAME=V,V",
        help="values to try instead of the papers'",
    )
    add_config(made)
    made = command(
        "paper", paper, "make a table or figure of the papers again, the published numbers beside ours", PAPER
    )
    add_paper(made)
    made = command(
        "predict", predict, "label texts, or write new ones, with a finished run's best model", PREDICT
    )
    made.add_argument("run", metavar="RUN", help="the folder of a run, or one above several: the best on dev")
    made.add_argument("text", metavar="TEXT", nargs="*", help="texts; none: the lines of standard input")
    made.add_argument(
        "--trust-remote-code", action="store_true", help=FIELDS["trust_remote_code"].metadata["help"]
    )
    made.add_argument(
        "--pair", action="append", metavar="TEXT", help="the second text of a pair, one for each text"
    )
    made = command(
        "report", report, "draw everything that runs left on one page, which needs no network", REPORT
    )
    made.add_argument("runs", metavar="RUN", nargs="+", help="folders of runs, or ones above several")
    made.add_argument("-o", "--output", default="report.html", help="the page (default: report.html)")
    made.add_argument("--title", help="of the page (default: the tasks)")
    return parser


RUN = """  sparring run digits
  sparring run clinc_oos --loss as-softmax --delta 0.3 --speed all --model minilm --layers 2 --seeds 3 --jobs 2
  sparring run reviews.csv --text-column review --label-column stars
  sparring run --config runs/digits/.../seed-0/config.toml --lr 1e-3"""
COMPARE = """  sparring compare languages --losses softmax,as-softmax --seeds 3 --jobs 2
  sparring compare conll2003 --model minilm --losses softmax,as-softmax:delta=0.35:warmup=0.25,as-speed"""
TUNE = """  sparring tune sst5 --loss as-softmax
  sparring tune clinc_oos --loss sparse-softmax --values k=5,10,20 --seeds 3"""
PAPER = """  sparring paper
  sparring paper table2 --tasks clinc_oos,sst5 --seeds 1 --dry-run
  sparring paper figure2 --tasks languages --jobs 2 --save figures
  sparring paper sparse table1 --scale full --mixed-precision bf16"""
PREDICT = """  sparring predict runs/languages "Königreich Bayern"
  sparring predict runs/cifar100 cat.png dog.jpg
  sparring predict runs/rte "A man sleeps." --pair "Nobody sleeps."
  cat lines.txt | sparring predict runs/mine --json"""
REPORT = """  sparring report runs/languages
  sparring report runs/sst5 runs/clinc_oos -o results.html --title "Two tasks, three seeds" --json"""
