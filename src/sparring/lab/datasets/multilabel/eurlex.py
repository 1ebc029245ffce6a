"""EUR-LEX (Chalkidis et al. 2021): which EuroVoc concepts an EU law is about."""

from __future__ import annotations

from pathlib import Path

from sparring.lab.readers.files import check_sample, read_table
from sparring.lab.readers.hub import hub_splits
from sparring.lab.readers.published import find_file, load_published
from sparring.lab.task import Data, DataError, Splits, Where, register


def original(folder: Path) -> Splits | None:
    """LexGLUE's eurlex.jsonl: all three parts in one file, told apart by "data_type"."""
    path = find_file(folder, "eurlex.jsonl")
    if path is None:
        return None
    splits: Splits = {"train": [], "dev": [], "test": []}
    table = read_table(path)
    for number, row in table.rows:
        place = table.place(number)
        part = row.get("data_type")
        if not isinstance(part, str) or part not in splits:
            raise DataError(f'{place}: expected "data_type" to be train, dev or test, got {part!r:.80}')
        splits[part].append(check_sample("multi-label", row, place))
    return splits


def hub() -> Splits:
    return hub_splits(
        "coastalcph/lex_glue",
        lambda row: {"text": row["text"], "labels": row["labels"]},
        config="eurlex",
        classes="labels",
    )


@register(
    "eurlex",
    kind="multi-label",
    about="which EuroVoc concepts an EU law is about (Chalkidis et al. 2021)",
    aliases=("eurlex_small",),
    metric="micro_f1",
    home="https://huggingface.co/datasets/coastalcph/lex_glue",
    sizes=(55000, 5000, 5000),
    max_length=512,
)
def load(where: Where) -> Data:
    stand_ins = {"eurlex_small": "a selection of 1,100 acts with 127 EuroVoc descriptors, not LexGLUE's"}
    return load_published(where, "multi-label", ["eurlex", "eurlex_small"], original, hub, stand_ins)
