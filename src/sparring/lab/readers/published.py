"""Where a published data set may lie: our JSONL form in a folder, its publisher's own files there, or the Hugging Face hub.

The first that is there is taken, and said. ``JSONL form`` is ``train.jsonl``, ``dev.jsonl`` and ``test.jsonl`` (``.gz`` too), one sample
a line with the fields of its kind.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from sparring.lab.errors import MissingDataError
from sparring.lab.kinds import Kind, get_kind
from sparring.lab.readers.files import read_samples
from sparring.lab.task import SPLITS, Data, DataError, Sample, Splits, Where


class Noted(NamedTuple):
    """Splits, and what a reader of their numbers should know."""

    splits: Splits
    notes: tuple[str, ...]


Original = Callable[
    [Path], Splits | Noted | None
]  # the publisher's files in a folder; None where they are not there


def load_published(
    where: Where,
    kind: Kind | str,
    names: Sequence[str],
    original: Original,
    hub: Callable[[], Splits] | None = None,
    stand_ins: dict[str, str] | None = None,
) -> Data:
    """``names`` are the folders looked for, the first one the set's own; ``stand_ins`` says of a folder in what it differs."""
    kind = get_kind(kind)
    searched = [where.data_dir / name for name in names] if where.data_dir is not None else []
    for folder in searched:
        found = jsonl_splits(folder, kind) or (original(folder) if folder.is_dir() else None)
        if found:
            splits, notes = found if isinstance(found, Noted) else (found, ())
            stand_in = (stand_ins or {}).get(folder.name)
            return complete(
                kind,
                splits,
                source=str(folder),
                notes=((f"{folder.name}: {stand_in}",) if stand_in else ()) + notes,
            )
    form = "{}.npz" if kind.arrays else "{}.jsonl"
    looked = " or ".join(map(str, searched)) if searched else "no folder was given"
    advice = (
        f"put its files there, or {form.format('train')}, {form.format('dev')} and {form.format('test')} with {kind} samples"
        if searched
        else "use --data-dir or SPARRING_DATA"
    )
    if hub is not None and where.hub:
        try:
            splits = hub()
        except DataError as error:
            raise DataError(f"{error} (looked in: {looked}); {advice}") from None
        return complete(kind, splits, source="Hugging Face hub")
    raise MissingDataError(
        f"{names[0]}: no data found (looked in: {looked}); {advice}"
        + ("" if hub is None else ", or let it be read from the hub")
    )


def find_file(folder: Path, *names: str) -> Path | None:
    """The first of the files that is there, gzipped or not."""
    return next(
        (path for name in names for path in (folder / name, folder / f"{name}.gz") if path.is_file()), None
    )


def jsonl_splits(folder: Path, kind: Kind) -> Splits | None:
    paths = {name: find_file(folder, f"{name}.jsonl") for name in SPLITS}
    if paths["train"] is None:
        return None
    return {name: read_samples(path, kind) for name, path in paths.items() if path is not None}


def complete(kind: Kind | str, splits: Splits, source: str, notes: tuple[str, ...] = ()) -> Data:
    """Three parts. Where the test labels are hidden the published dev set is the test set, and a new dev set comes out of train."""
    for name, samples in splits.items():
        if not samples:
            raise DataError(f"{source}: the {name} set is empty")
    train, dev, test = (splits.get(name) for name in SPLITS)
    if train is None:
        raise DataError(f"{source}: there is no train set")
    if test is None and dev is not None:
        test, dev = dev, None
        notes = (*notes, "no test labels: the published dev set is the test set")
    if test is None:
        train, test = split_off(train, 0.1)
        notes = (*notes, f"no test set: {len(test)} samples split off train")
    if dev is None:
        train, dev = split_off(train, 0.1)
        notes = (*notes, f"no dev set: {len(dev)} samples split off train")
    return Data(get_kind(kind), train, dev, test, source, notes)


def split_off(
    samples: list[Sample], share: float, seed: int = 0, most: int | None = 5000
) -> tuple[list[Sample], list[Sample]]:
    """The rest, and a random share of the samples: always the same ones."""
    if len(samples) < 2:
        raise DataError(
            f"{len(samples)} samples are too few to split off a part; add more, or give train, dev and test files"
        )
    order = random.Random(seed).sample(range(len(samples)), len(samples))
    n_off = min(max(1, round(share * len(samples))), most or len(samples))
    off = set(order[:n_off])
    return [sample for i, sample in enumerate(samples) if i not in off], [samples[i] for i in order[:n_off]]
