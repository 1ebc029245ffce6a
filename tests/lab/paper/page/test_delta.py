"""What δ changes, and which δ dev chooses."""

from typing import Any

import pytest

from sparring.lab.paper.page.delta import chosen_table, delta_conclusion, tradeoff_tables
from sparring.lab.paper.study_records import Results
from tests.lab.paper.conftest import calibrated, row, scored

WORDS = {"sst5": "small scale", "clinc_oos": "small scale"}


def results(*records: dict[str, Any]) -> Results:
    return Results("delta", records, WORDS)


def test_what_delta_changes_stands_beside_its_cost() -> None:
    records = [
        calibrated("Softmax", 0.05, 0.02) | {"cpu_seconds": 10.0, "test": {"accuracy": 0.5}},
        calibrated("δ = 0.3, skip", 0.11, 0.03) | {"cpu_seconds": 6.0, "test": {"accuracy": 0.49}},
    ]
    (table,) = tradeoff_tables(results(*records))
    score, gap, ece, _, time = row(table, "δ = 0.3, skip")
    assert (score.text, gap.text, ece.text, time.text) == ("49.00", "-1.00", "11.0 → 3.0", "0.60")


def test_what_delta_changes_in_words() -> None:
    """Means over tasks; a task whose rows have several classes has no calibration error."""
    records = [
        calibrated(method, ece, None, seed)
        | {"task": task, "cpu_seconds": seconds, "test": {"accuracy": score}}
        for task, shift in (("sst5", 0.0), ("clinc_oos", 0.02))
        for method, ece, seconds, score in (
            ("Softmax", 0.05, 10.0, 0.5),
            ("δ = 0.3, skip", 0.11, 6.0, 0.49),
            ("δ = 0.6, skip", 0.03 + shift, 7.0, 0.5 + shift),
        )
        for seed in range(2)
    ]
    text = delta_conclusion(results(*records))
    assert "against softmax (ECE 5.0 %, time 1)" in text
    assert "0.3: -1.00 points, ECE 11.0 %, time 0.60; 0.6: +1.00 points, ECE 4.0 %, time 0.70." in text
    assert delta_conclusion(results(*scored("Softmax", 0.5))) == ""


def test_dev_chooses_delta_and_test_judges_it() -> None:
    """The δ that is best on test is not taken if dev prefers another."""

    def runs(method: str, on_dev: float, on_test: list[float]) -> list[dict[str, Any]]:
        made = scored(method, *on_test)
        return [one | {"dev": {**one["dev"], "accuracy": on_dev}} for one in made]

    made = results(
        *runs("Softmax", 0.5, [0.5, 0.51, 0.52]),
        *runs("δ = 0.3, skip", 0.49, [0.6, 0.6, 0.6]),
        *runs("δ = 0.6, skip", 0.53, [0.51, 0.51, 0.54]),
    )
    seeds, delta, on_dev, on_test, p = row(chosen_table(made), "sst5 accuracy")
    assert (seeds.text, delta.text, on_dev.text, on_test.text) == ("3", "0.6", "+3.00", "+1.00 ± 2.48")
    assert p.value == pytest.approx(0.2254, abs=1e-3)
    assert chosen_table(results(*scored("Softmax", 0.5))).rows == []
