"""The papers' tables, ours beside the published."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence
from typing import Any, NamedTuple

from sparring.lab.datasets import get_task, known
from sparring.lab.paper import published as paper
from sparring.lab.paper.results import Results
from sparring.lab.runs.summaries import Spread, spread

FIGURES = {"eurlex": ("macro_f1", "micro_f1"), "wos": ("macro_f1", "micro_f1")}  # where a table has two


class Cell(NamedTuple):
    """One number of a table, and what the paper has there."""

    row: str
    column: str
    ours: Spread | None  # mean, std, values
    published: float | None
    form: str = "{:.2f}"

    def words(self) -> tuple[str, str]:
        if self.ours is None:
            mine = "–"
        else:
            mine = self.form.format(self.ours["mean"])
            if self.ours["std"] is not None:
                mine += f" ± {self.form.replace('+', '').replace('%', '').format(self.ours['std'])}"
        return mine, "–" if self.published is None else self.form.format(self.published)


class Sheet(NamedTuple):
    """A table: cells, and what a reader should know."""

    title: str
    cells: list[Cell]
    notes: list[str]

    @property
    def _width(self) -> int:
        """Two columns for each, where the paper has a number in any."""
        return 2 if any(cell.published is not None for cell in self.cells) else 1

    @property
    def columns(self) -> list[str]:
        return [words for name in self._names("column") for words in (name, "paper")[: self._width]]

    def rows(self) -> list[list[str]]:
        found = {(cell.row, cell.column): cell.words() for cell in self.cells}
        columns = self._names("column")
        return [
            [row, *(w for c in columns for w in found.get((row, c), ("–", "–"))[: self._width])]
            for row in self._names("row")
        ]

    def markdown(self) -> str:
        header = ["", *self.columns]
        rule = ["---", *("---:" for _ in self.columns)]
        lines = "".join(f"| {' | '.join(row)} |\n" for row in [header, rule, *self.rows()])
        return f"**{self.title}**\n\n{lines}\n" + "".join(f"- {note}\n" for note in self.notes)

    def json(self) -> dict[str, Any]:
        return {"title": self.title, "notes": self.notes, "cells": [cell._asdict() for cell in self.cells]}

    def _names(self, field: str) -> list[str]:
        return list(dict.fromkeys(getattr(cell, field) for cell in self.cells))


def notes_of(results: Results, *more: str) -> list[str]:
    """What was run, task by task; then what else is to be said."""
    n_seeds = {len(results.of(task, method)) for task in results.tasks for method in results.methods(task)}
    seeds = f"{min(n_seeds)} to {max(n_seeds)}" if len(n_seeds) > 1 else f"{min(n_seeds)}"
    return [
        *(f"{task}, {results.words[task]}" for task in results.tasks),
        f"{seeds} seed(s); ± is the standard deviation over them",
        *more,
    ]


def figures_of(results: Results, task: str) -> Sequence[str]:
    return FIGURES.get(task, (results.of(task, results.methods(task)[0])[0]["metric"],))


def published(rows: paper.Table, method: str, task: str, figure: str) -> float | None:
    """The paper's number; a column without a figure's name has the one that decides."""
    row = rows.get(method, {})
    own = known(task) and get_task(task).metric == figure
    return row.get(f"{task}.{figure}", row.get(task) if own else None)


def column(task: str, figure: str) -> str:
    return f"{task} {figure.replace('_', ' ').replace('f1', 'F1')}"


def named(name: str, form: str) -> str:
    """A method in one of the forms of a study's settings.

    >>> named("Softmax", "pre-trained"), named("Softmax", "")
    ('Softmax, pre-trained', 'Softmax')
    """
    return f"{name}, {form}" if form else name


def forms_of(results: Results, first: str = "Softmax") -> list[str]:
    """The forms there are: those that softmax has, which every study begins with."""
    return [
        name.removeprefix(first).removeprefix(", ")
        for name in results.methods()
        if name in (first,) or name.startswith(f"{first}, ")
    ]


def methods_of(results: Results, task: str, form: str) -> list[str]:
    """Methods in a form, by the names they go by in all."""
    if not form:
        return results.methods(task)
    return [name.removesuffix(f", {form}") for name in results.methods(task) if name.endswith(f", {form}")]


def quality(title: str, rows: paper.Table, results: Results, *notes: str, both: bool = False) -> Sheet:
    """Figures on test; ``both``: macro and micro F1 of every task."""
    cells = [
        Cell(
            method,
            column(task, figure),
            results.figure(task, method, figure),
            published(rows, method, task, figure),
        )
        for task in results.tasks
        for figure in (("macro_f1", "micro_f1") if both else figures_of(results, task))
        for method in results.methods(task)
    ]
    return Sheet(title, cells, notes_of(results, *notes))


def table2(results: Results) -> list[Sheet]:
    sheets = [
        quality(
            "Table 2: quality on test, in percent",
            paper.QUALITY,
            results,
            "the paper's numbers are BERT-base's",
        )
    ]
    if any(task in paper.QUALITY_ROBERTA["Softmax"] for task in results.tasks):
        cells = [
            Cell(
                method,
                column(task, figures_of(results, task)[0]),
                results.figure(task, method),
                paper.QUALITY_ROBERTA[method][task],
            )
            for task in results.tasks
            for method in results.methods(task)
            if task in paper.QUALITY_ROBERTA.get(method, {})
        ]
        sheets.append(Sheet("Table 2 with RoBERTa (the paper's)", cells, ["ours as above"]))
    return sheets


def table3(results: Results) -> list[Sheet]:
    """Seconds of training; of the others the percentage more than softmax, seed by seed."""
    return [times("Table 3: training time", results, paper.SECONDS, paper.TIME)]


def times(
    title: str, results: Results, seconds: dict[str, Any], more: paper.Table, forms: Sequence[str] = ("",)
) -> Sheet:
    """Beside the paper's, where it has them; ``forms``: of the settings, each with a softmax of its own."""
    cells = []
    for task, form in itertools.product(results.tasks, forms):
        base, place = results.seconds(task, named("Softmax", form)), named(task, form)
        cells.append(
            Cell("Softmax (seconds)", place, spread(list(base.values())), seconds.get(task), "{:.0f}")
        )
        for method in methods_of(results, task, form):
            if method != "Softmax":
                spent = results.seconds(task, named(method, form))
                ratios = [100 * (spent[seed] / base[seed] - 1) for seed in spent if seed in base]
                ours: Spread | None = (
                    {"mean": statistics.median(ratios), "std": None, "values": ratios} if ratios else None
                )
                cells.append(Cell(method, place, ours, more.get(method, {}).get(task), "{:+.0f}%"))
    notes = (
        "training alone, evaluations left out (processor seconds, where there is no GPU); the others: percent more than softmax with the"
        " same seed, median over seeds",
    )
    return Sheet(title, cells, notes_of(results, *notes))


def table4(results: Results) -> list[Sheet]:
    cells = [
        Cell(
            method,
            task,
            results.over_seeds(task, method, "correlation"),
            paper.CORRELATION.get(method, {}).get(task),
            "{:.3f}",
        )
        for task in results.tasks
        for method in results.methods(task)
    ]
    n = max(len(each["evaluations"]) for each in results.records)
    title = "Table 4: Pearson correlation of loss and quality on dev, over training (-1 is best)"
    return [
        Sheet(
            title,
            cells,
            notes_of(results, f"over the {n} looks at dev of a run, each method by its own loss"),
        )
    ]


def table7(results: Results) -> list[Sheet]:
    """Softmax trained on the samples AS-Softmax had not won at the end, and on as many random ones."""
    names = [name for name in results.methods() if name in paper.HARD_SAMPLES]
    cells = [
        Cell(
            name,
            column(task, figures_of(results, task)[0]),
            results.figure(task, name),
            paper.HARD_SAMPLES[name] if task == "sst5" else None,
        )
        for task in results.tasks
        for name in names
    ]
    shares = ", ".join(f"{task} {_hard_share(results, task):.0%}" for task in results.tasks)
    note = f"hard: training samples that AS-Softmax's best model on dev has not won; share: {shares} (paper: {paper.HARD_SHARE:.0%})"
    return [
        Sheet("Table 7: softmax on hard samples and on as many random ones", cells, notes_of(results, note))
    ]


def _hard_share(results: Results, task: str) -> float:
    n = results.of(task, "AS-Softmax")[0]["n_samples"]
    return float(statistics.mean(each["n_samples"] / n for each in results.of(task, "Hard samples")))


def table8(results: Results) -> list[Sheet]:
    (sheet,) = [
        quality(
            "Table 8: GLUE, in percent",
            paper.GLUE,
            results,
            "on dev, where GLUE keeps the labels of test to itself; δ = 0.3 throughout",
        )
    ]
    for method in ("Softmax", "AS-Softmax"):
        found = [cell.ours["mean"] for cell in sheet.cells if cell.row == method and cell.ours]
        mean: Spread | None = (
            {"mean": statistics.mean(found), "std": None, "values": found} if found else None
        )
        whole = set(results.tasks) == set(paper.GLUE[method]) - {"Avg"}
        sheet.cells.append(
            Cell(
                method,
                "mean" if whole else f"mean of {len(found)}",
                mean,
                paper.GLUE[method]["Avg"] if whole else None,
            )
        )
    return [sheet]


def sparse_table1(results: Results) -> list[Sheet]:
    sizes = [
        f"{task} {n:.0f}" for task, n in paper.SPARSE_DATASETS["categories"].items() if task in results.tasks
    ]
    notes = (
        [f"classes of the paper's data, which is cut otherwise than ours: {', '.join(sizes)}"]
        if sizes
        else []
    )
    return [
        quality(
            "Sparse-Softmax, Table 1: text classification, in percent",
            paper.SPARSE_QUALITY,
            results,
            *notes,
            both=True,
        )
    ]


BLEU = {f"bleu_{n}": f"bleu{n}" for n in (1, 2, 3, 4)}  # ours, and as the paper's tables have them here
ROUGE = {f"rouge_{n}": f"rouge{n}" for n in (1, 2)}
PUBLISHED_NETWORKS = {"from scratch": "densenet", "pre-trained": "inceptionv3"}


def sparse_table3(results: Results) -> list[Sheet]:
    theirs = {
        ("squad_qg", method, figure): row[name]
        for method, row in paper.SPARSE_GENERATION.items()
        for figure, name in BLEU.items()
    }
    note = "the paper's is UniLM with the passage and the answer, and its own BLEU; ours is sacrebleu's"
    return _large("Sparse-Softmax, Table 3: question generation, in percent", results, BLEU, theirs, note)


def sparse_table5(results: Results) -> list[Sheet]:
    theirs = {
        ("gigaword", method.replace(",", ", "), figure): row[name]
        for method, row in paper.SPARSE_SUMMARIES.items()
        for figure, name in ROUGE.items()
    }
    return _large(
        "Sparse-Softmax, Table 5: summarisation, in percent", results, ROUGE, theirs, "the paper's is UniLM"
    )


def sparse_table6(results: Results) -> list[Sheet]:
    theirs = {
        ("cifar100", named(method, form), "accuracy"): row[name]
        for method, row in paper.SPARSE_IMAGES.items()
        for form, name in PUBLISHED_NETWORKS.items()
    }
    note = "the paper's are Densenet 201 from scratch and InceptionV3 pre-trained, on all the data"
    return _large("Sparse-Softmax, Table 6: images, in percent", results, {}, theirs, note)


def _large(
    title: str,
    results: Results,
    figures: dict[str, str],
    theirs: dict[tuple[str, str, str], float],
    note: str,
) -> list[Sheet]:
    """Methods down, figures and forms across; then what each took."""
    forms = forms_of(results)
    cells = []
    for task, form in itertools.product(results.tasks, forms):
        there = [
            figure for figure in figures if results.figure(task, named("Softmax", form), figure)
        ] or figures_of(results, task)
        for figure, method in itertools.product(there, methods_of(results, task, form)):
            own = named(method, form)
            place = named(column(task, figure), form)
            cells.append(
                Cell(method, place, results.figure(task, own, figure), theirs.get((task, own, figure)))
            )
    return [Sheet(title, cells, notes_of(results, note)), times("What it took", results, {}, {}, forms)]
