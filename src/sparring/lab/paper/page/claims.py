"""The papers' claims against our records: what our runs show, and whether that is significant over seeds."""

import statistics
from collections.abc import Callable, Iterator, Sequence

from sparring.lab.differences import LEAST_SEEDS, LEVEL, Difference, difference
from sparring.lab.paper import published
from sparring.lab.paper.methods import (
    AS_SOFTMAX,
    AS_SPEED,
    HARD_SAMPLES,
    RANDOM_SAMPLES,
    SOFTMAX,
    SPARSE_SOFTMAX,
    Method,
)
from sparring.lab.paper.page import claimed
from sparring.lab.paper.page.finding import NO, OPEN, YES, Finding, compared, describe, outcome, seed_count
from sparring.lab.paper.study_records import Results

BETTER = "AS-Softmax is better than softmax"
FOLLOWS = "AS-Softmax's dev loss follows quality more closely than softmax's"
AS_LONG = "AS-Softmax takes about as long as softmax"
TIME_UNIT = "% of softmax's time"
ABOUT_AS_LONG = 5.0  # percent of softmax's time


def accuracy(results: Results) -> Iterator[Finding]:
    for task in results.tasks:
        for metric in results.metrics(task):
            yield from _pair(results, task, metric)
        yield from _times(results, task)
        yield from _follows(results, task)


def _pair(results: Results, task: str, metric: str) -> Iterator[Finding]:
    own, mean = claimed.gain(task, metric), claimed.mean_gain()
    claim = f"{BETTER}{claimed.words(own, mean, 'points')}"
    pair = [results.by_seed(task, method, metric) for method in (AS_SOFTMAX, SOFTMAX)]
    yield from compared(claim, f"{task} {metric}", pair, claimed=mean if own is None else own)


def table2(results: Results) -> Iterator[Finding]:
    for task in results.tasks:
        for metric in results.metrics(task):
            yield from _pair(results, task, metric)
    yield from _best_of_all(results)


def _best_of_all(results: Results) -> Iterator[Finding]:
    """Against the strongest rival over tasks; if it is ahead, p is corrected for choosing it."""
    scores: dict[Method, dict[int, float]] = {}
    ranks = []
    for i, task in enumerate(results.tasks):  # by its first metric: two of one task are not independent
        means = {
            method: score["mean"]
            for method in results.methods(task)
            if method.name in published.QUALITY and (score := results.score(task, method)) is not None
        }
        if AS_SOFTMAX in means and len(means) > 1:
            ranks.append(1 + sum(mean > means[AS_SOFTMAX] for mean in means.values()))
            for method, mean in means.items():
                scores.setdefault(method, {})[i] = mean
    ours = scores.pop(AS_SOFTMAX, {})
    gaps = {method: gap for method in scores if (gap := difference(ours, scores[method])) is not None}
    if not gaps:
        return
    rival = min(gaps, key=lambda method: gaps[method].mean)
    gap = gaps[rival]
    if gap.p is not None and gap.mean <= 0:
        gap = gap._replace(p=gap.p * len(gaps))
    place = f"{len(ranks)} task{'s' if len(ranks) > 1 else ''}"
    observed = (
        f"first on {ranks.count(1)} of {len(ranks)}; its strongest rival is {rival.name}, "
        f"{gap.mean:+.2f} points on {gap.n} of them"
    )
    yield Finding("AS-Softmax is the best of all", place, observed, outcome(gap))


def table3(results: Results) -> Iterator[Finding]:
    for task in results.tasks:
        yield from _times(results, task)


def _times(results: Results, task: str) -> Iterator[Finding]:
    gap = _time_gap(results, task, AS_SOFTMAX)
    if gap is not None:
        yield Finding(AS_LONG, task, describe(gap, TIME_UNIT), _within(gap, ABOUT_AS_LONG))
    gap = _time_gap(results, task, AS_SPEED)
    if gap is not None:
        own, mean = claimed.time(task), claimed.mean_time()
        claim = f"AS-Speed takes less time than softmax{claimed.words(own, mean, '%', 0)}"
        verdict = outcome(gap, -1, mean if own is None else own)
        yield Finding(claim, task, describe(gap, TIME_UNIT), verdict)


def _time_gap(results: Results, task: str, method: Method) -> Difference | None:
    """How much longer a method takes than softmax, in percent."""
    seconds, base = results.seconds(task, method), results.seconds(task, SOFTMAX)
    ours = {seed: 100 * s / base[seed] for seed, s in seconds.items() if seed in base}
    return difference(ours, dict.fromkeys(ours, 100.0))


def _within(gap: Difference, bound: float) -> str:
    """Whether the interval lies within the bounds, or outside of them."""
    if gap.low is None or gap.high is None:
        return OPEN
    if -bound < gap.low and gap.high < bound:
        return YES
    return NO if gap.low > bound or gap.high < -bound else OPEN


def table4(results: Results) -> Iterator[Finding]:
    for task in results.tasks:
        yield from _follows(results, task)


def _follows(results: Results, task: str) -> Iterator[Finding]:
    values = {method: results.correlations(task, method) for method in results.methods(task)}
    means = {method: statistics.mean(seeds.values()) for method, seeds in values.items() if seeds}
    gap = difference(values.get(AS_SOFTMAX, {}), values.get(SOFTMAX, {}))
    if gap is None:
        return
    observed = f"r = {means[AS_SOFTMAX]:.2f}, softmax {means[SOFTMAX]:.2f} ({seed_count(gap.n)})"
    if len(means) > 2:
        observed += f"; closest to -1: {min(means, key=lambda method: means[method]).name}"
    yield Finding(FOLLOWS, task, observed, outcome(gap, -1, claimed.correlation(task)))


def table7(results: Results) -> Iterator[Finding]:
    hard, random = (published.HARD_SAMPLES[method.name] for method in (HARD_SAMPLES, RANDOM_SAMPLES))
    for task in results.tasks:
        fall = hard[task] - random[task] if task in hard else None
        points = "" if fall is None else f" ({fall:+.2f} points)"
        claim = f"hard samples teach less than random ones{points}"
        metric = results.metrics(task)[0]
        scores = [results.by_seed(task, method, metric) for method in (HARD_SAMPLES, RANDOM_SAMPLES)]
        yield from compared(claim, task, scores, -1, fall)


def table8(results: Results) -> Iterator[Finding]:
    """The mean over tasks, as the paper has it, of the seeds that all tasks have."""
    metrics = {task: results.metrics(task)[0] for task in results.tasks}
    gains = [claimed.gain(task, metric) for task, metric in metrics.items()]
    own = None if None in gains else statistics.mean(gain for gain in gains if gain is not None)
    means = []
    for method in (AS_SOFTMAX, SOFTMAX):
        scores = [results.by_seed(task, method, metric) for task, metric in metrics.items()]
        seeds = set.intersection(*(set(score) for score in scores))
        means.append({seed: statistics.mean(score[seed] for score in scores) for seed in sorted(seeds)})
    place = f"mean of {', '.join(results.tasks)}"
    mean = claimed.mean_gain()
    claim = f"{BETTER} on GLUE{claimed.words(own, mean, 'points')}"
    yield from compared(claim, place, means, claimed=mean if own is None else own)


def figure1(results: Results) -> Iterator[Finding]:
    for task in results.tasks:
        shares = [record["steps"][-1]["won_share"] for record in results.of(task, AS_SOFTMAX)]
        won = 100 * statistics.mean(shares)
        left = f"{100 - won:.0f} % of the rows of the last batches have a loss"
        observed = f"{left}, {won:.0f} % are won ({seed_count(len(shares))})"
        yield Finding("few samples still count in the end", task, observed, YES if min(shares) > 0.5 else NO)


def _points(results: Results, task: str, setting: str) -> dict[float, dict[int, float]]:
    """Scores by seed of the methods that differ in a setting, by its value."""
    metric = results.metrics(task)[0]
    return {
        method.point[1]: results.by_seed(task, method, metric)
        for method in results.methods(task)
        if method.point and method.point[0] == setting
    }


def figure2(results: Results) -> Iterator[Finding]:
    for task in results.tasks:
        scores = _points(results, task, "delta")
        means = {delta: statistics.mean(values.values()) for delta, values in scores.items()}
        best = max(means, key=lambda delta: means[delta])
        highest, lowest = max(means.values()), min(means.values())
        observed = (
            f"highest at {best:g} ({highest:.2f}), lowest {lowest:.2f}: "
            f"{highest - lowest:.2f} points between them"
        )
        paper_value = published.BEST_DELTA.get(task)
        claim = "δ matters" if paper_value is None else f"δ matters, and {paper_value} is best"
        p = _friedman(list(scores.values()))
        result = OPEN if p is None or p > LEVEL else YES if paper_value in (None, best) else NO
        yield Finding(claim, task, observed, result)


def _friedman(columns: Sequence[dict[int, float]]) -> float | None:
    """p of Friedman's test: whether any of the columns differs from the others, seed by seed."""
    seeds = sorted(set.intersection(*(set(column) for column in columns)))
    if len(seeds) < LEAST_SEEDS or len(columns) < 3:
        return None
    from scipy.stats import friedmanchisquare

    p = float(friedmanchisquare(*([column[seed] for seed in seeds] for column in columns)).pvalue)
    return None if p != p else p  # NaN: all the same


def figure5(results: Results) -> Iterator[Finding]:
    for task in results.tasks:
        scores = _points(results, task, "margin")
        best = max(scores, key=lambda margin: statistics.mean(scores[margin].values()))
        claim = "a margin between logits is not as good as AS-Softmax at any margin"
        ours = results.by_seed(task, AS_SOFTMAX, results.metrics(task)[0])
        for finding in compared(claim, task, [ours, scores[best]]):
            observed = f"AS-Softmax against the best margin ({best:g}): {finding.observed}"
            yield finding._replace(observed=observed)


def sparse_table1(results: Results) -> Iterator[Finding]:
    method = SPARSE_SOFTMAX.at("k", 20)
    for task in results.tasks:
        gain = claimed.sparse_gain(published.SPARSE_QUALITY, method.name, SOFTMAX.name, task, "micro_f1")
        claim = "Sparse-Softmax with k = 20 is better than softmax"
        yield from _sparse_against_softmax(results, task, claim, "micro_f1", gain, method=method)


def sparse_table3(results: Results) -> Iterator[Finding]:
    for task in results.tasks:
        metric = results.metrics(task)[0]
        names = (SPARSE_SOFTMAX.name, SOFTMAX.name)
        gain = claimed.sparse_gain(published.SPARSE_GENERATION, *names, task, metric)
        claim = "Sparse-Softmax is better than softmax"
        yield from _sparse_against_softmax(results, task, claim, metric, gain)


def sparse_table6(results: Results) -> Iterator[Finding]:
    claims = {"from scratch": "Sparse-Softmax hurts a network from scratch"}
    claims["pre-trained"] = "Sparse-Softmax helps a pre-trained one"
    for task in results.tasks:
        metric = results.metrics(task)[0]
        for form, claim in claims.items():
            names = (SPARSE_SOFTMAX.printed(form), SOFTMAX.printed(form))
            gain = claimed.sparse_gain(published.SPARSE_IMAGES, *names, task, metric)
            sign = -1 if form == "from scratch" else 1
            yield from _sparse_against_softmax(results, task, claim, metric, gain, form, sign)


def _sparse_against_softmax(
    results: Results,
    task: str,
    claim: str,
    metric: str,
    gain: float | None,
    form: str = "",
    sign: float = 1.0,
    method: Method = SPARSE_SOFTMAX,
) -> Iterator[Finding]:
    scores = [results.by_seed(task, m, metric, form) for m in (method, SOFTMAX)]
    claim += claimed.words(gain, None, "points")
    yield from compared(claim, f"{task} {metric}", scores, sign, gain)


CLAIMS: dict[str, Callable[[Results], Iterator[Finding]]] = {
    "accuracy": accuracy,
    "table2": table2,
    "table3": table3,
    "table4": table4,
    "table7": table7,
    "table8": table8,
    "figure1": figure1,
    "figure2": figure2,
    "figure5": figure5,
    "sparse table1": sparse_table1,
    "sparse table3": sparse_table3,
    "sparse table6": sparse_table6,
}


def all_findings(studies: Sequence[Results]) -> list[Finding]:
    """The findings of all studies, one for each claim about a task.

    The study with more seeds decides, but for Table 4: how loss and quality go together depends on how long
    one trains, so that its own runs come first.
    """
    rows = {results.study: findings(results) for results in studies}
    ordered = [*rows.pop("table4", []), *rows.pop("accuracy", [])]
    ordered += [row for study_rows in rows.values() for row in study_rows]
    first: dict[tuple[str, str], Finding] = {}
    for row in ordered:
        first.setdefault((_kind(row), row.task), row)
    return sorted(first.values(), key=lambda row: row.claim == FOLLOWS)


def _kind(row: Finding) -> str:
    """The claim without the paper's number."""
    return BETTER if row.claim.startswith(BETTER) else row.claim


def findings(results: Results) -> list[Finding]:
    """What the records of a study say about the claims made for it."""
    return list(CLAIMS[results.study](results)) if results.study in CLAIMS else []
