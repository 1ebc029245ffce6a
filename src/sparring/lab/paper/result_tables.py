"""The papers' tables of results: ours beside the published numbers."""

import statistics
from collections.abc import Callable, Iterable, Sequence
from itertools import product
from typing import NamedTuple

from sparring.lab.datasets import get_task, known
from sparring.lab.paper import published
from sparring.lab.paper.methods import AS_SOFTMAX, HARD_SAMPLES, SOFTMAX
from sparring.lab.paper.published import PublishedTable
from sparring.lab.paper.study_records import Results
from sparring.lab.runs.summaries import Spread, spread, spread_cell
from sparring.lab.table import MISSING, Cell, Row, Table


class Number(NamedTuple):
    """One number of ours, its place in the table, and what the paper has there."""

    row: str
    column: str
    ours: Spread | None
    published: float | None = None
    form: str = "{:.2f}"


def side_by_side(title: str, numbers: Iterable[Number], notes: Sequence[str]) -> Table:
    """A column for each of ours, and one beside it for the paper's if the paper has any of the numbers."""
    numbers = list(numbers)
    columns = list(dict.fromkeys(number.column for number in numbers))
    with_published = any(number.published is not None for number in numbers)
    rows: dict[str, dict[str, Number]] = {}
    for number in numbers:
        rows.setdefault(number.row, {})[number.column] = number

    def cells(number: Number | None) -> list[Cell]:
        ours, paper_value = MISSING, MISSING
        if number is not None:
            ours = spread_cell(number.ours, number.form)
            if number.published is not None:
                paper_value = Cell(number.form.format(number.published), number.published)
        return [ours, paper_value] if with_published else [ours]

    headings = [name for column in columns for name in ([column, "paper"] if with_published else [column])]
    body: list[Row] = [
        [row, *(cell for column in columns for cell in cells(rows[row].get(column)))] for row in rows
    ]
    return Table(title, ["", *headings], body, notes)


def notes_of(results: Results, *more: str) -> list[str]:
    """What was run, task by task; then further notes."""
    n_seeds = results.n_seeds()
    seeds = f"{n_seeds[0]} to {n_seeds[-1]}" if len(n_seeds) > 1 else f"{n_seeds[0]}"
    return [
        *(f"{task}, {results.descriptions[task]}" for task in results.tasks),
        f"{seeds} seed(s); ± is the standard deviation over them",
        *more,
    ]


def published_number(table: PublishedTable, row: str, task: str, metric: str) -> float | None:
    """The paper's number. A column without a metric's name holds the task's own metric."""
    numbers = table.get(row, {})
    is_own = known(task) and get_task(task).metric == metric
    return numbers.get(f"{task}.{metric}", numbers.get(task) if is_own else None)


def column(task: str, metric: str) -> str:
    return f"{task} {metric.replace('_', ' ').replace('f1', 'F1')}"


def scores_of(results: Results, table: PublishedTable, metrics: Sequence[str] = ()) -> list[Number]:
    """The methods' scores on test; ``metrics`` are the same for all tasks, or those of each task."""
    return [
        Number(
            method.name,
            column(task, metric),
            results.score(task, method, metric),
            published_number(table, method.name, task, metric),
        )
        for task in results.tasks
        for metric in metrics or results.metrics(task)
        for method in results.methods(task)
    ]


def table2(results: Results) -> list[Table]:
    numbers = scores_of(results, published.QUALITY)
    notes = notes_of(results, "the paper's numbers are BERT-base's")
    tables = [side_by_side("Table 2: quality on test, in percent", numbers, notes)]
    roberta = [
        number for number in scores_of(results, published.QUALITY_ROBERTA) if number.published is not None
    ]
    if roberta:
        tables.append(side_by_side("Table 2 with RoBERTa (the paper's)", roberta, ["ours as above"]))
    return tables


def table3(results: Results) -> list[Table]:
    return [times("Table 3: training time", results, published.TIME)]


def times(title: str, results: Results, table: PublishedTable, forms: Sequence[str] = ("",)) -> Table:
    """Seconds of softmax; for the others percent more than softmax of the same form, seed by seed."""
    numbers = []
    for task, form in product(results.tasks, forms):
        place = f"{task}, {form}" if form else task
        base = results.seconds(task, SOFTMAX, form)
        paper_value = table.get(SOFTMAX.name, {}).get(task)
        numbers.append(Number("Softmax (seconds)", place, spread(list(base.values())), paper_value, "{:.0f}"))
        for method in results.methods(task, form):
            if method != SOFTMAX:
                seconds = results.seconds(task, method, form)
                more = [100 * (seconds[seed] / base[seed] - 1) for seed in seconds if seed in base]
                paper_value = table.get(method.name, {}).get(task)
                numbers.append(
                    Number(method.name, place, _center(more, statistics.median), paper_value, "{:+.0f}%")
                )
    note = (
        "training alone, evaluations left out (processor seconds, where there is no GPU); "
        "the others: percent more than softmax with the same seed, median over seeds"
    )
    return side_by_side(title, numbers, notes_of(results, note))


def _center(values: list[float], center: Callable[[list[float]], float]) -> Spread | None:
    return {"mean": center(values), "std": None, "values": values} if values else None


def table4(results: Results) -> list[Table]:
    numbers = [
        Number(
            method.name,
            task,
            spread(list(results.correlations(task, method).values())),
            published.CORRELATION.get(method.name, {}).get(task),
            "{:.3f}",
        )
        for task in results.tasks
        for method in results.methods(task)
    ]
    title = "Table 4: Pearson correlation of loss and quality on dev, over training (-1 is best)"
    n_evaluations = max(len(record["evaluations"]) for record in results.records)
    note = f"over the {n_evaluations} evaluations on dev of a run, each method by its own loss"
    return [side_by_side(title, numbers, notes_of(results, note))]


def table7(results: Results) -> list[Table]:
    """Softmax trained on the samples that AS-Softmax had not won at the end, and on as many random ones."""
    rows = list(published.HARD_SAMPLES)
    numbers = [number for number in scores_of(results, published.HARD_SAMPLES) if number.row in rows]
    shares = ", ".join(f"{task} {_hard_share(results, task):.0%}" for task in results.tasks)
    note = (
        "hard: training samples that AS-Softmax's best model on dev has not won; "
        f"share: {shares} (paper: {published.HARD_SHARE:.0%})"
    )
    title = "Table 7: softmax on hard samples and on as many random ones"
    return [side_by_side(title, numbers, notes_of(results, note))]


def _hard_share(results: Results, task: str) -> float:
    n_samples = results.of(task, AS_SOFTMAX)[0]["n_samples"]
    counts = [record["n_samples"] for record in results.of(task, HARD_SAMPLES)]
    return float(statistics.mean(count / n_samples for count in counts))


def table8(results: Results) -> list[Table]:
    """GLUE, and the mean over its tasks."""
    is_whole = set(results.tasks) == set(published.GLUE_TASKS)
    heading = "mean" if is_whole else f"mean of {len(results.tasks)}"
    numbers = scores_of(results, published.GLUE)
    for name, paper_row in published.GLUE.items():
        scores = [number.ours["mean"] for number in numbers if number.row == name and number.ours]
        mean = _center(scores, statistics.mean)
        numbers.append(Number(name, heading, mean, paper_row["Avg"] if is_whole else None))
    note = "on dev, where GLUE keeps the labels of test to itself; δ = 0.3 throughout"
    return [side_by_side("Table 8: GLUE, in percent", numbers, notes_of(results, note))]


def sparse_table1(results: Results) -> list[Table]:
    numbers = scores_of(results, published.SPARSE_QUALITY, ("macro_f1", "micro_f1"))
    datasets = {task: published.SPARSE_DATASETS.get(task) for task in results.tasks}
    sizes = ", ".join(f"{task} {row['categories']}" for task, row in datasets.items() if row)
    notes = [f"classes of the paper's data, which is cut otherwise than ours: {sizes}"] if sizes else []
    title = "Sparse-Softmax, Table 1: text classification, in percent"
    return [side_by_side(title, numbers, notes_of(results, *notes))]


def sparse_table3(results: Results) -> list[Table]:
    title = "Sparse-Softmax, Table 3: question generation, in percent"
    note = "the paper's is UniLM with the passage and the answer, and its own BLEU; ours is sacrebleu's"
    metrics = ("bleu_1", "bleu_2", "bleu_3", "bleu_4")
    return _with_times(title, results, metrics, published.SPARSE_GENERATION, note)


def sparse_table5(results: Results) -> list[Table]:
    title = "Sparse-Softmax, Table 5: summarisation, in percent"
    metrics = ("rouge_1", "rouge_2")
    return _with_times(title, results, metrics, published.SPARSE_SUMMARIES, "the paper's is UniLM")


def sparse_table6(results: Results) -> list[Table]:
    title = "Sparse-Softmax, Table 6: images, in percent"
    note = "the paper's are Densenet 201 from scratch and InceptionV3 pre-trained, on all the data"
    return _with_times(title, results, (), published.SPARSE_IMAGES, note)


def _with_times(
    title: str, results: Results, metrics: Sequence[str], table: PublishedTable, note: str
) -> list[Table]:
    """Methods down, metrics and forms across; and a second table with the training time."""
    numbers = []
    for task, form in product(results.tasks, results.forms):
        available = [metric for metric in metrics if results.score(task, SOFTMAX, metric, form)]
        for metric, method in product(available or results.metrics(task), results.methods(task, form)):
            name = column(task, metric)
            numbers.append(
                Number(
                    method.name,
                    f"{name}, {form}" if form else name,
                    results.score(task, method, metric, form),
                    published_number(table, method.printed(form), task, metric),
                )
            )
    quality = side_by_side(title, numbers, notes_of(results, note))
    return [quality, times("What it took", results, {}, results.forms)]
