"""What our records say about the papers' claims, on records made by hand."""

from typing import Any

import pytest

from sparring.lab.paper.page import claims
from sparring.lab.paper.page.claims import findings
from sparring.lab.paper.page.finding import NO, OPEN, YES
from sparring.lab.paper.study_records import Results
from tests.lab.paper.conftest import record, scored
from tests.lab.paper.test_result_tables import images


def of(study: str, *groups: list[dict[str, Any]]) -> Results:
    return Results(study, [row for group in groups for row in group], {"sst5": "small scale"})


def timed(method: str, *seconds: float) -> list[dict[str, Any]]:
    return [record(method, seed, cpu_seconds=value) for seed, value in enumerate(seconds)]


@pytest.mark.parametrize(
    ("softmax", "expected"),
    [((0.50, 0.51, 0.52), YES), ((0.60, 0.612, 0.62), NO), ((0.50, 0.58, 0.54), OPEN)],
)
def test_better_than_softmax(softmax: tuple[float, ...], expected: str) -> None:
    results = of("table2", scored("Softmax", *softmax), scored("AS-Softmax", 0.53, 0.545, 0.55))
    better, _ = findings(results)
    assert better.claim == "AS-Softmax is better than softmax (+1.22 points)"
    assert better.outcome == expected


def over_tasks(**scores: tuple[float, ...]) -> Results:
    """Scores of methods on three tasks, each with one seed."""
    tasks = ("sst5", "clinc_oos", "languages")
    records = [
        record(method.replace("_", "-"), 0, task=task, test={"accuracy": value})
        for method, values in scores.items()
        for task, value in zip(tasks, values, strict=True)
    ]
    return Results("table2", records, dict.fromkeys(tasks, "small scale"))


@pytest.mark.parametrize(
    ("ours", "expected", "first"),
    [
        ((0.53, 0.84, 0.633), YES, "first on 3 of 3; its strongest rival is T-Softmax, +3.10 points on 3"),
        ((0.40, 0.705, 0.505), NO, "first on 0 of 3; its strongest rival is T-Softmax, -10.00 points on 3"),
        ((0.503, 0.83, 0.58), OPEN, "first on 2 of 3; its strongest rival is T-Softmax, +0.10 points on 3"),
    ],
)
def test_best_of_all_is_judged_over_tasks(ours: tuple[float, ...], expected: str, first: str) -> None:
    rivals = {"Softmax": (0.49, 0.7, 0.5), "T_Softmax": (0.50, 0.81, 0.6)}
    (*_, best) = findings(over_tasks(AS_Softmax=ours, **rivals))
    assert (best.claim, best.task) == ("AS-Softmax is the best of all", "3 tasks")
    assert best.observed.startswith(first)
    assert best.outcome == expected


@pytest.mark.parametrize(
    ("seconds", "expected"), [((20.1, 20.3, 20.2), YES), ((26.0, 26.5, 27.0), NO), ((19.0, 21.0, 23.0), OPEN)]
)
def test_about_as_long(seconds: tuple[float, ...], expected: str) -> None:
    (finding,) = findings(of("table3", timed("Softmax", 20, 20, 20), timed("AS-Softmax", *seconds)))
    assert finding.outcome == expected


def test_time() -> None:
    (finding,) = findings(of("table3", timed("Softmax", 20, 21, 22), timed("AS-Speed", 16, 17, 18)))
    assert (finding.claim, finding.outcome) == ("AS-Speed takes less time than softmax (-22 %)", YES)
    assert finding.observed.startswith("-19.08 % of softmax's time")


def test_delta_matters_where_all_seeds_agree() -> None:
    gains = {0.1: 0.0, 0.2: 0.03, 0.3: 0.01}
    groups = [scored(f"delta={d}", *(base + gain for base in (0.4, 0.45, 0.5))) for d, gain in gains.items()]
    (finding,) = findings(of("figure2", *groups))
    assert (finding.claim, finding.outcome) == ("δ matters, and 0.2 is best", YES)
    mixed = {0.1: (0.4, 0.5, 0.45), 0.2: (0.5, 0.4, 0.46), 0.3: (0.45, 0.45, 0.44)}
    groups = [scored(f"delta={delta}", *scores) for delta, scores in mixed.items()]
    assert findings(of("figure2", *groups))[0].outcome == OPEN


def test_the_best_margin_is_the_rival() -> None:
    ours, low, high = (
        scored("AS-Softmax", 0.6, 0.61, 0.625),
        scored("margin=1", 0.4, 0.4, 0.4),
        scored("margin=3", 0.5, 0.51, 0.52),
    )
    (finding,) = findings(of("figure5", ours, low, high))
    assert finding.observed.startswith("AS-Softmax against the best margin (3): +10.17 points")
    assert finding.outcome == YES


@pytest.mark.parametrize(
    ("gaps", "expected"), [((-0.02, 0.02), [YES, YES]), ((0.02, -0.02), [NO, NO]), ((0.0, 0.0), [NO, NO])]
)
def test_sparse_softmax_from_scratch_and_pre_trained(gaps: tuple[float, float], expected: list[str]) -> None:
    assert [finding.outcome for finding in claims.findings(images(*gaps))] == expected


def test_what_still_counts_is_not_what_is_won() -> None:
    steps = [{"step": 1, "loss": 0.1, "won_share": 0.61}]
    (finding,) = findings(of("figure1", [record("AS-Softmax", 0, steps=steps)]))
    assert finding.claim == "few samples still count in the end"
    assert finding.observed == "39 % of the rows of the last batches have a loss, 61 % are won (1 seed)"
    assert finding.outcome == YES


def test_glue_is_judged_by_its_mean_over_tasks() -> None:
    """Task by task the seeds vary; their mean does not."""

    def runs(method: str, task: str, *scores: float) -> list[dict[str, Any]]:
        return [
            record(method, seed, task=task, metric="matthews", test={"matthews": score, "accuracy": score})
            for seed, score in enumerate(scores)
        ]

    groups = [
        *runs("Softmax", "cola", 0.30, 0.34, 0.31),
        *runs("AS-Softmax", "cola", 0.33, 0.33, 0.325),
        *[{**run, "metric": "accuracy"} for run in runs("Softmax", "rte", 0.6, 0.6, 0.6)],
        *[{**run, "metric": "accuracy"} for run in runs("AS-Softmax", "rte", 0.6, 0.641, 0.61)],
    ]
    (finding,) = findings(Results("table8", groups, dict.fromkeys(("cola", "rte"), "small scale")))
    assert finding.claim == "AS-Softmax is better than softmax on GLUE (+1.59 points)"  # of +2.11 and +1.08
    assert finding.task == "mean of cola, rte"
    assert finding.observed.startswith("+1.43 points (3 seeds")
    assert finding.outcome == YES
