"""Splits from the Hugging Face hub, through the ``datasets`` library."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sparring.lab.errors import DataError, MissingDataError
from sparring.lab.task import Sample, Splits

SPLIT_NAMES = {
    "train": ("train",),
    "dev": ("validation", "validation_matched", "dev", "valid", "val", "eval"),
    "test": ("test",),
}
PARQUET = "refs/convert/parquet"  # the hub's own conversion: datasets no longer runs the loading script some sets still are


def load_hub(name: str, config: str | None = None, revision: str | None = None) -> dict[str, Any]:
    """The data set's splits by our names, as ``datasets`` gives them."""
    try:
        from sparring.lab.models.offline import look_for_hub

        reachable = look_for_hub()  # before datasets is imported: it asks only then whether it may go online
        import datasets  # type: ignore[import-untyped,unused-ignore]
    except ImportError:
        raise MissingDataError(
            f"{name}: reading from the Hugging Face hub needs the datasets library: pip install datasets"
        ) from None
    try:
        found = datasets.load_dataset(
            name, config, revision=revision, trust_remote_code=False
        )  # datasets 3 would ask
    except Exception as error:  # whatever the hub, the network or the data set's own form raises
        reason = " ".join(str(error).split())[:400] or type(error).__name__
        if not reachable:
            raise MissingDataError(f"{name}: cannot reach the Hugging Face hub: {reason}") from None
        raise DataError(f"{name}: could not be read from the Hugging Face hub: {reason}") from None
    return {ours: found[theirs] for ours, names in SPLIT_NAMES.items() for theirs in names if theirs in found}


def hub_splits(
    name: str,
    sample: Callable[[dict[str, Any]], Sample],
    *,
    config: str | None = None,
    revision: str | None = None,
    classes: str | None = None,
) -> Splits:
    """Every row made a sample. The numbers in column ``classes`` are replaced by their names first; -1 there is a hidden label: such
    rows are left out, and splits of nothing but such rows too."""
    splits: Splits = {}
    for split, rows in load_hub(name, config, revision).items():
        named = rows if classes is None else _named(rows, classes, f"{name}, {split}")
        if samples := [sample(row) for row in named]:
            splits[split] = samples
    return splits


def _named(rows: Any, column: str, place: str) -> list[dict[str, Any]]:
    names = class_names(rows, column)
    if names is None:
        raise DataError(
            f'{place}: expected class names with the column "{column}", the hub has none there; its form has changed'
        )
    return [
        {
            **row,
            column: [names[number] for number in row[column]]
            if isinstance(row[column], list)
            else names[row[column]],
        }
        for row in rows
        if row[column] != -1
    ]


def class_names(rows: Any, column: str) -> list[str] | None:
    """The names of a ``ClassLabel`` column (or of a list of them), None where it has none."""
    feature = rows.features.get(column)
    feature = getattr(feature, "feature", feature)
    names = getattr(feature, "names", None)
    return None if names is None else list(names)
