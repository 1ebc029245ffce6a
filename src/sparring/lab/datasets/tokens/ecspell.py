"""ECSpell (Lv et al. 2023): wrong characters in Chinese sentences of law, medicine and official documents."""

from __future__ import annotations

from pathlib import Path

from sparring.lab.readers.files import read_lines
from sparring.lab.readers.published import Noted, load_published
from sparring.lab.task import Data, DataError, Sample, Where, register


def original(folder: Path) -> Noted | None:
    """law.train, law.test, med.train, … of Data/domains_data, here or below. Some training sentences also stand in the test files: they
    would be known, so they are left out, and so are repeated ones."""
    paths = {name: sorted(folder.rglob(f"*.{name}")) for name in ("train", "test")}
    if not paths["train"]:
        return None
    (train, uneven), (test, uneven_test) = (_read(paths[name]) for name in ("train", "test"))
    tested = {sample["target"] for sample in test}
    new = {(sample["source"], sample["target"]): sample for sample in train if sample["target"] not in tested}
    notes = []
    if uneven + uneven_test:
        notes.append(f"{uneven + uneven_test} sentences left out: source and target differ in length")
    if len(new) < len(train):
        notes.append(
            f"{len(train) - len(new)} training sentences left out: repeated, or also in the test files"
        )
    return Noted({"train": [*new.values()], **({"test": test} if paths["test"] else {})}, tuple(notes))


def _read(paths: list[Path]) -> tuple[list[Sample], int]:
    """Lines "number of mistakes, source, target" between tabs; the samples, and how many lines were left out."""
    samples, n_uneven = [], 0
    for path in paths:
        for number, line in read_lines(path):
            if not line.strip():
                continue
            cells = [cell.strip() for cell in line.split("\t")]
            if len(cells) != 3 or not cells[0].isdigit():
                raise DataError(
                    f"{path}:{number}: expected the number of mistakes, source and target between tabs, got {line!r:.80}"
                )
            if len(cells[1]) == len(cells[2]):
                samples.append({"source": cells[1], "target": cells[2]})
            else:
                n_uneven += 1
    return samples, n_uneven


@register(
    "ecspell",
    kind="spelling",
    about="wrong characters in Chinese sentences of law, medicine and official documents (Lv et al. 2023)",
    metric="correction_f1",
    home="https://github.com/Aopolin-Lv/ECSpell",
)
def load(where: Where) -> Data:
    return load_published(where, "spelling", ["ecspell"], original)
