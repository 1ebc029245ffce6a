"""EUR-LEX (Chalkidis et al. 2021): which EuroVoc concepts an EU law is about."""

from pathlib import Path

from sparring.lab.datasets import register_published
from sparring.lab.readers.files import check_sample, read_table
from sparring.lab.readers.hub import HubSource
from sparring.lab.readers.published import find_file
from sparring.lab.task import SPLITS, DataError, Splits


def original(folder: Path) -> Splits | None:
    """LexGLUE's eurlex.jsonl: all splits in one file, with the split under "data_type"."""
    path = find_file(folder, "eurlex.jsonl")
    if path is None:
        return None
    splits: Splits = {split: [] for split in SPLITS}
    table = read_table(path)
    for number, row in table.rows:
        place = table.place(number)
        split = row.get("data_type")
        if not isinstance(split, str) or split not in splits:
            raise DataError(f'{place}: expected "data_type" to be train, dev or test, got {split!r:.80}')
        splits[split].append(check_sample("multi-label", row, place))
    return splits


register_published(
    "eurlex",
    kind="multi-label",
    about="which EuroVoc concepts an EU law is about (Chalkidis et al. 2021)",
    metric="micro_f1",
    home="https://huggingface.co/datasets/coastalcph/lex_glue",
    sizes=(55000, 5000, 5000),
    max_length=512,
    aliases={"eurlex_small": "a selection of 1,100 acts with 127 EuroVoc descriptors, not LexGLUE's"},
    original=original,
    hub=HubSource(
        "coastalcph/lex_glue", {"text": "text", "labels": "labels"}, config="eurlex", classes="labels"
    ),
)
