"""Verdicts on the papers' claims, on records made by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sparring import cli
from sparring.lab.paper import claims, page
from sparring.lab.paper.claims import NO, OPEN, YES, verdict
from sparring.lab.paper.results import Results, write_results
from sparring.lab.runs.summaries import difference
from tests.lab.paper.test_studies import one


def scored(method: str, *scores: float, **values: Any) -> list[dict[str, Any]]:
    return [one(method, seed, test={"accuracy": score}, **values) for seed, score in enumerate(scores)]


def of(study: str, *groups: list[dict[str, Any]]) -> Results:
    return Results(study, [each for group in groups for each in group], {"sst5": "small scale"})


def test_difference_is_paired() -> None:
    gap = difference({0: 2.0, 1: 3.1, 2: 4.0, 9: 0.0}, {0: 1.0, 1: 2.0, 2: 3.0})
    assert gap is not None
    assert (gap.n, round(gap.mean, 3)) == (3, 1.033)
    assert gap.p is not None
    assert gap.p < 0.01
    assert verdict(gap) == YES
    assert verdict(gap, -1) == NO


def test_two_seeds_allow_no_verdict() -> None:
    gap = difference({0: 2.0, 1: 3.1}, {0: 1.0, 1: 2.0})
    assert gap is not None
    assert (gap.p, verdict(gap)) == (None, OPEN)
    assert difference({0: 1.0}, {1: 1.0}) is None


@pytest.mark.parametrize(
    ("softmax", "verdict"), [((0.50, 0.51, 0.52), YES), ((0.60, 0.612, 0.62), NO), ((0.50, 0.58, 0.54), OPEN)]
)
def test_better_than_softmax(softmax: tuple[float, ...], verdict: str) -> None:
    better, _ = claims.findings(
        of("table2", scored("Softmax", *softmax), scored("AS-Softmax", 0.53, 0.545, 0.55))
    )
    assert better.claim == "AS-Softmax is better than softmax by +1.22 points"
    assert better.verdict == verdict


def test_best_of_all() -> None:
    _, best = claims.findings(
        of("table2", scored("Softmax", 0.5, 0.51, 0.52), scored("AS-Softmax", 0.4, 0.41, 0.425))
    )
    assert (best.verdict, best.found) == (NO, "it is number 2 of 2; the best is Softmax (51.00)")


def test_to_be_first_is_not_enough() -> None:
    _, best = claims.findings(
        of("table2", scored("Softmax", 0.5, 0.55, 0.52), scored("AS-Softmax", 0.52, 0.53, 0.56))
    )
    assert best.verdict == OPEN


@pytest.mark.parametrize(
    ("seconds", "verdict"), [((20.1, 20.3, 20.2), YES), ((26.0, 26.5, 27.0), NO), ((19.0, 21.0, 23.0), OPEN)]
)
def test_about_as_long(seconds: tuple[float, ...], verdict: str) -> None:
    softmax = [one("Softmax", seed, cpu_seconds=20.0) for seed in range(3)]
    (found,) = claims.findings(
        of("table3", softmax, [one("AS-Softmax", seed, cpu_seconds=s) for seed, s in enumerate(seconds)])
    )
    assert found.verdict == verdict


def test_delta_matters_where_all_seeds_say_so() -> None:
    groups = [
        scored(f"delta={d}", *(base + gain for base in (0.4, 0.45, 0.5)))
        for d, gain in ((0.1, 0.0), (0.2, 0.03), (0.3, 0.01))
    ]
    (found,) = claims.findings(of("figure2", *groups))
    assert (found.claim, found.verdict) == ("δ matters, and 0.2 is best", YES)
    mixed = [
        scored("delta=0.1", 0.4, 0.5, 0.45),
        scored("delta=0.2", 0.5, 0.4, 0.46),
        scored("delta=0.3", 0.45, 0.45, 0.44),
    ]
    assert claims.findings(of("figure2", *mixed))[0].verdict == OPEN


def test_time() -> None:
    slow, fast = (
        [one(m, seed, cpu_seconds=s + seed) for seed in range(3)]
        for m, s in (("Softmax", 20.0), ("AS-Speed", 16.0))
    )
    (found,) = claims.findings(of("table3", slow, fast))
    assert (found.claim, found.verdict) == ("AS-Speed takes less time than softmax (-22 %)", YES)
    assert found.found.startswith("-19.08 % of softmax's time")


def test_page(tmp_path: Path) -> None:
    write_results(
        tmp_path / "in" / "table2.jsonl",
        of("table2", scored("Softmax", 0.5, 0.51, 0.52), scored("AS-Softmax", 0.53, 0.545, 0.55)),
    )
    (tmp_path / "in" / "table2_sst5.svg").write_text("<svg/>")
    assert cli.main(["paper", "page", "--records", str(tmp_path / "in"), "--save", str(tmp_path)]) == 0
    made = (tmp_path / "README.md").read_text()
    assert "Of 2 claims held against our runs, 2 reproduced, 0 did not" in made
    assert "| AS-Softmax | 54.17 ± 1.04 | 53.12 |" in made
    assert "+3.17 points (3 seeds, 95 %: " in made
    assert "(in/table2_sst5.svg)" in made


def test_over_tasks_a_task_is_a_point() -> None:
    found = [
        one(method, seed, task=task, test={"accuracy": score + seed / 100})
        for task, base, gain in (("sst5", 0.5, 0.01), ("clinc_oos", 0.8, 0.03), ("languages", 0.6, 0.02))
        for method, score in (("Softmax", base), ("AS-Softmax", base + gain))
        for seed in range(2)
    ]
    text = page.over_tasks([Results("table2", found, {})])
    assert "| AS-Softmax | 3 | +2.00 | -0.48 to +4.48 | 3 of 3 |" in text
    assert "| Softmax |" not in text
    assert page.over_tasks([of("table2", scored("Softmax", 0.5), scored("AS-Softmax", 0.6))]) == ""


def test_page_of_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["paper", "page", "--records", str(tmp_path), "--save", str(tmp_path)]) == 1
    assert "no records of studies" in capsys.readouterr().err


def test_the_clock_counts_where_there_is_a_gpu() -> None:
    found = of(
        "table3",
        [
            one("Softmax", 0, seconds=30.0, cpu_seconds=9.0, machine={"gpu": "A100"}),
            one("Softmax", 1, cpu_seconds=8.0),
        ],
    )
    assert found.seconds("sst5", "Softmax") == {0: 30.0, 1: 8.0}
