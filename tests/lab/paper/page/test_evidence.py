"""What the runs can decide: power, calibration, baselines, and the words made of them."""

import json
from pathlib import Path
from typing import Any

import pytest

from sparring.lab.errors import UserError
from sparring.lab.paper.page.claims import all_findings
from sparring.lab.paper.page.evidence import (
    baselines_table,
    calibration_conclusion,
    calibration_tables,
    conclusion,
    power_table,
    read_baselines,
)
from sparring.lab.paper.page.finding import NO, OPEN
from sparring.lab.paper.study_records import Results
from tests.lab.paper.conftest import calibrated, row, scored

WORDS = {"sst5": "small scale", "clinc_oos": "small scale"}


def results(*records: dict[str, Any]) -> Results:
    return Results("table2", records, WORDS)


def test_power_says_how_many_seeds_a_difference_needs() -> None:
    table = power_table(results(*scored("Softmax", 0.5, 0.51, 0.52), *scored("AS-Softmax", 0.51, 0.51, 0.54)))
    seeds, gap, p, detectable, one, half, missing = row(table, "sst5 accuracy")
    assert (seeds.text, gap.text) == ("3", "+1.00 ± 2.48")
    assert p.value == pytest.approx(0.2254, abs=1e-3)
    assert detectable.value == pytest.approx(3.10, abs=0.02)
    assert (one.text, half.text) == ("10", "34")  # of a paired t-test with a standard deviation of 1
    assert missing.value == 3  # with 6 seeds t = 2.571, so ±1.05; with 5 t = 2.776, so ±1.24


def test_conclusions_are_the_numbers_in_words() -> None:
    better = scored("AS-Softmax", 0.53, 0.545, 0.55)
    text = conclusion(results(*scored("Softmax", 0.5, 0.51, 0.52), *better))
    assert "+3.17 points from softmax" in text
    assert "better on sst5 accuracy" in text
    text = conclusion(results(*scored("Softmax", 0.5, 0.51, 0.52), *scored("AS-Softmax", 0.51, 0.51, 0.54)))
    assert "On all of them no difference shows" in text
    assert "sst5 accuracy (3.50)" in text
    assert conclusion(results(*scored("Softmax", 0.5), *scored("AS-Softmax", 0.6))) == ""


def test_calibration_of_every_method() -> None:
    made = results(calibrated("Softmax", 0.05, 0.02), calibrated("AS-Softmax", 0.11, 0.03))
    (table,) = calibration_tables(made)
    ece, _, _, aurc, temperature = row(table, "AS-Softmax")
    assert (ece.text, aurc.text, temperature.text) == ("11.0 → 3.0", "0.100", "1.50")
    text = calibration_conclusion(made)
    assert "sst5 5.0 → 11.0 % (2.0 → 3.0 % after scaling)" in text
    unscaled = results(calibrated("Softmax", 0.05, None), calibrated("AS-Softmax", 0.11, None))
    assert "after scaling" not in calibration_conclusion(unscaled)
    assert calibration_tables(results(*scored("Softmax", 0.5))) == []
    assert calibration_conclusion(results(*scored("Softmax", 0.5))) == ""


def test_networks_stand_beside_a_classifier_without_one(tmp_path: Path) -> None:
    assert read_baselines(tmp_path) == {}
    (tmp_path / "baselines.json").write_text(json.dumps({"scores": {"sst5": 0.6, "iflytek": 0.5}}))
    first, again = results(*scored("Softmax", 0.5, 0.52)), results(*scored("Softmax", 0.7))
    table = baselines_table([first, again], read_baselines(tmp_path))
    assert table is not None
    assert [cell.text for cell in row(table, "sst5 accuracy")[:2]] == ["51.00 ± 1.41", "60.00"]
    assert table.rows[0][-1] == "below"
    assert baselines_table([first], {}) is None
    (tmp_path / "baselines.json").write_text("{}")
    with pytest.raises(UserError, match=r"baselines\.py writes it"):
        read_baselines(tmp_path)


def test_larger_networks_stand_in_place_of_the_small_ones() -> None:
    """Their claim about the same task replaces that of Table 2; what Table 2 alone shows stays."""
    small = results(*scored("Softmax", 0.5, 0.51, 0.52), *scored("AS-Softmax", 0.51, 0.51, 0.54))
    larger = [*scored("Softmax", 0.5, 0.51, 0.52), *scored("AS-Softmax", 0.49, 0.495, 0.505)]
    rows = all_findings([small, Results("accuracy", larger, WORDS)])
    claims = [row for row in rows if row.claim.startswith("AS-Softmax is better")]
    assert len(claims) == 1
    assert claims[0].outcome == NO
    assert any(row.claim == "AS-Softmax is the best of all" for row in rows)


def test_an_interval_can_rule_out_the_papers_difference() -> None:
    close = [0.5, 0.51, 0.52], [0.501, 0.509, 0.521]
    rows = all_findings([results(*scored("Softmax", *close[0]), *scored("AS-Softmax", *close[1]))])
    assert rows[0].claim == "AS-Softmax is better than softmax (+1.22 points)"
    assert rows[0].outcome == NO
    wide = results(*scored("Softmax", 0.5, 0.51, 0.52), *scored("AS-Softmax", 0.51, 0.51, 0.54))
    assert all_findings([wide])[0].outcome == OPEN
