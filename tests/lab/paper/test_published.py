"""The published numbers against sums of the papers' own rows and columns: a wrong digit changes two."""

import statistics

import pytest

from sparring.lab.datasets import get_task
from sparring.lab.paper import published
from sparring.lab.paper.methods import ALL_METHODS, AS_SPEED, SPEED_FAST, Method
from sparring.lab.runs.config import Config

ROWS = {
    "QUALITY": [583.86, 585.92, 588.69, 302.1, 303.66, 300.23, 300.45, 590.65, 587.91],
    "TIME": [23939, -10, 6, 8, -6, -2, -8, -83],
    "CORRELATION": [-4.066, -3.729, -2.575, -2.506, -3.026, -2.814, -5.696],
    "GLUE": [660.9, 667.51],
    "SPARSE_QUALITY": [600.87, 602.26, 603.48, 608.01, 604.27, 528.19],
}
COLUMNS = {
    "QUALITY": [472.07, 798.69, 816.22, 638.18, 237.95, 344.14, 404.11, 432.11],
    "TIME": [288 - 32, 533 - 12, 625 - 28, 10905, 5944 - 15, 5644 - 8],
    "CORRELATION": [-0.726, -6.635, -6.875, -6.109, -1.36, -2.707],
    "GLUE": [168.37, 180.13, 181.61, 181.95, 137.54, 185.77, 126.99, 166.05],
    "SPARSE_QUALITY": [495.13, 497.32, 574.43, 572.71, 334.04, 451.78, 262.27, 359.4],
}


@pytest.mark.parametrize("name", ROWS)
def test_sums(name: str) -> None:
    rows = [[value or 0.0 for value in row.values()] for row in getattr(published, name).values()]
    assert [sum(row) for row in rows] == pytest.approx(ROWS[name], abs=1e-6)
    assert [sum(column) for column in zip(*rows, strict=True)] == pytest.approx(COLUMNS[name], abs=1e-6)


def test_settings_sum_up() -> None:
    """Table 6, with both numbers of a pair."""

    def total(value: object) -> float:
        return sum(value) if isinstance(value, list) else float(value or 0)  # type: ignore[arg-type]

    rows = [[total(value) for value in row.values()] for row in published.SETTINGS.values()]
    assert [sum(row) for row in rows] == pytest.approx([8, 189, 6, 0.7, 25.05, 2.05, 24.5])
    columns = [sum(column) for column in zip(*rows, strict=True)]
    assert columns == pytest.approx([26.9, 26.5, 18.5, 26, 53.55, 103.85])
    assert [sum(row.values()) for row in published.TRAINING.values()] == pytest.approx([82, 236, 17e-5])


def test_data_sets_sum_up() -> None:
    sizes = [[n for n in row.values() if isinstance(n, int)] for row in published.DATASETS.values()]
    assert [sum(row) for row in sizes] == [11860, 24001, 20756, 285187, 65127, 47126]
    sparse = published.SPARSE_DATASETS.values()
    totals = [sum(row[part] for row in sparse) for part in ("train", "dev", "test", "categories")]
    assert totals == [835342, 36653, 13942, 506]
    lengths = [
        published.SPARSE_TRAINING["max_length"][task] + published.SPARSE_TRAINING["batch_size"][task]
        for task in published.SPARSE_TASKS
    ]
    assert lengths == [376, 320, 528, 280]


def test_what_the_text_says_of_the_tables() -> None:
    for row in published.GLUE.values():
        mean = statistics.mean(value for name, value in row.items() if name != "Avg")
        assert mean == pytest.approx(row["Avg"], abs=0.005)
    for table, form, gains in (
        (published.SPARSE_GENERATION, "", [0.90, 0.62, 0.80, 0.82]),
        (published.SPARSE_SUMMARIES, ", beam=1", [0.67, 0.79]),
        (published.SPARSE_SUMMARIES, ", beam=5", [0.28, 0.55]),
    ):
        ours, base = table[f"Sparse-Softmax{form}"], table[f"Softmax{form}"]
        assert [ours[name] - base[name] for name in base] == pytest.approx(gains)
    roberta = published.QUALITY_ROBERTA
    assert max(roberta, key=lambda name: roberta[name]["sst5"]) == "AS-Speed"
    assert max(roberta, key=lambda name: roberta[name]["clinc_oos"]) == "Sparsemax"
    assert sum(sum(row.values()) for row in roberta.values()) == pytest.approx(505.26 + 815.81)


@pytest.mark.parametrize("name", [*published.DATASETS, *published.GLUE_TASKS, "rcv1", "iflytek"])
def test_the_papers_tasks_are_ours(name: str) -> None:
    assert get_task(name).name == name


@pytest.mark.parametrize("method", ALL_METHODS, ids=lambda method: method.name)
def test_methods_have_the_settings_of_table_6(method: Method) -> None:
    config = method.configure(Config("clinc_oos"), get_task("clinc_oos"))
    values = published.SETTINGS.get(method.name, {}).get("clinc_oos", [])
    for name, value in zip(
        published.PARAMETERS.get(method.name, []),
        values if isinstance(values, list) else [values],
        strict=True,
    ):
        assert name == "alpha" or getattr(config, name) == value
    assert (config.speed == "fast") == (method == SPEED_FAST)


def test_methods_without_a_multi_label_form() -> None:
    kind = get_task("eurlex").kind
    printed = [name for name, row in published.QUALITY.items() if row["eurlex.micro_f1"] is not None]
    assert [method.name for method in ALL_METHODS if method.fits(kind)] == [*printed, SPEED_FAST.name]
    config = AS_SPEED.configure(Config("eurlex"), get_task("eurlex"))
    assert (config.loss, config.accumulation) == ("multilabel-as-softmax", "adaptive")
    assert (config.delta, config.warmup, config.lam, config.max_steps) == (0.05, 0.0, 0.5, 2)
