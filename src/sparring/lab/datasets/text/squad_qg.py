"""Question generation on SQuAD (Du et al. 2017): a sentence in, a question that it answers out."""

from dataclasses import replace
from pathlib import Path

from sparring.lab.datasets import register_published
from sparring.lab.readers.published import NotedSplits, aligned_splits
from sparring.lab.task import SPLITS, Data

FILES = {split: {f"src-{split}.txt": f"tgt-{split}.txt"} for split in SPLITS}
N_TRAIN = 70484


def original(folder: Path) -> NotedSplits | None:
    """Aligned lines in src-train.txt and tgt-train.txt, …; the publisher's repository has data/processed."""
    return aligned_splits(folder, FILES) or aligned_splits(folder / "data" / "processed", FILES)


def finish(data: Data) -> Data:
    """Note a training set that is smaller than the published one."""
    if len(data.train) >= N_TRAIN:
        return data
    note = f"train is not the published one of {N_TRAIN:,} pairs: {len(data.train):,}"
    return replace(data, notes=(*data.notes, note))


register_published(
    "squad_qg",
    kind="generation",
    about="a question that a sentence of Wikipedia answers (Du et al. 2017)",
    metric="bleu_4",
    home="https://github.com/xinyadu/nqg",
    sizes=(N_TRAIN, 10570, 11877),
    max_length=100,
    settings={"max_target_length": 40},
    original=original,
    finish=finish,
)
