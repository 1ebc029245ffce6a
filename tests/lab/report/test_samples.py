"""Predictions side by side: tests of the difference, classes and hardest samples, by hand."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from scipy.stats import ttest_rel

from sparring.lab.kinds import get_kind
from sparring.lab.report import samples
from sparring.lab.report.build import collect
from sparring.lab.report.gather import Contestant, Section
from sparring.lab.report.samples import Predictions, TestedRun
from sparring.lab.runs.records import RunFolder, write_lines
from tests.lab.conftest import section

# ------------------------------------------------------------ tests of the difference


def contestant(name: str, figures: dict[int, float]) -> Contestant:
    return Contestant(
        name, {}, {seed: {"seed": seed, "test": {"accuracy": value}} for seed, value in figures.items()}
    )


def paired(one: dict[int, float], other: dict[int, float]) -> dict[str, Any]:
    first, second = contestant("softmax", one), contestant("as-softmax", other)
    return samples.over_seeds(first, second, Section("t", {}, "accuracy", [first, second]))


def test_the_paired_test_is_scipys_on_the_common_seeds() -> None:
    found = paired({0: 0.5, 1: 0.6, 2: 0.55, 9: 0.1}, {2: 0.6, 1: 0.62, 0: 0.53})
    test = ttest_rel([0.53, 0.62, 0.6], [0.5, 0.6, 0.55])
    assert (found["n_seeds"], found["difference"]) == (3, pytest.approx(0.1 / 3))
    assert found["p_seeds"] == pytest.approx(test.pvalue)
    assert (found["low"], found["high"]) == pytest.approx(tuple(test.confidence_interval(0.95)))


@pytest.mark.parametrize(("seeds", "n"), [((0, 1), 2), ((7, 8, 9), 0)])
def test_no_test_with_fewer_than_three_seeds(seeds: tuple[int, ...], n: int) -> None:
    found = paired(dict.fromkeys(seeds, 0.5), {0: 0.6, 1: 0.7, 2: 0.8})
    assert (found["n_seeds"], found["p_seeds"], found["low"]) == (n, None, None)


def test_no_test_where_all_differences_are_the_same() -> None:
    assert paired({0: 0.5, 1: 0.25, 2: 0.75}, {0: 0.75, 1: 0.5, 2: 1.0})["p_seeds"] is None


def seen(golds: str, *guesses: str, kind: str = "multi-class") -> list[TestedRun]:
    rows = [{"text": f"{i}", "label": label} for i, label in enumerate(golds)]
    margins = [[0.5 if g == p else -0.5 for g, p in zip(golds, guess, strict=True)] for guess in guesses]
    return [
        TestedRun("", rows, list(guess), m, [g == p for g, p in zip(golds, guess, strict=True)])
        for guess, m in zip(guesses, margins, strict=True)
    ]


def predictions(first: list[TestedRun], second: list[TestedRun]) -> Predictions:
    made = Predictions(Section("t", {"kind": "multi-class"}, "accuracy", []))
    made.samples, made.runs = (
        first[0].samples,
        {"softmax": dict(enumerate(first)), "as-softmax": dict(enumerate(second))},
    )
    return made


def test_the_sign_test_with_one_seed_is_mcnemars() -> None:
    found = samples.over_samples(
        "softmax", "as-softmax", predictions(seen("aaaaaaaa", "abbbbbba"), seen("aaaaaaaa", "baaaaaaa"))
    )
    assert (found["better"], found["worse"], found["n_samples"]) == (6, 1, 8)
    assert found["p_samples"] == pytest.approx(2 * (1 + 7) / 2**7)  # 0 or 1 of 7, both sides


def test_a_sample_counts_once_however_many_seeds() -> None:
    found = samples.over_samples(
        "softmax", "as-softmax", predictions(seen("aaa", "bba", "bab"), seen("aaa", "aaa", "aba"))
    )
    assert (found["better"], found["worse"]) == (2, 0)  # the second is won once and lost once


def test_no_difference_is_no_evidence() -> None:
    assert (
        samples.over_samples("softmax", "as-softmax", predictions(seen("ab", "aa"), seen("ab", "aa")))[
            "p_samples"
        ]
        == 1
    )


def test_without_predictions_there_is_no_sign_test() -> None:
    assert (
        samples.over_samples("softmax", "other", predictions(seen("a", "a"), seen("a", "a")))["p_samples"]
        is None
    )


# ------------------------------------------------------------ classes and samples


def two(first: str, second: str) -> Section:
    return Section(
        "t", {"kind": "multi-class"}, "accuracy", [Contestant(name, {}, {}) for name in (first, second)]
    )


def test_f1_by_class_by_hand() -> None:
    found = samples.by_class(
        two("softmax", "as-softmax"), predictions(seen("aabbc", "abbbc"), seen("aabbc", "aabac")), least=1
    )
    rows = {row["class"]: (row["samples"], row["before"], row["after"]) for row in found}
    assert rows == {
        "a": (2, pytest.approx(2 / 3), pytest.approx(0.8)),
        "b": (2, pytest.approx(0.8), pytest.approx(2 / 3)),
    }  # c is alike
    assert [row["class"] for row in found] == ["a", "b"]  # gains first


def test_a_class_has_an_interval_unless_it_is_rare() -> None:
    golds = "a" * 40 + "b" * 40 + "c" * 5
    wrong = "b" * 20 + golds[20:80] + "a" * 5
    contestants, made = two("softmax", "as-softmax"), predictions(seen(golds, wrong), seen(golds, golds))
    rows = {row["class"]: row for row in samples.by_class(contestants, made)}
    assert set(rows) == {"a", "b"}  # c has five samples
    for row in rows.values():
        assert 0 < row["low"] < row["difference"] < row["high"]
    (same,) = {row["class"]: row for row in samples.by_class(contestants, made, least=5)}.keys() - rows.keys()
    assert same == "c"


def test_confusions_by_hand() -> None:
    made = predictions(seen("aaaabbc", "abbbbbc"), seen("aaaabbc", "aaabbac"))
    found = samples.confusions(two("softmax", "as-softmax"), made)
    assert found["classes"] == ["a", "b"]
    first, second = found["largest"]
    assert first == {"true": "a", "predicted": "b", "samples": 4, "softmax": 0.75, "as-softmax": 0.25}
    assert (second["true"], second["softmax"], second["as-softmax"]) == ("b", 0.0, 0.5)
    cells = {(c["contestant"], c["true"], c["predicted"]): c["share"] for c in found["cells"]}
    assert cells["as-softmax", "b", "b"] == 50.0
    assert len(cells) == 8
    right = predictions(seen("ab", "ab"), seen("ab", "ab"))
    assert samples.confusions(two("softmax", "as-softmax"), right)["largest"] == []


def test_gains_and_losses_are_bounded() -> None:
    letters = "abcdefghijklmnopqrstuvwxyz"
    found = samples.by_class(
        two("softmax", "as-softmax"),
        predictions(seen(letters, "z" * 26), seen(letters, letters)),
        most=4,
        least=1,
    )
    assert [row["difference"] > 0 for row in found] == [True] * 4


def test_a_character_that_only_one_of_them_touches() -> None:
    rows = [{"source": "axc", "target": "abc"}]
    first, second = (TestedRun("", rows, [guess], [0.0], [False]) for guess in ("abc", "abd"))
    made = predictions([first], [second])
    made.kind = get_kind("spelling")
    assert (
        samples.by_class(two("softmax", "as-softmax"), made, least=1) == []
    )  # b: both have it; c: one never touched it


def test_the_hardest_first_with_their_rivals() -> None:
    """The first sample is always right, so that it is not among them."""
    rows = samples.hardest(predictions(seen("abc", "acc", "acb"), seen("abc", "aba")), most=3)
    assert [(row["gold"], row["rivals"], row["right"], row["runs"]) for row in rows] == [
        ("b", {"c": 2}, 1, 3),
        ("c", {"b": 1, "a": 1}, 1, 3),
    ]


@pytest.mark.parametrize(
    ("kind", "sample", "guess", "expected"),
    [
        (
            "token",
            {"tokens": ["in", "Rome"], "tags": ["O", "B-LOC"]},
            ["O", "B-PER"],
            ["Rome: B-LOC → B-PER"],
        ),
        ("multi-label", {"text": "", "labels": ["a", "b"]}, ["c", "b"], ["−a", "+c"]),
        ("multi-label", {"text": "", "labels": ["a", "b"]}, ["b", "a"], []),
        ("spelling", {"source": "axc", "target": "abc"}, "abd", ["c → d"]),
        ("pair", {"text": "", "text_b": "", "label": "yes"}, "no", ["no"]),
        ("image", {"label": "7"}, "7", []),
    ],
)
def test_rivals_of_every_kind(kind: str, sample: dict[str, Any], guess: Any, expected: list[str]) -> None:
    assert get_kind(kind).mistakes(sample, guess) == expected


def test_accuracy_is_that_of_the_summary(digits: Path) -> None:
    each = section(digits)
    for run, summary in zip(
        each.contestants[0].runs.values(), each.contestants[0].summaries.values(), strict=True
    ):
        found = TestedRun.read(run, get_kind("image"))
        assert found is not None
        assert sum(found.correct) / len(found.correct) == pytest.approx(summary["test"]["accuracy"])


def test_other_test_samples_are_not_compared(digits: Path, tmp_path: Path) -> None:
    shutil.copytree(digits, tmp_path / "runs")
    for path in (tmp_path / "runs").rglob("as-softmax-delta0.1*/seed-*/predictions.jsonl"):
        path.write_text("".join(path.read_text().splitlines(keepends=True)[1:]))
    found = collect(section(tmp_path / "runs"))
    assert [row["p_samples"] is None for row in found["significance"]] == [True, False]


def test_a_run_without_suspects_counts(tmp_path: Path) -> None:
    """A label that one of two runs suspects does not look wrong in all runs."""
    line = {
        "index": 3,
        "sample": "x",
        "given": "a",
        "proposed": "b",
        "score": 2.0,
        "lead": 0.1,
        "conceded": 0.0,
    }
    runs = {seed: RunFolder(tmp_path / str(seed)) for seed in range(3)}
    for seed, lines in enumerate(([line], [])):  # the third run recorded no history
        runs[seed].path.mkdir()
        write_lines(runs[seed].path / "suspects.jsonl", lines)
    (suspect,) = samples.suspects(Section("t", {}, "accuracy", [Contestant("softmax", runs, {})]))
    assert (suspect["runs"], suspect["n_runs"]) == (1, 2)
