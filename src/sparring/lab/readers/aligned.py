"""Two files of texts, line by line: how sources and targets of generation are published."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from sparring.lab.readers.files import read_lines
from sparring.lab.readers.published import Noted, find_file
from sparring.lab.task import DataError, Sample, Splits

Names = Sequence[
    tuple[str, str]
]  # of the files with the sources and with the targets: the first pair that is there


def aligned_splits(folder: Path, names: Mapping[str, Names]) -> Noted | None:
    """The parts whose files are in the folder; None where there is no train. Pairs with nothing on one side are left out, and counted."""
    splits: Splits = {}
    n_dropped = 0
    for part, pairs in names.items():
        found = next((pair for pair in pairs if find_file(folder, pair[0]) is not None), None)
        if found is not None:
            samples = read_aligned(folder, *found)
            splits[part] = [sample for sample in samples if sample["source"] and sample["target"]]
            n_dropped += len(samples) - len(splits[part])
    if "train" not in splits:
        return None
    return Noted(splits, (f"{n_dropped} pairs left out: an empty line on one side",) if n_dropped else ())


def read_aligned(folder: Path, source: str, target: str) -> list[Sample]:
    """One sample a line."""
    one, other = find_file(folder, source), find_file(folder, target)
    if one is None or other is None:
        raise DataError(
            f"{folder}: expected {source} and {target}, as many lines in each; {target if one else source} is not there"
        )
    sources, targets = (_lines(path) for path in (one, other))
    if len(sources) != len(targets):
        raise DataError(
            f"{one} has {len(sources)} lines and {other} {len(targets)}: expected as many, a source and its target on each"
        )
    return [{"source": s, "target": t} for s, t in zip(sources, targets, strict=True)]


def _lines(path: Path) -> list[str]:
    """Stripped; what comes after the last end of a line is no line."""
    lines = [line.strip() for _, line in read_lines(path)]
    return lines[:-1] if lines and not lines[-1] else lines
