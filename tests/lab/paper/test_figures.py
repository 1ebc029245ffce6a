"""The numbers of the figures, on records made by hand. Charts are drawn by the commands."""

import pytest

from sparring.lab.paper import figures
from sparring.lab.paper.study_records import Results
from tests.lab.paper.conftest import record, row, scored


def results(*records: dict[str, object]) -> Results:
    return Results("figure1", records, {"sst5": "small scale"})


def test_losses_are_normalised_run_by_run() -> None:
    (normalised,) = figures.normalised(results(record("Softmax", 0))).records
    assert [point["loss"] for point in normalised["evaluations"]] == [1.0, 0.0, 0.5]
    _, loss = figures.DEV.tables(results(record("Softmax", 0)))
    assert "Softmax 0.50 of its range" in loss.notes[-1]


def test_won_share_by_tenths() -> None:
    (table,) = figures.WON_SHARE.tables(results(record("AS-Softmax", 0), record("AS-Softmax", 1)))
    means = [cell.value["mean"] for cell in row(table, "AS-Softmax")]
    assert means == pytest.approx([10, 20, 30, 40, 50, 60, 70, 80, 90, 100])


def test_margins_as_shares() -> None:
    (table,) = figures.MARGINS.tables(results(record("Softmax", 0)))
    assert [cell.text for cell in row(table, "Softmax")] == ["0.0"] * 7 + ["100.0"]


def test_highest_delta() -> None:
    records = [record("Softmax", 0), record("delta=0.1", 0), *scored("delta=0.2", 0.6)]
    (table,) = figures.DELTA.tables(results(*records))
    assert "sst5: highest at delta=0.2" in table.notes[-1]
    assert row(table, "Softmax")[1].value == 51.90
