"""AS-Softmax as a loop over Python floats, the judge of every kernel, and the rows to judge them on."""

from __future__ import annotations

import math

import torch
from torch import Tensor

# (rows, classes): one row, two classes, odd sizes, and more classes than a block of a kernel
SHAPES = ((1, 2), (7, 3), (64, 20), (61, 151), (5, 4099))  # of each form of torch.compile on CPU, too
HEAD_SHAPES = ((1, 2), (7, 3), (64, 20), (33, 151), (5, 1031))  # as many features as classes
IGNORED = -100
DELTA = 0.3


def twin(logits: Tensor, target: Tensor, delta: float) -> tuple[float, Tensor]:
    """The mean loss over valid rows (Eq. 6 and 7), and its gradient, in float64."""
    grad = torch.zeros(logits.shape, dtype=torch.float64)
    n_valid = max(1, sum(t != IGNORED for t in target.tolist()))
    total = 0.0
    for i, (row, t) in enumerate(zip(logits.double().tolist(), target.tolist(), strict=True)):
        if t == IGNORED:
            continue
        peak = max(row)
        weights = [math.exp(x - peak) for x in row]
        p = [w / math.fsum(weights) for w in weights]
        kept = [j for j in range(len(row)) if j == t or not p[t] - p[j] > delta + 4 * 2.0**-23]
        if len(kept) == 1:
            continue  # won
        log_sum = math.log(math.fsum(weights[j] for j in kept)) + peak
        total += log_sum - row[t]
        for j in kept:
            grad[i, j] = (math.exp(row[j] - log_sum) - (j == t)) / n_valid
    return total / n_valid, grad


def rows(n_rows: int, n_classes: int) -> tuple[Tensor, Tensor]:
    """Logits and targets: rows that are lost, close, won, at the margin, far apart, and an ignored one."""
    positions = torch.arange(n_rows * n_classes, dtype=torch.float64)
    logits = torch.sin(positions * 1.7).mul_(2).reshape(n_rows, n_classes)
    target = torch.arange(n_rows) * 7 % n_classes
    index = torch.arange(n_rows)
    logits[index, target] = (index % 7).double() * 3 - 4.1
    logits[index[1::3], (target[1::3] + 1) % n_classes] = logits[index[1::3], target[1::3]] - 0.3
    if n_classes > 2:
        for i in range(2, n_rows, 4):
            logits[i] = _row_at_the_margin(n_classes).roll(int(target[i]))
    if n_rows > 5:
        target[5] = IGNORED
    if n_rows > 6:
        logits[6] *= 20
    return logits.bfloat16().float(), target  # exact in every dtype


def _row_at_the_margin(n_classes: int) -> Tensor:
    """A row whose class 0 leads class 1 by a little less than δ, and class 2 by a little more.

    With weights 1 for class 0, a for the next two and m for all others, p_t − p_i = δ where
    1 − a = δ (1 + 2a + m).
    """
    others = torch.full((n_classes,), math.log(0.2 / n_classes), dtype=torch.float64).bfloat16().double()
    mass = (n_classes - 3) * math.exp(others[0])
    at_margin = math.log((1 - DELTA * (1 + mass)) / (1 + 2 * DELTA))
    others[:3] = torch.tensor([0.0, at_margin + 0.01, at_margin - 0.01])
    return others
