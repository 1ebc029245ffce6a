"""The published numbers against sums of the papers' own text, rows and columns: a wrong digit or a swapped cell changes two of them."""

from __future__ import annotations

import statistics

import pytest

from sparring.lab.datasets import get_task
from sparring.lab.kinds import get_kind
from sparring.lab.paper import published as paper
from sparring.lab.paper.methods import ALL_NAMES, EVERYTHING, method, settings

ROWS = {
    "QUALITY": [583.86, 585.92, 588.69, 302.1, 303.66, 300.23, 300.45, 590.65, 587.91],
    "TIME": [-10, 6, 8, -6, -2, -8, -83],
    "CORRELATION": [-4.066, -3.729, -2.575, -2.506, -3.026, -2.814, -5.696],
    "GLUE": [660.9, 667.51],
    "SPARSE_QUALITY": [600.87, 602.26, 603.48, 608.01, 604.27, 528.19],
}
COLUMNS = {
    "QUALITY": [472.07, 798.69, 816.22, 638.18, 237.95, 344.14, 404.11, 432.11],
    "TIME": [-32, -12, -28, 0, -15, -8],
    "CORRELATION": [-0.726, -6.635, -6.875, -6.109, -1.36, -2.707],
    "GLUE": [168.37, 180.13, 181.61, 181.95, 137.54, 185.77, 126.99, 166.05],
    "SPARSE_QUALITY": [495.13, 497.32, 574.43, 572.71, 334.04, 451.78, 262.27, 359.4],
}


@pytest.mark.parametrize("name", ROWS)
def test_sums(name: str) -> None:
    rows = [[value or 0.0 for value in row.values()] for row in getattr(paper, name).values()]
    assert [sum(row) for row in rows] == pytest.approx(ROWS[name], abs=1e-6)
    assert [sum(column) for column in zip(*rows, strict=True)] == pytest.approx(COLUMNS[name], abs=1e-6)


def test_settings_sum_up() -> None:
    """Table 6, with both numbers of a pair."""

    def total(value: object) -> float:
        return sum(value) if isinstance(value, tuple) else float(value or 0)  # type: ignore[arg-type]

    rows = [
        [total(value) for value in row.values()]
        for table in paper.SETTINGS.values()
        for row in table.values()
    ]
    assert [sum(row) for row in rows] == pytest.approx([8, 189, 6, 0.7, 25.05, 2.05, 24.5])
    assert [sum(column) for column in zip(*rows, strict=True)] == pytest.approx(
        [26.9, 26.5, 18.5, 26, 53.55, 103.85]
    )
    assert [sum(row.values()) for row in paper.TRAINING.values()] == pytest.approx([82, 236, 17e-5])


def test_data_sets_sum_up() -> None:
    totals = [
        sum(value for value in row.values() if isinstance(value, int)) for row in paper.DATASETS.values()
    ]
    assert totals == [11860, 24001, 20756, 285187, 65127, 47126]
    assert sum(paper.SECONDS.values()) == 23939
    sparse = [sum(paper.SPARSE_DATASETS[part].values()) for part in ("train", "dev", "test", "categories")]
    assert sparse == [835342, 36653, 13942, 506]
    lengths = [
        sum(row[task] for name, row in paper.SPARSE_TRAINING.items() if name != "epochs")
        for task in paper.SPARSE_TRAINING["epochs"]
    ]
    assert lengths == [376, 320, 528, 280]


def test_what_the_text_says_of_the_tables() -> None:
    for row in paper.GLUE.values():
        assert statistics.mean(value for name, value in row.items() if name != "Avg") == pytest.approx(
            row["Avg"], abs=0.005
        )
    generation = paper.SPARSE_GENERATION
    gains = [
        generation["Sparse-Softmax"][name] - generation["Softmax"][name] for name in generation["Softmax"]
    ]
    assert gains == pytest.approx([0.90, 0.62, 0.80, 0.82])
    summaries = paper.SPARSE_SUMMARIES
    for beam, gains in (("1", [0.67, 0.79]), ("5", [0.28, 0.55])):
        rows = [summaries[f"{name},beam={beam}"] for name in ("Sparse-Softmax", "Softmax")]
        assert [a - b for a, b in zip(*(row.values() for row in rows), strict=True)] == pytest.approx(gains)
    assert max(paper.QUALITY_ROBERTA, key=lambda name: paper.QUALITY_ROBERTA[name]["sst5"]) == "AS-Speed"
    assert (
        max(paper.QUALITY_ROBERTA, key=lambda name: paper.QUALITY_ROBERTA[name]["clinc_oos"]) == "Sparsemax"
    )
    assert sum(sum(row.values()) for row in paper.QUALITY_ROBERTA.values()) == pytest.approx(505.26 + 815.81)


@pytest.mark.parametrize(
    "name", [*paper.DATASETS, *(name for name in paper.GLUE["Softmax"] if name != "Avg"), "rcv1", "iflytek"]
)
def test_the_papers_tasks_are_ours(name: str) -> None:
    assert get_task(name).name == name


@pytest.mark.parametrize("name", ALL_NAMES)
def test_methods_are_contestants(name: str) -> None:
    from sparring.lab.runs.config import Config

    made = method(name, "clinc_oos", get_kind("multi-class"))
    assert made is not None
    config = Config("clinc_oos").with_contestant(made.words)
    for key, value in settings(name, "clinc_oos").items():
        assert getattr(config, key) == value
    assert (config.speed == "all") == (name == EVERYTHING)


def test_methods_without_a_multi_label_form() -> None:
    there = [name for name in ALL_NAMES if method(name, "eurlex", get_kind("multi-label")) is not None]
    assert there == [name for name, row in paper.QUALITY.items() if row["eurlex.micro_f1"] is not None] + [
        EVERYTHING
    ]
    as_speed = method("AS-Speed", "eurlex", get_kind("multi-label"))
    assert as_speed is not None
    assert as_speed.words == "as-speed:delta=0.05:warmup=0:lam=0.5:max_steps=2"
