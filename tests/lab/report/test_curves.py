"""Journals as rows to draw: means over seeds, thinned, on a clock of epochs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sparring.lab.report import curves
from sparring.lab.report.build import collect
from tests.lab.conftest import section


@pytest.fixture(scope="module")
def facts(digits: Path) -> dict[str, Any]:
    return collect(section(digits))


def test_curves_end_where_the_runs_did(facts: dict[str, Any], digits: Path) -> None:
    last = [row for row in facts["curves"]["metric"] if row["contestant"] == "softmax"][-1]
    ends = [run.lines("evaluations")[-1]["accuracy"] for run in section(digits).contestants[0].runs.values()]
    assert last["value"] == pytest.approx(100 * sum(ends) / 3, rel=1e-4)
    assert last["low"] < last["value"] < last["high"] or len(set(ends)) == 1
    assert last["epochs"] == 3
    assert [row["epochs"] for row in facts["curves"]["metric"][:3]] == [
        0.5,
        1,
        1.5,
    ]  # 8 batches an epoch, a look every 4


def test_won_share_is_that_of_the_steps(facts: dict[str, Any], digits: Path) -> None:
    rows = facts["curves"]["won_share"]
    assert {row["value"] for row in rows if row["contestant"] == "softmax"} == {0}
    runs = section(digits).contestants[1].runs.values()
    mean = sum(line["won_share"] for run in runs for line in run.lines("steps")) / sum(
        len(run.lines("steps")) for run in runs
    )
    mine = [row["value"] for row in rows if row["contestant"] == "as-softmax delta=0.1"]
    assert len(mine) == 24
    assert sum(mine) / len(mine) == pytest.approx(100 * mean, rel=1e-3)


def test_lines_are_thinned_and_keep_their_mean(digits: Path) -> None:
    each = section(digits).contestants[0]
    few, all_of_them = (curves.steps(each, ["loss"], n)["loss"] for n in (6, 300))
    assert (len(few), len(all_of_them)) == (6, 24)
    assert sum(row["value"] for row in few) / 6 == pytest.approx(
        sum(row["value"] for row in all_of_them) / 24, rel=1e-3
    )


def test_the_clock_knows_short_epochs() -> None:
    clock = curves.Clock(
        [{"epoch": 0, "step": s} for s in (5, 10)] + [{"epoch": 2, "step": s} for s in (11, 12)]
    )
    assert [
        clock({"epoch": e, "step": s}) for e, s in ((0, 5), (0, 10), (1, 10), (2, 11), (2, 12), (2, 13))
    ] == [0.5, 1, 2, 2.5, 3, 3]


def test_margins_add_up_at_every_look(facts: dict[str, Any]) -> None:
    rows = facts["curves"]["margins"]
    assert {row["evaluation"] for row in rows} == set(range(1, facts["looks"] + 1)) == {1, 2, 3, 4, 5, 6}
    for look in (1, 6):
        shares = [
            row["share"] for row in rows if row["evaluation"] == look and row["contestant"] == "softmax"
        ]
        assert sum(shares) == pytest.approx(100, abs=0.5)


def test_looks_are_thinned_alike_for_all(digits: Path) -> None:
    looks = curves.thinned(6, 3)
    rows = [row for each in section(digits).contestants for row in curves.margins(each, looks)]
    assert {(row["contestant"], row["evaluation"]) for row in rows} == {
        (name, i) for name in section(digits).names for i in (1, 2, 3)
    }


def test_delta_is_drawn_against_softmax(facts: dict[str, Any]) -> None:
    assert [(row["family"], row["setting"]) for row in facts["sensitivity"]["delta"]] == [
        ("as-softmax", 0.1),
        ("as-softmax", 0.3),
    ]
    assert list(facts["sensitivity"]) == ["delta"]
    assert facts["references"] == {"softmax": pytest.approx(100 * facts["rows"][0]["test"]["mean"], rel=1e-4)}
