"""The command line: parse the arguments, import the command's module and run it.

Results go to standard output. Progress and remarks go to standard error, and only on a terminal. Exit
codes: 0 done, 1 an error that the message explains, 2 a wrong command line, 130 interrupted.
"""

import argparse
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from sparring import __version__
from sparring.cli.terminal import check_arguments, fail, make_streams_safe
from sparring.files import CheckpointWarning
from sparring.lab.errors import UserError, name_flags

COMMANDS = {  # each is a module of this package, or in `ELSEWHERE`
    "losses": "list the losses and their settings",
    "tasks": "list the tasks: availability, sizes and source",
    "run": "train one loss on a task",
    "compare": "train several losses with the same seeds: one table",
    "tune": "choose a loss's setting on dev, never on test",
    "paper": "reproduce a table or figure of the papers, with the published numbers beside it",
    "predict": "label texts, or generate new ones, with the best model of a finished run",
    "suspects": "list the training samples whose labels look wrong, and write a cleaned file",
    "doctor": "check the kernels on this machine, and measure them",
    "report": "draw the results of runs on one page, which needs no network",
}
ELSEWHERE = {"doctor": "sparring.diagnosis.command"}
LAB = "accelerate pycountry pydantic rich scipy seqeval sklearn tokenizers tomli transformers"
REPORT = "altair jinja2 vl_convert"  # modules that the extras of the package install
EXAMPLES = """examples:
  sparring tasks                                              list the tasks
  sparring run digits                                         train with AS-Softmax, a few seconds
  sparring run reviews.csv --loss as-softmax --delta 0.3      a file of your own
  sparring compare languages --losses softmax,as-softmax --seeds 3
  sparring tune sst5 --loss as-softmax --model minilm --layers 2
  sparring predict runs/languages "Königreich Bayern"
  sparring suspects runs/reviews --drop clean.csv             wrong labels, by a finished run
  sparring report runs/languages -o report.html               everything on one page
  sparring paper table2 --tasks languages --jobs 2            a table of the papers, our numbers beside theirs
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return the exit code. An error of the user's is one line on standard error."""
    make_streams_safe()  # before --help, which has Greek letters
    words = sys.argv[1:] if arguments is None else arguments
    try:
        check_arguments(words)
        options = build_parser(words).parse_args(words)
        with _short_warnings(), name_flags():
            return int(options.command(options) or 0)
    except KeyboardInterrupt:
        print("interrupted; the same command goes on where it stopped", file=sys.stderr)
        return 130
    except BrokenPipeError:  # head or less has closed its end
        sys.stderr.close()
        return 0
    except ModuleNotFoundError as error:
        if error.name in REPORT.split():
            return fail(f"charts need {error.name}: pip install 'sparring[report]'")
        if error.name in LAB.split():
            return fail(f"the lab needs {error.name}: pip install 'sparring[lab]'")
        raise
    except UserError as error:
        return fail(error)
    except MemoryError:
        return fail("not enough memory; try --n-train, a smaller --batch-size or a smaller file")
    except OSError as error:  # a folder that cannot be written, a full disk
        return fail(f"{error.filename}: {error.strerror}" if error.filename else error)


def build_parser(words: Sequence[str] = ()) -> argparse.ArgumentParser:
    """The parser. Only the command that the words name gets its flags, since these need its module."""
    style: Any = {"formatter_class": argparse.RawDescriptionHelpFormatter}
    about = "Losses that train only against strong opponents: train, compare and tune classifiers."
    parser = argparse.ArgumentParser("sparring", description=about, epilog=EXAMPLES, **style)
    parser.add_argument("--version", action="version", version=f"sparring {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    named = next((word for word in words if not word.startswith("-")), None)
    for name, help in COMMANDS.items():
        about = f"{help[0].upper()}{help[1:]}."
        command = commands.add_parser(name, help=help, description=about, allow_abbrev=False, **style)
        if name == named:
            module = import_module(ELSEWHERE.get(name, f"sparring.cli.{name}"))
            command.epilog = f"examples:\n{module.EXAMPLES}"
            command.set_defaults(command=module.main)
            command.add_argument("--json", action="store_true", help="machine-readable output")
            module.add_arguments(command)
    return parser


@contextmanager
def _short_warnings() -> Iterator[None]:
    """Show a warning about a checkpoint as one line, without the place in the code."""
    original = warnings.formatwarning

    def format_warning(message: Any, category: type[Warning], *place: Any, **more: Any) -> str:
        if issubclass(category, CheckpointWarning):
            return f"sparring: {message}\n"
        return original(message, category, *place, **more)

    warnings.formatwarning = format_warning
    try:
        yield
    finally:
        warnings.formatwarning = original
