"""Gigaword (Rush et al. 2015): the first sentence of a news article in, its headline out.

The Sparse-Softmax paper trains on 10,000 of the pairs: ``--n-train 10000``.
"""

from __future__ import annotations

from pathlib import Path

from sparring.lab.readers.aligned import aligned_splits
from sparring.lab.readers.hub import PARQUET, hub_splits
from sparring.lab.readers.published import Noted, load_published
from sparring.lab.task import Data, Splits, Where, register

PLACES = ("", "org_data", "sumdata", "ggw_data")  # within the folder: as the archives unpack
FILES = {
    "train": [("train.src.txt", "train.tgt.txt"), ("train/train.article.txt", "train/train.title.txt")],
    "dev": [
        ("valid.src.txt", "valid.tgt.txt"),
        ("dev.src.txt", "dev.tgt.txt"),
        ("val.src.txt", "val.tgt.txt"),
        ("train/valid.article.filter.txt", "train/valid.title.filter.txt"),
    ],
    "test": [("test.src.txt", "test.tgt.txt"), ("Giga/input.txt", "Giga/task1_ref0.txt")],
}


def original(folder: Path) -> Noted | None:
    """Line by line: train.src.txt and train.tgt.txt, valid and test likewise; or the authors' own archive."""
    return next((found for place in PLACES if (found := aligned_splits(folder / place, FILES))), None)


def hub() -> Splits:
    return hub_splits(
        "Harvard/gigaword",
        lambda row: {"source": row["document"], "target": row["summary"]},
        revision=PARQUET,
    )


@register(
    "gigaword",
    kind="generation",
    about="the headline of a news article's first sentence (Rush et al. 2015)",
    metric="rouge_l",
    home="https://github.com/harvardnlp/sent-summary",
    sizes=(3803957, 189651, 1951),
    max_length=100,
    settings={"max_target_length": 32},
)
def load(where: Where) -> Data:
    return load_published(where, "generation", ["gigaword"], original, hub)
