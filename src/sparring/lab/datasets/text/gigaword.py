"""Gigaword (Rush et al. 2015): the first sentence of a news article in, its headline out.

The Sparse-Softmax paper trains on 10,000 of the pairs: ``--n-train 10000``.
"""

from pathlib import Path

from sparring.lab.datasets import register_published
from sparring.lab.readers.hub import PARQUET, HubSource
from sparring.lab.readers.published import NotedSplits, aligned_splits

FOLDERS = ("", "org_data", "sumdata", "ggw_data")  # in which the archives unpack
FILES = {
    "train": {"train.src.txt": "train.tgt.txt", "train/train.article.txt": "train/train.title.txt"},
    "dev": {
        "valid.src.txt": "valid.tgt.txt",
        "dev.src.txt": "dev.tgt.txt",
        "val.src.txt": "val.tgt.txt",
        "train/valid.article.filter.txt": "train/valid.title.filter.txt",
    },
    "test": {"test.src.txt": "test.tgt.txt", "Giga/input.txt": "Giga/task1_ref0.txt"},
}


def original(folder: Path) -> NotedSplits | None:
    """Aligned lines in train.src.txt and train.tgt.txt, likewise valid and test; or the authors' archive."""
    return next((splits for name in FOLDERS if (splits := aligned_splits(folder / name, FILES))), None)


register_published(
    "gigaword",
    kind="generation",
    about="the headline of a news article's first sentence (Rush et al. 2015)",
    metric="rouge_l",
    home="https://github.com/harvardnlp/sent-summary",
    sizes=(3803957, 189651, 1951),
    max_length=100,
    settings={"max_target_length": 32},
    original=original,
    hub=HubSource("Harvard/gigaword", {"source": "document", "target": "summary"}, revision=PARQUET),
)
