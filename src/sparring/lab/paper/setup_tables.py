"""The papers' tables of data and settings, which need no runs: ours beside the published values."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from sparring.lab.datasets import Where, get_task, survey
from sparring.lab.paper import published
from sparring.lab.paper.methods import method_named
from sparring.lab.paper.published import PublishedTable
from sparring.lab.paper.run_settings import settings_of
from sparring.lab.table import MISSING, Cell, Row, Table


def _cell(value: Any) -> Cell:
    if value is None:
        return MISSING
    if isinstance(value, list):
        text = "/".join(f"{item:g}" for item in value)
    elif isinstance(value, float):
        text = f"{value:g}"
    else:
        text = f"{value:,}" if isinstance(value, int) else str(value)
    return Cell(text, value)


def _side_by_side(title: str, tasks: Sequence[str], rows: dict[str, list[tuple[Any, Any]]]) -> Table:
    """A column for each task and one beside it for the paper; ``rows`` hold our value and the paper's."""
    columns = ["", *(name for task in tasks for name in (task, "paper"))]
    cells: list[Row] = [[row, *(_cell(v) for pair in pairs for v in pair)] for row, pairs in rows.items()]
    return Table(title, columns, cells)


def _datasets(title: str, paper_table: PublishedTable, n_classes: str, where: Where) -> Table:
    """Sizes of the data sets that are available, and the paper's; ``n_classes`` is the paper's word."""
    ours = {row["name"]: row for row in survey([get_task(task) for task in paper_table], where)}
    rows: dict[str, list[tuple[Any, Any]]] = {}
    for i, split in enumerate(("train", "dev", "test")):
        rows[split] = [
            (ours[task]["sizes"][i] if ours[task]["here"] else None, paper_table[task][split])
            for task in paper_table
        ]
    rows[n_classes] = [(ours[task]["classes"], paper_table[task][n_classes]) for task in paper_table]
    return _side_by_side(title, list(paper_table), rows)


def _training(title: str, paper_table: PublishedTable, scale: str, *, sparse: bool = False) -> Table:
    """Hyper-parameters of training at a scale."""
    tasks = list(next(iter(paper_table.values())))
    ours = {task: settings_of(get_task(task), scale, sparse=sparse) for task in tasks}
    further = [
        name for name in ("model", "layers", "n_train") if any(name in settings for settings in ours.values())
    ]
    rows = {
        name: [(ours[task].get(name), paper_table.get(name, {}).get(task)) for task in tasks]
        for name in (*paper_table, *further)
    }
    return _side_by_side(f"{title}, {scale} scale", tasks, rows)


def _methods(title: str) -> Table:
    """Each method's own settings: ours are the paper's."""
    rows = {}
    for name, values in published.SETTINGS.items():
        parameters = published.PARAMETERS[name]
        pairs = []
        for task, paper_value in values.items():
            settings = {"alpha": 1.5, **method_named(name).settings(task)}  # α of the loss entmax15
            ours = [settings[parameter] for parameter in parameters]
            pairs.append((None if paper_value is None else ours if len(ours) > 1 else ours[0], paper_value))
        rows[f"{name} {'/'.join(parameters)}"] = pairs
    return _side_by_side(title, published.TEXT_TASKS, rows)


class SetupTable(NamedTuple):
    """A table by its scale and the place of the data."""

    about: str
    make: Callable[[str, Where], Table]


SETUP_TABLES = {
    "table1": SetupTable(
        "data sets", lambda _, where: _datasets("Table 1: data sets", published.DATASETS, "classes", where)
    ),
    "table5": SetupTable(
        "hyper-parameters of training",
        lambda scale, _: _training("Table 5: training", published.TRAINING, scale),
    ),
    "table6": SetupTable(
        "hyper-parameters of the methods", lambda *_: _methods("Table 6: settings of the methods")
    ),
    "sparse table2": SetupTable(
        "Sparse-Softmax: data sets",
        lambda _, where: _datasets(
            "Sparse-Softmax, Table 2: data sets", published.SPARSE_DATASETS, "categories", where
        ),
    ),
    "sparse table4": SetupTable(
        "Sparse-Softmax: hyper-parameters of training",
        lambda scale, _: _training(
            "Sparse-Softmax, Table 4: training", published.SPARSE_TRAINING, scale, sparse=True
        ),
    ),
}
