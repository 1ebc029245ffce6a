"""Read splits from the Hugging Face hub through the ``datasets`` library."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from sparring.lab.errors import DataError, MissingDataError
from sparring.lab.task import Sample, Splits

SPLIT_NAMES = {
    "train": ("train",),
    "dev": ("validation", "validation_matched", "dev", "valid", "val", "eval"),
    "test": ("test",),
}
PARQUET = "refs/convert/parquet"  # the hub's conversion of sets whose script datasets does not run


@dataclass(frozen=True)
class HubSource:
    """A data set on the hub, and how its rows become samples."""

    name: str
    fields: Mapping[str, str]  # field of a sample -> column
    config: str | None = None
    revision: str | None = None
    classes: str | None = None  # column of class numbers, which become names; rows with -1 are left out
    convert: Mapping[str, Callable[[Any], Any]] = field(default_factory=dict)  # by field

    def read(self) -> Splits:
        """All splits; one without any labelled row is left out."""
        splits: Splits = {}
        for split, rows in load_hub(self.name, self.config, self.revision).items():
            if self.classes is not None:
                if class_names(rows, self.classes) is None:
                    expected = f'class names with the column "{self.classes}"'
                    raise DataError(f"{self.name}, {split}: expected {expected}, the hub has none")
                # one by one: large images do not fit into memory before they are converted
                named = name_classes(rows, [self.classes])
                rows = (row for row in named if row[self.classes] is not None)
            if samples := [self._sample(row) for row in rows]:
                splits[split] = samples
        return splits

    def _sample(self, row: Mapping[str, Any]) -> Sample:
        sample = {name: row[column] for name, column in self.fields.items()}
        return {**sample, **{name: convert(sample[name]) for name, convert in self.convert.items()}}


def load_hub(name: str, config: str | None = None, revision: str | None = None) -> dict[str, Any]:
    """The splits of a data set by our names, as ``datasets`` returns them."""
    try:
        from sparring.lab.models.offline import look_for_hub

        reachable = look_for_hub()  # datasets decides whether it may go online when it is imported
        import datasets  # type: ignore[import-untyped,unused-ignore]
    except ImportError:
        raise MissingDataError(
            f"{name}: the Hugging Face hub needs a library: pip install datasets"
        ) from None
    try:  # without trust_remote_code=False, datasets 3 would ask
        splits = datasets.load_dataset(name, config, revision=revision, trust_remote_code=False)
    except Exception as error:  # the hub, the network and the data set can raise anything
        reason = " ".join(str(error).split())[:400] or type(error).__name__
        if not reachable:
            raise MissingDataError(f"{name}: cannot reach the Hugging Face hub: {reason}") from None
        raise DataError(f"{name}: could not be read from the Hugging Face hub: {reason}") from None
    return {part: splits[split] for part, names in SPLIT_NAMES.items() for split in names if split in splits}


def class_names(rows: Any, column: str) -> list[str] | None:
    """The names of a ``ClassLabel`` column (or of a list of them), None for other columns."""
    feature = rows.features.get(column)
    feature = getattr(feature, "feature", feature)
    names = getattr(feature, "names", None)
    return None if names is None else list(names)


def name_classes(rows: Any, columns: Iterable[str]) -> Iterator[dict[str, Any]]:
    """The rows with class names in place of class numbers. A hidden label (-1) becomes None."""
    names = {column: class_names(rows, column) for column in columns}

    def named(value: Any, labels: list[str]) -> Any:
        if isinstance(value, list):
            return [named(item, labels) for item in value]
        return None if value is None or value < 0 else labels[value]

    for row in rows:
        yield {**row, **{column: named(row[column], labels) for column, labels in names.items() if labels}}
