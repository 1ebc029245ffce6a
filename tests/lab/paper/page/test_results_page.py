"""The page of results from a folder of records."""

from pathlib import Path

import pytest

from sparring.lab.paper.page.results_page import over_tasks
from sparring.lab.paper.study_records import Results, write_results
from tests.lab.paper.conftest import paper, record, scored


def test_page(tmp_path: Path) -> None:
    records = [*scored("Softmax", 0.5, 0.51, 0.52), *scored("AS-Softmax", 0.53, 0.545, 0.55)]
    write_results(tmp_path / "in" / "table2.jsonl", Results("table2", records, {"sst5": "small scale"}))
    (tmp_path / "in" / "table2_sst5.svg").write_text("<svg/>")
    assert paper("page", "--records", str(tmp_path / "in"), "--save", str(tmp_path)) == 0
    page = (tmp_path / "README.md").read_text()
    assert "not larger than 3 seeds vary by themselves" in " ".join(page.split())
    assert "Of 2 claims held against our runs, 1 reproduced and 0 did not" in page
    assert "| AS-Softmax | 54.17 ± 1.04 | 53.12 |" in page
    assert "+3.17 points (3 seeds, 95 %: " in page
    assert "(in/table2_sst5.svg)" in page


def test_over_tasks_a_task_is_a_point() -> None:
    records = [
        record(method, seed, task=task, test={"accuracy": score + seed / 100})
        for task, base, gain in (("sst5", 0.5, 0.01), ("clinc_oos", 0.8, 0.03), ("languages", 0.6, 0.02))
        for method, score in (("Softmax", base), ("AS-Softmax", base + gain))
        for seed in range(2)
    ]
    text = over_tasks([Results("table2", records, {})])
    assert "| AS-Softmax | 3 | +2.00 | -0.48 to +4.48 | 3 of 3 |" in text
    assert "| Softmax |" not in text
    one_task = Results("table2", [*scored("Softmax", 0.5), *scored("AS-Softmax", 0.6)], {})
    assert over_tasks([one_task]) == ""


def test_page_of_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert paper("page", "--records", str(tmp_path), "--save", str(tmp_path)) == 1
    assert "no records of studies" in capsys.readouterr().err
