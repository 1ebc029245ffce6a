"""Slow twins of every equation: loops over Python floats that every fast implementation is compared with.

They compute one row at a time, `o` is a list of logits. There are no tensors, batches, gradients or ignored
rows.
"""

from __future__ import annotations

import math


def log_sum_exp(terms: list[float]) -> float:
    """log Σ exp(x); log 0 = -inf for no terms."""
    if not terms:
        return -math.inf
    peak = max(terms)
    return peak + math.log(math.fsum(math.exp(x - peak) for x in terms))


def probabilities(o: list[float]) -> list[float]:
    """Eq. 1."""
    lse = log_sum_exp(o)
    return [math.exp(x - lse) for x in o]


def is_conceded(o: list[float], t: int, concede: float | None) -> bool:
    """A rival is ahead of the target by more than κ."""
    p = probabilities(o)
    return concede is not None and any(p[i] - p[t] > concede for i in range(len(o)) if i != t)


def softmax(o: list[float], t: int, concede: float | None = None) -> float:
    """Eq. 2."""
    return 0.0 if is_conceded(o, t, concede) else log_sum_exp([x - o[t] for x in o])


def t_softmax(o: list[float], t: int, tau: float) -> float:
    """Eq. 20."""
    return softmax([x / tau for x in o], t)


def label_smoothing(o: list[float], t: int, epsilon: float) -> float:
    """A.3."""
    n = len(o)
    if n == 1:
        return 0.0
    weights = [1 - epsilon if i == t else epsilon / (n - 1) for i in range(n)]
    return math.fsum(w * softmax(o, i) for i, w in enumerate(weights) if w > 0)


def sparse_softmax(o: list[float], t: int, k: int) -> float:
    """Sun et al., Eq. 5."""
    return log_sum_exp([x - o[t] for x in sorted(o, reverse=True)[:k]])


def am_softmax(o: list[float], t: int, scale: float, margin: float) -> float:
    """Eq. 21."""
    return softmax([scale * (x - margin) if i == t else scale * x for i, x in enumerate(o)], t)


def gce(o: list[float], t: int, q: float) -> float:
    """Zhang & Sabuncu 2018."""
    return (1 - probabilities(o)[t] ** q) / q


def focal(o: list[float], t: int, gamma: float) -> float:
    """Lin et al. 2017, Eq. 4."""
    return float((1 - probabilities(o)[t]) ** gamma * softmax(o, t))


def sce(o: list[float], t: int, alpha: float, beta: float) -> float:
    """Wang et al. 2019, with A = −4."""
    reverse = -math.fsum(p * (0 if i == t else -4) for i, p in enumerate(probabilities(o)))
    return alpha * softmax(o, t) + beta * reverse


def as_softmax_kept(o: list[float], t: int, delta: float) -> list[int]:
    """Eq. 6, strict: the classes left, the target among them."""
    p = probabilities(o)
    return [i for i in range(len(o)) if i == t or not p[t] - p[i] > delta]


def as_softmax(o: list[float], t: int, delta: float, concede: float | None = None) -> float:
    """Eq. 7."""
    if is_conceded(o, t, concede):
        return 0.0
    return log_sum_exp([o[i] - o[t] for i in as_softmax_kept(o, t, delta)])


def as_logit(o: list[float], t: int, margin: float, concede: float | None = None) -> float:
    """Eq. 8."""
    if is_conceded(o, t, concede):
        return 0.0
    return log_sum_exp([x - o[t] for i, x in enumerate(o) if i == t or not o[t] - x > margin])


def entmax(o: list[float], alpha: float) -> list[float]:
    """α-entmax by bisection on its threshold: p_i = max((α−1) o_i − θ, 0)^(1/(α−1)), Σ p = 1."""
    x = [(alpha - 1) * (v - max(o)) for v in o]
    low, high = -1.0, 0.0
    for _ in range(200):
        theta = (low + high) / 2
        total = math.fsum(max(v - theta, 0.0) ** (1 / (alpha - 1)) for v in x)
        low, high = (theta, high) if total >= 1 else (low, theta)
    return [max(v - low, 0.0) ** (1 / (alpha - 1)) for v in x]


def entmax_loss(o: list[float], t: int, alpha: float) -> float:
    """The Fenchel-Young loss of α-entmax."""
    p = entmax(o, alpha)
    entropy = (1 - math.fsum(v**alpha for v in p)) / (alpha * (alpha - 1))
    return max(math.fsum(v * (x - o[t]) for v, x in zip(p, o, strict=True)) + entropy, 0.0)


def sparsemax(o: list[float], t: int) -> float:
    return entmax_loss(o, t, 2.0)


def entmax15(o: list[float], t: int) -> float:
    return entmax_loss(o, t, 1.5)


def _members(o: list[float], labels: list[int]) -> tuple[list[int], list[int]]:
    return [i for i in range(len(o)) if labels[i] == 1], [i for i in range(len(o)) if labels[i] == 0]


def _eq14(o: list[float], positive: list[int], negative: list[int]) -> float:
    return log_sum_exp([0.0] + [o[i] for i in negative]) + log_sum_exp([0.0] + [-o[t] for t in positive])


def is_conceded_row(o: list[float], labels: list[int], concede: float | None) -> bool:
    """A negative label is ahead of a positive one by more than κ."""
    positive, negative = _members(o, labels)
    members = positive + negative
    p = dict(zip(members, probabilities([o[i] for i in members]), strict=True))
    return concede is not None and any(p[i] - p[t] > concede for i in negative for t in positive)


def multilabel_softmax(o: list[float], labels: list[int], concede: float | None = None) -> float:
    """Eq. 14."""
    if is_conceded_row(o, labels, concede):
        return 0.0
    return _eq14(o, *_members(o, labels))


def multilabel_t_softmax(o: list[float], labels: list[int], tau: float) -> float:
    return multilabel_softmax([x / tau for x in o], labels)


def multilabel_sparse_softmax(o: list[float], labels: list[int], k: int) -> float:
    positive, negative = _members(o, labels)
    return _eq14(o, sorted(positive, key=lambda t: o[t])[:k], sorted(negative, key=lambda i: -o[i])[:k])


def multilabel_as_softmax_kept(
    o: list[float], labels: list[int], delta: float
) -> tuple[list[int], list[int]]:
    """Eq. 15 to 17."""
    positive, negative = _members(o, labels)
    if not positive or not negative:
        return positive, negative
    members = positive + negative
    p = dict(zip(members, probabilities([o[i] for i in members]), strict=True))
    weakest, strongest = min(p[t] for t in positive), max(p[i] for i in negative)
    kept_positive = [t for t in positive if not p[t] - strongest > delta]
    kept_negative = [i for i in negative if not weakest - p[i] > delta]
    return kept_positive, kept_negative


def multilabel_as_softmax(
    o: list[float], labels: list[int], delta: float, concede: float | None = None
) -> float:
    """Eq. 18."""
    if is_conceded_row(o, labels, concede):
        return 0.0
    return _eq14(o, *multilabel_as_softmax_kept(o, labels, delta))


TWINS = {
    "softmax": softmax,
    "t-softmax": t_softmax,
    "label-smoothing": label_smoothing,
    "sparse-softmax": sparse_softmax,
    "sparsemax": sparsemax,
    "entmax15": entmax15,
    "am-softmax": am_softmax,
    "gce": gce,
    "focal": focal,
    "sce": sce,
    "as-softmax": as_softmax,
    "as-logit": as_logit,
    "multilabel-softmax": multilabel_softmax,
    "multilabel-t-softmax": multilabel_t_softmax,
    "multilabel-sparse-softmax": multilabel_sparse_softmax,
    "multilabel-as-softmax": multilabel_as_softmax,
}
