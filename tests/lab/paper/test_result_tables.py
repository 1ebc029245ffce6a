"""The arithmetic of the tables, on records made by hand."""

from pathlib import Path

import pytest

from sparring.lab.errors import UserError
from sparring.lab.paper import published
from sparring.lab.paper import result_tables as tables
from sparring.lab.paper.methods import SOFTMAX
from sparring.lab.paper.study_records import Results, histogram, read_results
from tests.lab.paper.conftest import record, row, scored


def results(*records: dict[str, object]) -> Results:
    return Results("table2", records, {"sst5": "small scale"})


def texts(table: tables.Table, name: str) -> list[str]:
    return [cell.text for cell in row(table, name)]


def test_quality_has_the_published_number_beside() -> None:
    quality, roberta = tables.table2(results(*scored("Softmax", 0.5, 0.54), *scored("AS-Softmax", 0.55)))
    assert quality.texts() == [["Softmax", "52.00 ± 2.83", "51.90"], ["AS-Softmax", "55.00", "53.12"]]
    assert texts(roberta, "AS-Softmax") == ["55.00", "57.29"]
    assert "| AS-Softmax | 55.00 | 53.12 |" in quality.markdown()
    assert [cell.value for cell in row(quality, "AS-Softmax")] == [
        {"mean": pytest.approx(55.0), "std": None, "values": [pytest.approx(55.0)]},
        53.12,
    ]


def test_a_metric_that_the_task_does_not_have_is_left_out() -> None:
    spans = results(record("Softmax", 0, test={"f1": 0.5, "accuracy": 0.9}))
    assert spans.score("sst5", SOFTMAX, "micro_f1") is None  # the accuracy of spans is something else
    score = results(record("Softmax", 0)).score("sst5", SOFTMAX, "micro_f1")
    assert score == {"mean": 50.0, "std": None, "values": [50.0]}
    assert tables.published_number(published.QUALITY, "Softmax", "sst5", "macro_f1") is None
    assert tables.published_number(published.QUALITY, "Softmax", "eurlex", "macro_f1") == 46.87


def test_time_is_against_softmax_with_the_same_seed() -> None:
    (table,) = tables.table3(
        results(
            record("Softmax", 0),
            record("Softmax", 1, cpu_seconds=20.0),
            record("AS-Speed", 0, cpu_seconds=8.0),
            record("AS-Speed", 1, cpu_seconds=16.0),
        )
    )
    assert texts(table, "Softmax (seconds)") == ["15 ± 7", "288"]
    assert texts(table, "AS-Speed") == ["-20%", "-22%"]


def test_the_clock_counts_where_there_is_a_gpu() -> None:
    on_gpu = record("Softmax", 0, seconds=30.0, cpu_seconds=9.0, machine={"gpu": "A100"})
    both = results(on_gpu, record("Softmax", 1, cpu_seconds=8.0))
    assert both.seconds("sst5", SOFTMAX) == {0: 30.0, 1: 8.0}


def test_correlation() -> None:
    (table,) = tables.table4(results(record("Softmax", 0), record("Softmax", 1, correlation=None)))
    assert texts(table, "Softmax") == ["-0.500", "0.038"]


def test_glue_has_a_mean() -> None:
    records = [record("Softmax", 0, task="rte"), *scored("Softmax", 0.7, task="mrpc")]
    (table,) = tables.table8(Results("table8", records, {"rte": "", "mrpc": ""}))
    assert table.columns[-2:] == ["mean of 2", "paper"]
    assert texts(table, "Softmax")[-2:] == ["60.00", "–"]


# ------------------------------------------------------------ Tables 3, 5 and 6 of the Sparse-Softmax paper


def images(*gaps: float) -> Results:
    """Sparse-Softmax is ahead by the first gap from scratch, and by the second one pre-trained."""
    records = []
    for form, gap, seconds in zip(("from scratch", "pre-trained"), gaps, (10.0, 40.0), strict=True):
        values = {"task": "cifar100"}
        scores = [0.5, 0.51, 0.52]
        ahead = [score + gap + seed / 1000 for seed, score in enumerate(scores)]
        records += scored(f"Softmax, {form}", *scores, cpu_seconds=seconds, **values)
        records += scored(f"Sparse-Softmax, {form}", *ahead, cpu_seconds=12.0, **values)
        records += scored(f"AS-Softmax, --speed fast, {form}", 0.5, 0.5, 0.5, cpu_seconds=5.0, **values)
    return Results("sparse table6", records, {"cifar100": "small scale: …"})


def test_images_have_a_column_for_each_form_with_the_papers_beside() -> None:
    quality, times = tables.sparse_table6(images(0.01, 0.02))
    columns = ["cifar100 accuracy, from scratch", "paper", "cifar100 accuracy, pre-trained", "paper"]
    assert quality.columns == ["", *columns]
    assert texts(quality, "Softmax") == ["51.00 ± 1.00", "76.20", "51.00 ± 1.00", "77.10"]
    assert texts(quality, "Sparse-Softmax") == ["52.10 ± 1.10", "73.70", "53.10 ± 1.10", "77.80"]
    assert times.texts()[1:] == [
        ["Sparse-Softmax", "+20%", "-70%"],
        ["AS-Softmax, --speed fast", "-50%", "-88%"],
    ]


def test_questions_have_four_metrics() -> None:
    test = {"bleu_1": 0.4, "bleu_2": 0.3, "bleu_3": 0.2, "bleu_4": 0.1}
    records = [record("Softmax", seed, task="squad_qg", metric="bleu_4", test=test) for seed in (0, 1)]
    quality, _ = tables.sparse_table3(Results("sparse table3", records, {"squad_qg": ""}))
    numbers = ["40.00 ± 0.00", "51.49", "30.00 ± 0.00", "36.19", "20.00 ± 0.00", "27.33", "10.00 ± 0.00"]
    assert texts(quality, "Softmax") == [*numbers, "21.20"]


def test_summaries_have_both_numbers_of_beams() -> None:
    test = {"rouge_1": 0.3, "rouge_2": 0.1}
    records = [
        record(f"{method}, beam={n}", 0, task="gigaword", metric="rouge_1", test=test)
        for method in ("Softmax", "Sparse-Softmax")
        for n in (1, 5)
    ]
    quality, _ = tables.sparse_table5(Results("sparse table5", records, {"gigaword": ""}))
    published_column = quality.columns.index("gigaword rouge 1, beam=5")
    assert row(quality, "Sparse-Softmax")[published_column].value == 33.10


# ------------------------------------------------------------ records


def test_margins_are_counted_in_bins() -> None:
    assert histogram([-1.0, 1.0, 0.0, 0.01]) == [1] + [0] * 19 + [2] + [0] * 18 + [1]


def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text("{}\n")
    with pytest.raises(UserError, match="no records of a study"):
        read_results(tmp_path / "x.jsonl")
