"""Question generation on SQuAD (Du et al. 2017): a sentence in, a question that it answers out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from sparring.lab.readers.aligned import aligned_splits
from sparring.lab.readers.published import Noted, load_published
from sparring.lab.task import Data, Where, register

FILES = {part: [(f"src-{part}.txt", f"tgt-{part}.txt")] for part in ("train", "dev", "test")}
WHOLE = 70484


def original(folder: Path) -> Noted | None:
    """The publisher's repository has them in data/processed."""
    return next(
        (
            found
            for place in (folder, folder / "data" / "processed")
            if (found := aligned_splits(place, FILES))
        ),
        None,
    )


@register(
    "squad_qg",
    kind="generation",
    about="a question that a sentence of Wikipedia answers (Du et al. 2017)",
    metric="bleu_4",
    home="https://github.com/xinyadu/nqg",
    sizes=(WHOLE, 10570, 11877),
    max_length=100,
    settings={"max_target_length": 40},
)
def load(where: Where) -> Data:
    data = load_published(where, "generation", ["squad_qg"], original)
    if len(data.train) < WHOLE:
        data = replace(
            data,
            notes=(*data.notes, f"train is not the published one of {WHOLE:,} pairs: {len(data.train):,}"),
        )
    return data
