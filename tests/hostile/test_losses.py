"""Random batches of every shape, dtype and layout, with NaN and infinities, compared with the slow twins.

SPARRING_HOSTILE=100 runs a hundred times as many.
"""

from __future__ import annotations

import math
import os
import random
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

import sparring
from tests.cases import CASES, is_multilabel, largest, make
from tests.reference import TWINS, is_conceded

TRIALS = 10 * int(os.environ.get("SPARRING_HOSTILE", "1"))
DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8)
POISONS = (math.nan, math.inf, -math.inf)


@dataclass
class Trial:
    """One random call of a loss."""

    name: str
    settings: dict[str, Any]
    logits: Tensor  # in the shape and layout of the call
    target: Tensor
    weight: Tensor | None
    ignore_index: int
    reduction: str

    @classmethod
    def draw(cls, name: str, settings: dict[str, Any], seed: int) -> Trial:
        rng = random.Random(seed)
        torch.manual_seed(seed)
        n_classes = rng.choice((1, 2, 3, 7, 40))
        multilabel = is_multilabel(name)
        more = rng.choice(([], [rng.randrange(6)], [rng.randrange(1, 5), 3], [2, 1, 3]))
        shape = [*more, n_classes] if multilabel else [*more[:1], n_classes, *more[1:]]
        logits = torch.randn(shape, dtype=torch.float64) * 10 ** rng.uniform(-2, 2)
        ignore_index = rng.choice((-100, -1, 2))
        if multilabel:
            target = (torch.rand(shape) < rng.choice((0.0, 0.3, 1.0))).long()
        else:
            target = torch.randint(n_classes, shape[:1] + shape[2:] if len(shape) > 1 else ())
        target[torch.rand(target.shape) < rng.choice((0.0, 0.4, 1.0))] = ignore_index
        target = target.to(torch.float32 if multilabel and rng.random() < 0.3 else rng.choice(INTEGERS))
        logits = logits.to(rng.choice(DTYPES))
        for _ in range(rng.choice((0, 0, 1, 3)) if logits.numel() else 0):
            logits.view(-1)[rng.randrange(logits.numel())] = rng.choice(POISONS)
        weight = (
            None
            if multilabel or rng.random() < 0.6
            else torch.rand(n_classes) * (torch.rand(n_classes) < 0.8)
        )
        reduction = rng.choice(("none", "mean", "sum"))
        return cls(name, settings, _layout(logits, rng), target, weight, ignore_index, reduction)

    def loss(self) -> sparring.Loss:
        weight = {} if is_multilabel(self.name) else {"weight": self.weight}
        return make(
            self.name, self.settings, ignore_index=self.ignore_index, reduction=self.reduction, **weight
        )

    def rows(self) -> list[tuple[list[float], Any]]:
        """Logits and target of each row, as the loss sees them (float16 is exact in float32)."""
        class_last = (
            self.logits if is_multilabel(self.name) or self.logits.dim() == 1 else self.logits.movedim(1, -1)
        )
        logits = class_last.reshape(-1, class_last.shape[-1]).double().tolist()
        if is_multilabel(self.name):
            return list(
                zip(logits, self.target.reshape(-1, class_last.shape[-1]).long().tolist(), strict=True)
            )
        return list(zip(logits, self.target.reshape(-1).long().tolist(), strict=True))

    def is_valid(self, target: Any) -> bool:
        labels = [label for label in target if label in (0, 1)] if is_multilabel(self.name) else None
        return bool(labels) if labels is not None else target != self.ignore_index

    def expected(self, o: list[float], target: Any) -> float:
        """The loss of a valid row, by the equation and by what the documentation says of infinities."""
        twin = TWINS[self.name]
        if is_multilabel(self.name):
            counted = [i for i, label in enumerate(target) if label in (0, 1)]
            if any(
                math.isnan(o[i]) or o[i] == math.inf or (target[i] == 1 and o[i] == -math.inf)
                for i in counted
            ):
                return math.nan
            return twin([x if i in counted else 0.0 for i, x in enumerate(o)], target, **self.settings)
        if any(math.isnan(x) or x == math.inf for x in o) or max(o) == -math.inf:
            return math.nan
        if is_conceded(o, target, self.settings.get("concede")):
            return 0.0
        if o[target] == -math.inf:
            return largest(self.name, self.settings)
        if self.settings.get("epsilon", 0) > 0 and -math.inf in o:
            return math.inf
        unmasked = [i for i, x in enumerate(o) if x > -math.inf]
        return twin([o[i] for i in unmasked], unmasked.index(target), **self.settings)

    def tolerance(self) -> float:
        """Rounding of numbers as large as those that are added up."""
        finite = self.logits[self.logits.isfinite()].double().abs()
        size = 1 + (finite.max().item() if finite.numel() else 0)
        size *= max(self.settings.get("scale", 1), 1 / self.settings.get("tau", 1), 1)
        return 200 * torch.finfo(torch.promote_types(self.logits.dtype, torch.float32)).eps * size


def _layout(x: Tensor, rng: random.Random) -> Tensor:
    """The same numbers, not always end to end in memory."""
    match rng.choice(("plain", "turned", "strided", "offset")):
        case "turned":
            return x.T.contiguous().T if x.dim() == 2 else x.transpose(0, -1).contiguous().transpose(0, -1)
        case "strided":
            return torch.stack([x, torch.full_like(x, math.nan)], -1)[..., 0]
        case "offset":
            return torch.cat([torch.full_like(x[:1], math.nan), x])[1:]
    return x


def close(value: float, expected: float, tolerance: float) -> bool:
    if math.isnan(expected) or math.isinf(expected):
        return math.isnan(value) if math.isnan(expected) else value == expected
    return abs(value - expected) <= tolerance * (1 + abs(expected))


def check_reduction(trial: Trial, value: Tensor, rows: sparring.RowLosses) -> None:
    weights = torch.ones_like(rows.value) if rows.weight is None else rows.weight
    total, size = (rows.value * weights).sum(), (weights * rows.valid).sum()
    expected = {"none": rows.value * weights, "sum": total, "mean": total / (size if size != 0 else 1)}[
        trial.reduction
    ]
    torch.testing.assert_close(value.reshape(expected.shape), expected.to(value.dtype), equal_nan=True)


def check_gradient(trial: Trial, grad: Tensor, rows: sparring.RowLosses) -> None:
    """Of the sum of the row losses, (rows, C)."""
    assert not grad[~rows.active].any(), "a row that is won or ignored has no gradient"
    lost = rows.value.isnan()
    assert grad[lost].isnan().any(1).all(), "NaN reaches the gradient"
    assert grad[~lost].isfinite().all(), "and that of its own row alone"
    if is_multilabel(trial.name):
        labels = trial.target.reshape(grad.shape)[~lost]
        assert (grad[~lost][labels == 1] <= 0).all()
        assert (grad[~lost][labels == 0] >= 0).all()
        assert not grad[~lost][(labels != 0) & (labels != 1)].any(), "an ignored label has none either"
    else:
        sums = grad[~lost].double().sum(1).abs()
        largest = grad[~lost].double().abs().sum(1)
        assert (sums <= 4 * torch.finfo(trial.logits.dtype).eps * (largest + grad.shape[1])).all(), (
            "the loss does not change with a shift"
        )


@pytest.mark.parametrize(("index", "name", "settings"), [(i, *case) for i, case in enumerate(CASES)])
def test_random_batches_equal_the_slow_twin(index: int, name: str, settings: dict[str, Any]) -> None:
    for seed in range(TRIALS):
        trial = Trial.draw(name, settings, 100_000 * index + seed)
        loss, x = trial.loss(), trial.logits.detach().requires_grad_()
        rows = loss.rows(x, trial.target)
        for i, (o, target) in enumerate(trial.rows()):
            valid = trial.is_valid(target)
            expected = trial.expected(o, target) if valid else 0.0
            row_loss, active = rows.value[i].item(), bool(rows.active[i])
            assert close(row_loss, expected, trial.tolerance()), (seed, trial, i, row_loss, expected)
            assert bool(rows.valid[i]) == valid, (seed, trial, i)
            assert active or row_loss == 0, (seed, trial, i)
            assert valid or not active, (seed, trial, i)
        value = loss(x, trial.target)
        assert value.dtype == x.dtype
        check_reduction(trial, value.detach(), rows._replace(value=rows.value.detach()))
        (grad,) = torch.autograd.grad(rows.value.sum(), x)
        class_last = grad if is_multilabel(name) or grad.dim() == 1 else grad.movedim(1, -1)
        check_gradient(trial, class_last.reshape(-1, class_last.shape[-1]), rows)
