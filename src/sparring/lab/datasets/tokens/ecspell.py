"""ECSpell (Lv et al. 2023): wrong characters in Chinese sentences of law, medicine and official documents."""

from pathlib import Path

from sparring.lab.datasets import register_published
from sparring.lab.readers.files import match_lines
from sparring.lab.readers.published import NotedSplits, left_out


def original(folder: Path) -> NotedSplits | None:
    """law.train, law.test, med.train, … of Data/domains_data, in the folder or below it.

    Training sentences that are also in the test files, or repeated, are left out.
    """
    lines = {split: _read(sorted(folder.rglob(f"*.{split}"))) for split in ("train", "test")}
    if not lines["train"]:
        return None
    pairs = {split: [pair for pair in lines[split] if len(pair[0]) == len(pair[1])] for split in lines}
    n_uneven = sum(len(lines[split]) - len(pairs[split]) for split in lines)
    tested = {target for _, target in pairs["test"]}
    new = {pair: None for pair in pairs["train"] if pair[1] not in tested}
    n_known = len(pairs["train"]) - len(new)
    notes = (
        *left_out(n_uneven, "sentences", "source and target differ in length"),
        *left_out(n_known, "training sentences", "repeated, or also in the test files"),
    )
    pairs["train"] = list(new)
    splits = {split: [{"source": s, "target": t} for s, t in pairs[split]] for split in lines if lines[split]}
    return NotedSplits(splits, notes)


def _read(paths: list[Path]) -> list[tuple[str, str]]:
    """Lines "number of mistakes, source, target" between tabs."""
    pattern = r"\d+ *\t([^\t]*)\t([^\t]*)"
    expected = "the number of mistakes, source and target between tabs"
    lines = [match for path in paths for _, match in match_lines(path, pattern, expected)]
    return [(match[1].strip(), match[2].strip()) for match in lines]


register_published(
    "ecspell",
    kind="spelling",
    about="wrong characters in Chinese sentences of law, medicine and official documents (Lv et al. 2023)",
    metric="correction_f1",
    home="https://github.com/Aopolin-Lv/ECSpell",
    original=original,
)
