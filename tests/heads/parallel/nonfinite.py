"""Run by all_ranks.py and in one process: NaN and infinities in a class-parallel and the unsharded head."""

import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import sparring
from sparring import ClassParallelHead, LinearLoss, Loss

INF, NAN = torch.inf, torch.nan
LOSSES: list[Callable[[], Loss]] = [
    lambda: sparring.SoftmaxLoss(),
    lambda: sparring.ASSoftmaxLoss(0.3),
    lambda: sparring.ASLogitLoss(1.0),
    lambda: sparring.SparseSoftmaxLoss(k=1),
    lambda: sparring.SparseSoftmaxLoss(k=4),
]
BIASES: dict[str, Callable[[int], dict[int, float]]] = {  # of some classes
    "one masked": lambda n: {n - 1: -INF},
    "all but one masked": lambda n: dict.fromkeys(range(n - 1), -INF),
    "all masked": lambda n: dict.fromkeys(range(n), -INF),
    "overflow": lambda n: {n // 2: INF},
    "nan": lambda n: {n - 1: NAN},
}
FEATURES = {"nan in a row": NAN, "overflow in a row": 1e38}


def run(head: Any, x: Tensor, target: Tensor, parameters: list[Tensor]) -> list[Tensor]:
    x = x.clone().requires_grad_()
    rows = head.rows(x, target)
    value = head(x, target)
    grads = torch.autograd.grad(value, [x, *parameters])
    full = [grad.full_tensor() if hasattr(grad, "full_tensor") else grad for grad in grads]
    return [rows.value, rows.valid, rows.active, value, *full]


def compare(make: Callable[[], Loss], n_classes: int, case: str, group: Any) -> None:
    """Loss, active rows and gradients. Row 1 is ignored, and full of NaN."""
    torch.manual_seed(0)
    whole = LinearLoss(3, n_classes, loss=make())
    x, target = torch.randn(6, 3), torch.arange(6) % n_classes
    x[1], target[1] = NAN, -100
    with torch.no_grad():
        for index, value in (BIASES[case](n_classes) if case in BIASES else {}).items():
            whole.linear.bias[index] = value
    if case in FEATURES:
        whole.linear.weight.data *= 1e3
        x[3] = FEATURES[case]
    head = ClassParallelHead.from_linear(whole.linear, loss=make(), chunk_rows=4, group=group)
    expected = run(whole, x, target, [whole.linear.weight, whole.linear.bias])
    results = run(head, x, target, [head.weight, head.bias])
    name = f"{whole.loss}, {n_classes} classes, {case}"
    for i, (ours, theirs) in enumerate(zip(results, expected, strict=True)):
        if i > 4 and theirs.isnan().any():  # the width of a block decides how many classes a NaN reaches
            assert ours.isnan().any(), name
        else:
            torch.testing.assert_close(ours, theirs, equal_nan=True, msg=lambda text: f"{name}: {text}")
    assert not results[4][1].any(), "an ignored row has no gradient"
    assert case != "clean" or results[5].isfinite().all(), "an ignored row reaches no weight gradient"
    assert not head.predict(torch.randn(4, 3), n_classes).indices.lt(0).any(), "predictions are classes"


def check_all(group: Any = None) -> None:
    """Every loss and case with seven classes, and with one or two."""
    cases = (*BIASES, *FEATURES, "clean")
    for (i, make), (j, case) in itertools.product(enumerate(LOSSES), enumerate(cases)):
        for n_classes in (7, 1 + (i + j) % 2):
            compare(make, n_classes, case, group)
