"""The papers' tables of data and settings, which need no runs: theirs, and what ours are at a scale."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from sparring.lab.datasets import Where, get_task, survey
from sparring.lab.paper import published as paper
from sparring.lab.paper import scales
from sparring.lab.paper.methods import settings


class Listing(NamedTuple):
    """A table of words: for each row its cells, ours and the paper's."""

    title: str
    columns: list[str]
    cells: list[list[str]]  # the first one names the row

    def markdown(self) -> str:
        rows = [self.columns, ["---"] * len(self.columns), *self.cells]
        return f"**{self.title}**\n\n" + "".join(f"| {' | '.join(row)} |\n" for row in rows)

    def json(self) -> dict[str, Any]:
        return {
            "title": self.title,
            "rows": [dict(zip(["", *self.columns[1:]], row, strict=True)) for row in self.cells],
        }


def _beside(title: str, tasks: Sequence[str], rows: dict[str, Callable[[str], tuple[Any, Any]]]) -> Listing:
    """A column for each task and one for the paper's value; ``rows`` give both."""
    columns = ["", *(name for task in tasks for name in (task, "paper"))]
    return Listing(
        title,
        columns,
        [[row, *(_words(value) for task in tasks for value in both(task))] for row, both in rows.items()],
    )


def _words(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, tuple):
        return "/".join(f"{each:g}" for each in value)
    if isinstance(value, float):
        return f"{value:g}" if value < 1000 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _data(
    title: str, tasks: Sequence[str], theirs: paper.Table, splits: Sequence[str], where: Where
) -> Listing:
    """Sizes of the data sets: those that are here, and the paper's. ``theirs``: by task."""
    found = {row["name"]: row for row in survey([get_task(task) for task in tasks], where)}

    def size(i: int, name: str) -> Callable[[str], tuple[Any, Any]]:
        return lambda task: (found[task]["sizes"][i] if found[task]["here"] else None, theirs[task].get(name))

    rows = {name: size(i, name) for i, name in enumerate(splits)}
    n_classes = "classes" if "classes" in theirs[tasks[0]] else "categories"
    return _beside(
        title, tasks, {**rows, n_classes: lambda task: (found[task]["classes"], theirs[task][n_classes])}
    )


def _turned(rows: paper.Table) -> paper.Table:
    return {column: {name: row[column] for name, row in rows.items()} for column in next(iter(rows.values()))}


def _training(title: str, theirs: paper.Table, scale: str, *, sparse: bool = False) -> Listing:
    """Hyper-parameters of a scale."""
    tasks = list(next(iter(theirs.values())))
    ours = {task: scales.config_of(get_task(task), scale, sparse=sparse) for task in tasks}

    def both(name: str) -> Callable[[str], tuple[Any, Any]]:
        return lambda task: (ours[task].get(name), theirs[name][task])

    more = [name for name in ("model", "layers", "n_train") if any(name in own for own in ours.values())]
    rows = {name: both(name) for name in theirs}
    return _beside(
        title, tasks, rows | {name: (lambda task, name=name: (ours[task].get(name), None)) for name in more}
    )


def _methods(title: str) -> Listing:
    """Each method's own settings: ours are the paper's."""
    rows: dict[str, Callable[[str], tuple[Any, Any]]] = {}
    for method, table in paper.SETTINGS.items():
        for names, row in table.items():
            own = names.split("/")

            def both(
                task: str, method: str = method, row: dict[str, Any] = row, own: list[str] = own
            ) -> tuple[Any, Any]:
                found = (
                    {"alpha": 1.5, **settings(method, task)} if row[task] is not None else {}
                )  # α of entmax15
                values = tuple(found[name] for name in own if name in found)
                return (values if len(values) > 1 else values[0] if values else None), row[task]

            rows[f"{method} {names}"] = both
    return _beside(title, list(paper.SECONDS), rows)


LISTINGS: dict[str, tuple[str, Callable[[str, Where], Listing]]] = {
    "table1": (
        "data sets",
        lambda _, where: _data(
            "Table 1: data sets", list(paper.DATASETS), paper.DATASETS, ("train", "dev", "test"), where
        ),
    ),
    "table5": (
        "hyper-parameters of training",
        lambda scale, _: _training(f"Table 5: training, {scale} scale", paper.TRAINING, scale),
    ),
    "table6": ("hyper-parameters of the methods", lambda *_: _methods("Table 6: settings of the methods")),
    "sparse table2": (
        "Sparse-Softmax: data sets",
        lambda _, where: _data(
            "Sparse-Softmax, Table 2: data sets",
            list(paper.SPARSE_DATASETS["train"]),
            _turned(paper.SPARSE_DATASETS),
            ("train", "dev", "test"),
            where,
        ),
    ),
    "sparse table4": (
        "Sparse-Softmax: hyper-parameters of training",
        lambda scale, _: _training(
            f"Sparse-Softmax, Table 4: training, {scale} scale", paper.SPARSE_TRAINING, scale, sparse=True
        ),
    ),
}
