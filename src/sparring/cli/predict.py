"""``sparring predict``: use the best model of a run."""

import argparse
import sys
from pathlib import Path
from typing import Any

from sparring.cli.terminal import input_lines, print_json
from sparring.lab.errors import UserError
from sparring.lab.runs.config import SETTINGS
from sparring.lab.runs.predict import Predictor, find_run

EXAMPLES = """  sparring predict runs/languages "Königreich Bayern"
  sparring predict runs/cifar100 cat.png dog.jpg
  sparring predict runs/rte "A man sleeps." --pair "Nobody sleeps."
  cat lines.txt | sparring predict runs/mine --json"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    folder = "the folder of a run, or a folder above several runs: the best on dev"
    parser.add_argument("run", metavar="RUN", help=folder)
    parser.add_argument("text", metavar="TEXT", nargs="*", help="texts; none: the lines of standard input")
    trust = SETTINGS["trust_remote_code"]
    parser.add_argument(trust.flag, action="store_true", help=trust.help)
    pair = "the second text of a pair, one for each text"
    parser.add_argument("--pair", action="append", metavar="TEXT", help=pair)


def main(options: argparse.Namespace) -> None:
    texts = options.text or list(input_lines())
    if options.pair and len(options.pair) != len(texts):
        raise UserError(f"expected one --pair for each text, got {len(options.pair)} for {len(texts)} texts")
    folder = find_run(Path(options.run))
    predictor = Predictor(folder, trust_remote_code=options.trust_remote_code)
    rows = predictor(texts, options.pair or None)
    if options.json:
        print_json([{**row, "run": str(folder.path)} for row in rows])
        return
    if sys.stderr.isatty():
        print(f"by {folder.path}", file=sys.stderr)
    if rows and "probabilities" in rows[0]:
        print(_calibrated(predictor), file=sys.stderr)
    for row in rows:
        probabilities = "".join(f"  {label} {p:.2f}" for label, p in row.get("probabilities", {}).items())
        print(_text(row), probabilities, sep="\t" if probabilities else "")


def _calibrated(predictor: Predictor) -> str:
    if predictor.temperature is None:
        return f"probabilities are not calibrated: {predictor.why_not}"
    return f"probabilities are calibrated with temperature {predictor.temperature:.2f}, fitted on dev"


def _text(row: dict[str, Any]) -> str:
    predicted = row["predicted"]
    if isinstance(predicted, str):
        return predicted
    if "tokens" in row:
        pairs = zip(row["tokens"], predicted, strict=True)
        return " ".join(f"{token}/{tag}" for token, tag in pairs) or "(none)"
    return ", ".join(predicted) or "(none)"
