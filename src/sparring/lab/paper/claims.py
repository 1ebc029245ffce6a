"""What the papers claim, held against our records: for each claim what came out, and whether the spread over seeds allows a verdict."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from sparring.lab.paper import published as paper
from sparring.lab.paper.results import Results
from sparring.lab.paper.tables import figures_of, named, published
from sparring.lab.runs.summaries import LEAST_SEEDS, Difference, difference

YES, NO, OPEN = "reproduced", "not reproduced", "cannot be told"
LEVEL = 0.05


class Finding(NamedTuple):
    claim: str
    task: str
    found: str
    verdict: str


def verdict(gap: Difference | None, sign: float = 1.0) -> str:
    """Whether a difference with the claimed sign is there."""
    if gap is None or gap.p is None or gap.p > LEVEL:
        return OPEN
    return YES if sign * gap.mean > 0 else NO


def words(gap: Difference, unit: str = "points") -> str:
    sure = "" if gap.p is None else f", 95 %: {gap.low:+.2f} to {gap.high:+.2f}, p = {gap.p:.2g}"
    return f"{gap.mean:+.2f} {unit} ({gap.n} seeds{sure})"


def by_seed(results: Results, task: str, method: str, figure: str) -> dict[int, float]:
    """In percent."""
    found = results.figure(task, method, figure)
    return (
        dict(zip([each["seed"] for each in results.of(task, method)], found["values"], strict=True))
        if found
        else {}
    )


def table2(results: Results) -> Iterator[Finding]:
    for task in results.tasks:
        for figure in figures_of(results, task):
            scores = {method: by_seed(results, task, method, figure) for method in results.methods(task)}
            gap = difference(scores.get("AS-Softmax", {}), scores.get("Softmax", {}))
            theirs = [published(paper.QUALITY, name, task, figure) for name in ("AS-Softmax", "Softmax")]
            claimed = "" if None in theirs else f" by {theirs[0] - theirs[1]:+.2f} points"  # type: ignore[operator]
            if gap is not None:
                yield Finding(
                    f"AS-Softmax is better than softmax{claimed}",
                    f"{task} {figure}",
                    words(gap),
                    verdict(gap),
                )
            means = {
                name: statistics.mean(values.values())
                for name, values in scores.items()
                if name in paper.QUALITY and values
            }
            best = max(means, key=lambda name: means[name])
            rank = sorted(means.values(), reverse=True).index(means["AS-Softmax"]) + 1
            found = f"it is number {rank} of {len(means)}; the best is {best} ({means[best]:.2f})"
            yield Finding(
                "AS-Softmax is the best of all", f"{task} {figure}", found, _best_of_all(scores, means)
            )


def _best_of_all(scores: dict[str, dict[int, float]], means: dict[str, float]) -> str:
    """Against the best of the others; where that one is ahead, it was picked among so many, so p counts so many times."""
    best = max((name for name in means if name != "AS-Softmax"), key=lambda name: means[name])
    gap = difference(scores["AS-Softmax"], scores[best])
    if gap is None or gap.p is None or gap.p * (1 if gap.mean > 0 else len(means) - 1) > LEVEL:
        return OPEN
    return YES if gap.mean > 0 else NO


def table3(results: Results) -> Iterator[Finding]:
    for task in results.tasks:
        seconds = {method: results.seconds(task, method) for method in results.methods(task)}
        for method in ("AS-Softmax", "AS-Speed"):
            theirs = paper.TIME[method].get(task)
            ours = {
                seed: 100 * s / seconds["Softmax"][seed]
                for seed, s in seconds.get(method, {}).items()
                if seed in seconds["Softmax"]
            }
            gap = difference(ours, dict.fromkeys(ours, 100.0))
            if gap is not None and method == "AS-Speed":
                claim = "AS-Speed takes less time than softmax" + (
                    "" if theirs is None else f" ({theirs:+d} %)"
                )
                yield Finding(claim, task, words(gap, "% of softmax's time"), verdict(gap, -1))
            elif gap is not None:
                found = words(gap, "% of softmax's time")
                yield Finding("AS-Softmax takes about as long as softmax", task, found, _within(gap, 5.0))


def _within(gap: Difference, bound: float) -> str:
    """Whether the interval lies within bounds, or outside of them."""
    if gap.low is None or gap.high is None:
        return OPEN
    if -bound < gap.low and gap.high < bound:
        return YES
    return NO if gap.low > bound or gap.high < -bound else OPEN


def table4(results: Results) -> Iterator[Finding]:
    for task in results.tasks:
        means = {
            m: r["mean"] for m in results.methods(task) if (r := results.over_seeds(task, m, "correlation"))
        }
        if "AS-Softmax" not in means or "Softmax" not in means:
            continue
        seeds = {
            m: {
                each["seed"]: each["correlation"]
                for each in results.of(task, m)
                if each["correlation"] is not None
            }
            for m in means
        }
        gap = difference(seeds["AS-Softmax"], seeds["Softmax"])
        found = f"r = {means['AS-Softmax']:.2f}, softmax {means['Softmax']:.2f}; closest to -1: {min(means, key=lambda m: means[m])}"
        yield Finding(
            "AS-Softmax's dev loss follows quality more closely than softmax's", task, found, verdict(gap, -1)
        )


def table7(results: Results) -> Iterator[Finding]:
    for task in results.tasks:
        figure = figures_of(results, task)[0]
        gap = difference(*(by_seed(results, task, f"{name} samples", figure) for name in ("Hard", "Random")))
        if gap is not None:
            theirs = paper.HARD_SAMPLES["Hard samples"] - paper.HARD_SAMPLES["Random samples"]
            claim = "hard samples teach less than random ones" + (
                f" ({theirs:+.2f} points)" if task == "sst5" else ""
            )
            yield Finding(claim, task, words(gap), verdict(gap, -1))


def figure1(results: Results) -> Iterator[Finding]:
    for task in results.tasks:
        ends = [each["steps"][-1]["won_share"] for each in results.of(task, "AS-Softmax")]
        share = statistics.mean(ends)
        yield Finding(
            "few samples still count in the end",
            task,
            f"{share:.0%} of the last batches",
            YES if min(ends) > 0.5 else NO,
        )


def figure2(results: Results) -> Iterator[Finding]:
    for task in results.tasks:
        figure = figures_of(results, task)[0]
        points = {
            float(m[6:]): statistics.mean(by_seed(results, task, m, figure).values())
            for m in results.methods(task)
            if m.startswith("delta=")
        }
        best = max(points, key=lambda d: points[d])
        spread = max(points.values()) - min(points.values())
        theirs = paper.BEST_DELTA.get(task)
        claim = "δ matters" + ("" if theirs is None else f", and {theirs} is best")
        found = f"highest at {best:g} ({points[best]:.2f}), lowest {min(points.values()):.2f}: {spread:.2f} points between them"
        p = _any_difference([by_seed(results, task, f"delta={d:g}", figure) for d in points])
        yield Finding(
            claim, task, found, OPEN if p is None or p > LEVEL else YES if theirs in (None, best) else NO
        )


def _any_difference(columns: Sequence[dict[int, float]]) -> float | None:
    """p of Friedman's test: whether any of them differs from the others, seed by seed."""
    seeds = sorted(set.intersection(*(set(column) for column in columns)))
    if len(seeds) < LEAST_SEEDS or len(columns) < 3:
        return None
    from scipy.stats import friedmanchisquare

    p = float(friedmanchisquare(*([column[seed] for seed in seeds] for column in columns)).pvalue)
    return None if p != p else p  # all the same


def figure5(results: Results) -> Iterator[Finding]:
    for task in results.tasks:
        figure = figures_of(results, task)[0]
        ours = by_seed(results, task, "AS-Softmax", figure)
        margins = {
            m: by_seed(results, task, m, figure) for m in results.methods(task) if m.startswith("margin=")
        }
        means = {m: statistics.mean(values.values()) for m, values in margins.items()}
        best = max(means, key=lambda m: means[m])
        gap = difference(ours, margins[best])
        if gap is not None:
            found = f"AS-Softmax against the best margin ({best[7:]}): {words(gap)}"
            yield Finding(
                "a margin between logits is not as good as AS-Softmax at any margin",
                task,
                found,
                verdict(gap),
            )


def sparse_table1(results: Results) -> Iterator[Finding]:
    for task in results.tasks:
        scores = {m: by_seed(results, task, m, "micro_f1") for m in results.methods(task)}
        if "k=20" in scores:
            gap = difference(scores["k=20"], scores["Softmax"])
            if gap is not None:
                yield Finding(
                    "Sparse-Softmax with k = 20 is better than softmax", task, words(gap), verdict(gap)
                )


def sparse_table3(results: Results) -> Iterator[Finding]:
    for task in results.tasks:
        figure = figures_of(results, task)[0]
        gap = difference(*(by_seed(results, task, name, figure) for name in ("Sparse-Softmax", "Softmax")))
        if gap is not None:
            yield Finding(
                "Sparse-Softmax is better than softmax", f"{task} {figure}", words(gap), verdict(gap)
            )


def sparse_table6(results: Results) -> Iterator[Finding]:
    for task in results.tasks:
        figure = figures_of(results, task)[0]
        for form, sign, claim in (
            ("from scratch", -1, "hurts a network from scratch"),
            ("pre-trained", 1, "helps a pre-trained one"),
        ):
            gap = difference(
                *(by_seed(results, task, named(name, form), figure) for name in ("Sparse-Softmax", "Softmax"))
            )
            if gap is not None:
                yield Finding(f"Sparse-Softmax {claim}", f"{task} {figure}", words(gap), verdict(gap, sign))


CLAIMS: dict[str, Callable[[Results], Iterator[Finding]]] = {
    "table2": table2,
    "table3": table3,
    "table4": table4,
    "table7": table7,
    "figure1": figure1,
    "figure2": figure2,
    "figure5": figure5,
    "sparse table1": sparse_table1,
    "sparse table3": sparse_table3,
    "sparse table6": sparse_table6,
}


def findings(results: Results) -> list[Finding]:
    return list(CLAIMS[results.study](results)) if results.study in CLAIMS else []


def tally(found: Sequence[Finding]) -> dict[str, int]:
    return {verdict: sum(each.verdict == verdict for each in found) for verdict in (YES, NO, OPEN)}


def markdown(found: Sequence[Finding]) -> str:
    rows: list[Any] = [
        ("the papers' claim", "task", "ours", ""),
        ("---",) * 4,
        *((f.claim, f.task, f.found, f.verdict) for f in found),
    ]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)
