"""SST-5 (Socher et al. 2013): sentences of film reviews, from very negative to very positive."""

from __future__ import annotations

import re
from pathlib import Path

from sparring.lab.readers.files import read_lines
from sparring.lab.readers.hub import hub_splits
from sparring.lab.readers.published import find_file, load_published
from sparring.lab.task import Data, DataError, Sample, Splits, Where, register

LABELS = ("very negative", "negative", "neutral", "positive", "very positive")
ESCAPED = {"-LRB-": "(", "-RRB-": ")", "\\/": "/", "\\*": "*"}


def original(folder: Path) -> Splits | None:
    """Stanford's trees (train.txt, dev.txt, test.txt), or the lines "label text" of stsa.fine.train, .dev and .test."""
    splits: Splits = {}
    for name in ("train", "dev", "test"):
        path = find_file(folder, f"{name}.txt", f"trees/{name}.txt", f"stsa.fine.{name}")
        if path is not None:
            read = plain if path.name.startswith("stsa") else tree
            splits[name] = [
                read(line, f"{path}:{number}") for number, line in read_lines(path) if line.strip()
            ]
    return splits if "train" in splits else None


def tree(line: str, place: str) -> Sample:
    """``(3 (2 It) (4 works))``: the root's label, the leaves' words."""
    root = re.match(r"\(([0-4]) ", line.strip())
    words = re.findall(r"\([0-4] ([^()\s]+)\)", line)
    if root is None or not words or line.count("(") != line.count(")"):
        raise DataError(
            f"{place}: expected a tree like (3 (2 It) (4 works)) with labels 0 to 4, got {line!r:.80}"
        )
    text = " ".join(words)
    for escaped, sign in ESCAPED.items():
        text = text.replace(escaped, sign)
    return {"text": text, "label": LABELS[int(root[1])]}


def plain(line: str, place: str) -> Sample:
    label, _, text = line.strip().partition(" ")
    if label not in {"0", "1", "2", "3", "4"} or not text:
        raise DataError(f'{place}: expected a label 0 to 4, a space and a text, got "{line:.80}"')
    return {"text": text, "label": LABELS[int(label)]}


def hub() -> Splits:
    return hub_splits("SetFit/sst5", lambda row: {"text": row["text"], "label": row["label_text"]})


@register(
    "sst5",
    kind="multi-class",
    about="how a sentence of a film review judges, in five steps (Socher et al. 2013)",
    metric="accuracy",
    home="https://nlp.stanford.edu/sentiment",
    sizes=(8544, 1101, 2210),
    max_length=64,
)
def load(where: Where) -> Data:
    return load_published(where, "multi-class", ["sst5"], original, hub)
