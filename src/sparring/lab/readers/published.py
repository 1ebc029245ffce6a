"""Load a published data set from a folder or from the Hugging Face hub.

A folder holds the JSONL form (``train.jsonl``, ``dev.jsonl`` and ``test.jsonl``, ``.gz`` too, one sample a
line with the fields of its kind) or the publisher's own files. The first source that exists is used.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from sparring.lab.errors import MissingDataError, option
from sparring.lab.kinds import Kind
from sparring.lab.readers.files import read_lines, read_samples
from sparring.lab.readers.hub import HubSource
from sparring.lab.task import SPLITS, Data, DataError, Sample, Splits, Where


class NotedSplits(NamedTuple):
    """Splits, and what a reader of their results should know."""

    splits: Splits
    notes: tuple[str, ...]


Original = Callable[[Path], Splits | NotedSplits | None]  # reads the publisher's files in a folder, if any


def load_published(
    where: Where, kind: Kind, folders: Mapping[str, str], original: Original, hub: HubSource | None = None
) -> Data:
    """Load a data set from the first of its folders that has files, else from the hub.

    The values of ``folders`` tell how the data in a folder differs from the published data.
    """
    paths = {} if where.data_dir is None else {where.data_dir / name: note for name, note in folders.items()}
    for path, difference in paths.items():
        result = jsonl_splits(path, kind) or (original(path) if path.is_dir() else None)
        if result:
            splits, notes = result if isinstance(result, NotedSplits) else (result, ())
            if difference:
                notes = (f"{path.name}: {difference}", *notes)
            return complete(kind, splits, str(path), notes)
    searched = " or ".join(map(str, paths)) or "no folder was given"
    ending = "npz" if kind.arrays else "jsonl"
    files = f"train.{ending}, dev.{ending} and test.{ending} with {kind} samples"
    advice = f"put its files there, or {files}" if paths else f"use {option('data_dir')} or SPARRING_DATA"
    if hub is None or not where.hub:
        advice += "" if hub is None else ", or let it be read from the hub"
        raise MissingDataError(f"{next(iter(folders))}: no data found (looked in: {searched}); {advice}")
    try:
        splits = hub.read()
    except DataError as error:
        raise DataError(f"{error} (looked in: {searched}); {advice}") from None
    return complete(kind, splits, "Hugging Face hub")


def find_file(folder: Path, *names: str) -> Path | None:
    """The first of the files that exists, gzipped or not."""
    paths = (path for name in names for path in (folder / name, folder / f"{name}.gz"))
    return next((path for path in paths if path.is_file()), None)


def read_splits(
    folder: Path, file_names: Mapping[str, Sequence[str]], read: Callable[[Path], list[Sample]]
) -> Splits | None:
    """Read each split from the first of its files that exists. None if there is no training file."""
    paths = {split: find_file(folder, *names) for split, names in file_names.items()}
    if paths["train"] is None:
        return None
    return {split: read(path) for split, path in paths.items() if path is not None}


def jsonl_splits(folder: Path, kind: Kind) -> Splits | None:
    """Read the JSONL form. None if there is no training file."""
    names = {split: [f"{split}.jsonl"] for split in SPLITS}
    return read_splits(folder, names, partial(read_samples, kind=kind))


def aligned_splits(folder: Path, file_names: Mapping[str, Mapping[str, str]]) -> NotedSplits | None:
    """Read pairs of files with a source and its target on the same line. None if there is no training file.

    ``file_names`` has possible source files for each split, with their target files. Pairs with an empty line
    are left out.
    """
    splits: Splits = {}
    n_empty = 0
    for split, pairs in file_names.items():
        names = next((pair for pair in pairs.items() if find_file(folder, pair[0])), None)
        if names is not None:
            samples = _read_aligned(folder, *names)
            splits[split] = [sample for sample in samples if all(sample.values())]
            n_empty += len(samples) - len(splits[split])
    if "train" not in splits:
        return None
    return NotedSplits(splits, left_out(n_empty, "pairs", "an empty line on one side"))


def _read_aligned(folder: Path, source_name: str, target_name: str) -> list[Sample]:
    source, target = find_file(folder, source_name), find_file(folder, target_name)
    if source is None or target is None:
        raise DataError(f"{folder}: expected {source_name} and {target_name}; {target_name} is missing")
    sources, targets = _stripped_lines(source), _stripped_lines(target)
    if len(sources) != len(targets):
        lengths = f"{source} has {len(sources)} lines and {target} {len(targets)}"
        raise DataError(f"{lengths}: expected as many, a source and its target on each")
    return [{"source": text, "target": other} for text, other in zip(sources, targets, strict=True)]


def _stripped_lines(path: Path) -> list[str]:
    """Without an empty last line, which is the end of the file."""
    lines = [line.strip() for _, line in read_lines(path)]
    return lines[:-1] if lines and not lines[-1] else lines


def left_out(count: int, what: str, reason: str) -> tuple[str, ...]:
    """A note on what was left out, if anything was."""
    return (f"{count} {what} left out: {reason}",) if count else ()


def complete(kind: Kind, splits: Splits, source: str, notes: tuple[str, ...] = ()) -> Data:
    """Make train, dev and test from the splits there are.

    Publishers who hide test labels provide train and dev: then dev becomes the test set. Other missing
    splits are split off train.
    """
    for name, samples in splits.items():
        if not samples:
            raise DataError(f"{source}: the {name} set is empty")
    if "train" not in splits:
        raise DataError(f"{source}: there is no train set")
    splits = dict(splits)
    if "test" not in splits and "dev" in splits:
        splits["test"] = splits.pop("dev")
        notes = (*notes, "no test labels: the published dev set is the test set")
    for name in ("test", "dev"):
        if name not in splits:
            splits["train"], splits[name] = split_off(splits["train"], 0.1)
            notes = (*notes, f"no {name} set: {len(splits[name])} samples split off train")
    return Data(kind, splits["train"], splits["dev"], splits["test"], source, notes)


def split_off(
    samples: list[Sample], share: float, seed: int = 0, limit: int | None = 5000
) -> tuple[list[Sample], list[Sample]]:
    """The remaining samples, and a random share of at most ``limit``; the same ones for each seed."""
    if len(samples) < 2:
        advice = "add more, or give train, dev and test files"
        raise DataError(f"{len(samples)} samples are too few to split off a part; {advice}")
    order = random.Random(seed).sample(range(len(samples)), len(samples))
    n_off = min(max(1, round(share * len(samples))), limit or len(samples))
    off = set(order[:n_off])
    return [sample for i, sample in enumerate(samples) if i not in off], [samples[i] for i in order[:n_off]]
