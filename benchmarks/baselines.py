"""A linear classifier on word counts, beside which a network has to justify itself.

    python benchmarks/baselines.py --save docs/results/paper/baselines.json

TF-IDF of words and a linear support vector machine with the settings of scikit-learn, on all training
samples; Chinese texts by characters and pairs of them. `sparring paper page` puts the scores beside those of
softmax.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from report import provenance, write
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.metrics import accuracy_score, f1_score
from sklearn.multiclass import OneVsRestClassifier
from sklearn.preprocessing import MultiLabelBinarizer
from sklearn.svm import LinearSVC

from sparring.lab.datasets import get_task
from sparring.lab.task import Where

TASKS = ("sst5", "clinc_oos", "reuters21578", "eurlex", "wos", "iflytek", "sst2")
CHINESE = ("iflytek",)


def score(task: str) -> float:
    """Accuracy, or micro F1 for several labels, on the split that the lab tests on."""
    data = get_task(task).load(Where.default(None))
    by_characters: dict[str, Any] = {"analyzer": "char", "ngram_range": (1, 2), "sublinear_tf": True}
    vectorizer = TfidfVectorizer(**(by_characters if task in CHINESE else {}))
    train, test = (vectorizer.fit_transform, vectorizer.transform)
    x, x_test = train([row["text"] for row in data.train]), test([row["text"] for row in data.test])
    if "labels" in data.train[0]:
        binarizer = MultiLabelBinarizer().fit([row["labels"] for row in data.train])
        y, y_test = (binarizer.transform([row["labels"] for row in rows]) for rows in (data.train, data.test))
        machine = OneVsRestClassifier(LinearSVC(class_weight="balanced"))  # far better with rare labels
        return float(f1_score(y_test, machine.fit(x, y).predict(x_test), average="micro"))
    labels, expected = ([row["label"] for row in rows] for rows in (data.train, data.test))
    return float(accuracy_score(expected, LinearSVC().fit(x, labels).predict(x_test)))


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", nargs="*", default=list(TASKS), choices=TASKS)
    parser.add_argument("--save", type=Path, help="a JSON file")
    options = parser.parse_args(argv)
    scores = {}
    for task in options.tasks:
        scores[task] = score(task)
        print(f"{task}: {100 * scores[task]:.2f}", flush=True)
    if options.save:
        write({**provenance(__file__, argv, 1), "seed": [0], "scores": scores}, options.save)


if __name__ == "__main__":
    main(sys.argv[1:])
