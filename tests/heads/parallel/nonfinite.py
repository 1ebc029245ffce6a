"""Run by test_nonfinite.py, alone or under torchrun: NaN and infinities in a class-parallel head and in the unsharded one."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
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


def compare(make: Callable[[], Loss], n_classes: int, case: str) -> None:
    """Loss, verdicts and gradients. Row 1 is ignored, and full of NaN."""
    torch.manual_seed(0)
    whole = LinearLoss(3, n_classes, make())
    x, target = torch.randn(6, 3), torch.arange(6) % n_classes
    x[1], target[1] = NAN, -100
    with torch.no_grad():
        for index, value in (BIASES[case](n_classes) if case in BIASES else {}).items():
            whole.linear.bias[index] = value
    if case in FEATURES:
        whole.linear.weight.data *= 1e3
        x[3] = FEATURES[case]
    head = ClassParallelHead.from_linear(whole.linear, loss=make(), chunk_rows=4)
    expected = run(whole, x, target, [whole.linear.weight, whole.linear.bias])
    found = run(head, x, target, [head.weight, head.bias])
    what = f"{whole.loss}, {n_classes} classes, {case}"
    for i, (ours, theirs) in enumerate(zip(found, expected, strict=True)):
        if (
            i > 4 and theirs.isnan().any()
        ):  # how many classes a row of NaN reaches depends on the width of a block
            assert ours.isnan().any(), what
        else:
            torch.testing.assert_close(ours, theirs, equal_nan=True, msg=lambda text: f"{what}: {text}")
    assert not found[4][1].any(), "the ignored row has no gradient"
    assert case != "clean" or found[5].isfinite().all(), "nor has it one for the weights"
    assert not head.predict(torch.randn(4, 3), n_classes).indices.lt(0).any(), "what is predicted are classes"


def main() -> None:
    for make, n_classes, case in itertools.product(LOSSES, (1, 2, 7), (*BIASES, *FEATURES, "clean")):
        compare(make, n_classes, case)


if __name__ == "__main__":
    dist.init_process_group("gloo", timeout=timedelta(seconds=200))
    main()
    if dist.get_rank() == 0:
        sys.stdout.write("nonfinite: as the unsharded head\n")
    dist.destroy_process_group()
