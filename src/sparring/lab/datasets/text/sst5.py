"""SST-5 (Socher et al. 2013): sentences of film reviews, from very negative to very positive."""

import re
from pathlib import Path

from sparring.lab.datasets import register_published
from sparring.lab.readers.files import match_lines, read_lines
from sparring.lab.readers.hub import HubSource
from sparring.lab.readers.published import read_splits
from sparring.lab.task import SPLITS, DataError, Sample, Splits

LABELS = ("very negative", "negative", "neutral", "positive", "very positive")
ESCAPED = {"-LRB-": "(", "-RRB-": ")", "\\/": "/", "\\*": "*"}


def original(folder: Path) -> Splits | None:
    """Stanford's trees (train.txt, …), or the lines "label text" of stsa.fine.train, stsa.fine.dev, …"""
    names = {split: [f"{split}.txt", f"trees/{split}.txt", f"stsa.fine.{split}"] for split in SPLITS}
    return read_splits(folder, names, _samples)


def _samples(path: Path) -> list[Sample]:
    if path.name.startswith("stsa"):
        lines = match_lines(path, r"([0-4]) (.+)", "a label 0 to 4, a space and a text")
        return [{"text": match[2], "label": LABELS[int(match[1])]} for _, match in lines]
    return [_tree(line.strip(), place) for place, line in read_lines(path, blank=False)]


def _tree(line: str, place: str) -> Sample:
    """Take the root's label and the leaves' words of ``(3 (2 It) (4 works))``."""
    root = re.match(r"\(([0-4]) ", line)
    words = re.findall(r"\([0-4] ([^()\s]+)\)", line)
    if root is None or not words or line.count("(") != line.count(")"):
        expected = "a tree like (3 (2 It) (4 works)) with labels 0 to 4"
        raise DataError(f"{place}: expected {expected}, got {line!r:.80}")
    text = " ".join(words)
    for escaped, character in ESCAPED.items():
        text = text.replace(escaped, character)
    return {"text": text, "label": LABELS[int(root[1])]}


register_published(
    "sst5",
    kind="multi-class",
    about="how a sentence of a film review judges, in five steps (Socher et al. 2013)",
    metric="accuracy",
    home="https://nlp.stanford.edu/sentiment",
    sizes=(8544, 1101, 2210),
    max_length=64,
    original=original,
    hub=HubSource("SetFit/sst5", {"text": "text", "label": "label_text"}),
)
