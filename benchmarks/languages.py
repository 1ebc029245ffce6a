"""Which of 89 languages a name is in: a linear SVM on character n-grams, and the tiny network.

    python benchmarks/languages.py              three seeds, one thread, about fifteen minutes; can be resumed
    python benchmarks/languages.py --quick      one seed, two epochs, a minute

The SVM's penalty is chosen on dev. Contestants take turns, seed by seed; times are ratios to softmax without
evaluations.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from report import ROOT, provenance, write
from rich.console import Console
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.svm import LinearSVC

from sparring.lab.datasets import Data
from sparring.lab.runs.compare import contestants, plans_for, rows_of
from sparring.lab.runs.config import Config
from sparring.lab.runs.jobs import run_all
from sparring.lab.runs.plan import open_task
from sparring.lab.runs.summaries import comparison

CONTESTANTS = ("softmax", "as-softmax", "as-softmax:rest=true", "as-softmax:rest=true:skip=two-pass")
RESULT = ROOT / "docs" / "results" / "lab" / "languages.json"


def svm(data: Data) -> dict[str, Any]:
    """TF-IDF of character 1- to 4-grams within words."""
    grams = TfidfVectorizer(analyzer="char_wb", ngram_range=(1, 4), lowercase=False, sublinear_tf=True)
    grams.fit(sample["text"] for sample in data.train)
    splits = {
        name: (grams.transform(s["text"] for s in samples), [s["label"] for s in samples])
        for name, samples in (("train", data.train), ("dev", data.dev), ("test", data.test))
    }
    models = {penalty: LinearSVC(C=penalty).fit(*splits["train"]) for penalty in (0.25, 0.5, 1.0, 2.0)}
    best = max(models, key=lambda penalty: models[penalty].score(*splits["dev"]))
    return {"C": best, **{name: models[best].score(*splits[name]) for name in ("dev", "test")}}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", default="runs/benchmark", help="run folders")
    args = parser.parse_args()
    console = Console(width=170)
    config = Config("languages", out=args.out, threads=1, epochs=2 if args.quick else None)
    task, data = open_task(config)
    reference = svm(data)
    configs = contestants(config, CONTESTANTS, task, data)
    plans = plans_for(configs, 1 if args.quick else args.seeds, task, data, strict=False)
    rows = rows_of(run_all(plans, 1, console), "accuracy")
    comparison("languages, 89 classes, tiny", rows, wide=True).print(console)
    console.print(
        f"SVM on character n-grams: test {100 * reference['test']:.2f} %, dev {100 * reference['dev']:.2f} %"
    )
    if not args.quick:
        kept = [{name: value for name, value in row.items() if name != "folders"} for row in rows]
        write({**provenance(__file__, sys.argv[1:], threads=1), "svm": reference, "rows": kept}, RESULT)


if __name__ == "__main__":
    main()
