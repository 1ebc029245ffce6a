"""Extras of rows and row weights: of every loss, of the fused head and of the class-parallel head."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import sparring
from sparring.heads.linear import LinearLoss
from sparring.heads.parallel import ClassParallelHead
from sparring.losses.checks import check_class_input
from sparring.losses.rows import EXTRAS
from tests.cases import CASES, IDS, batch, is_multilabel, make
from tests.scripts import run_script

FLOATS = tuple(name for name in EXTRAS if name != "correct")


def slow_extras(logits: Tensor, target: Tensor) -> dict[str, list[float]]:
    """Loops over Python floats."""
    table: dict[str, list[float]] = {name: [] for name in EXTRAS}
    for row, t in zip(logits.double().tolist(), target.tolist(), strict=True):
        if t == -100:
            numbers = (0.0, 0.0, 0.0, 0.0, 0.0)
        else:
            total = sum(math.exp(o) for o in row)
            p = [math.exp(o) / total for o in row]
            rival = max(p[:t] + p[t + 1 :], default=0.0)
            entropy = -sum(q * math.log(q) for q in p if q)
            numbers = (-math.log(p[t]), math.log(p[t]), entropy, p[t] - rival, float(p[t] >= rival))
        for name, number in zip(EXTRAS, numbers, strict=True):
            table[name].append(number)
    return table


def check(extras: dict[str, Tensor], logits: Tensor, target: Tensor, **tolerance: float) -> None:
    for name, expected in slow_extras(logits, target).items():
        torch.testing.assert_close(
            extras[name].double(), torch.tensor(expected, dtype=torch.float64), **tolerance
        )


@pytest.mark.parametrize(("name", "settings"), CASES, ids=IDS)
def test_every_loss_has_extras_and_row_weights(name: str, settings: dict[str, Any]) -> None:
    """Extras do not depend on the loss, and change nothing else. A row weight is a factor of the loss."""
    logits, target = batch(name, dtype=torch.float64)
    loss = make(name, settings)
    plain = loss.rows(logits, target)
    assert plain.extras is None
    weight = torch.rand(len(logits), dtype=torch.float64)
    torch.testing.assert_close(loss.rows(logits, target, row_weight=weight).value, plain.value * weight)
    divisor = int(plain.valid.sum())
    torch.testing.assert_close(
        loss(logits, target, row_weight=weight), (plain.value * weight).sum() / divisor
    )
    if is_multilabel(name):
        with pytest.raises(ValueError, match="extras need one target class"):
            loss.rows(logits, target, extras=("nll",))
        return
    rows = loss.rows(logits, target, extras=EXTRAS)
    assert torch.equal(rows.value, plain.value)
    check(rows.extras or {}, logits, target, rtol=1e-9, atol=1e-9)


def test_class_weights_and_row_weights_multiply() -> None:
    logits, target = batch("softmax")
    class_weight, row_weight = torch.rand(7), torch.rand(12)
    rows = sparring.SoftmaxLoss(weight=class_weight).rows(logits, target, row_weight=row_weight)
    plain = nn.functional.cross_entropy(logits, target, class_weight, reduction="none")
    torch.testing.assert_close(rows.weighted(), plain * row_weight)
    divisor = class_weight[target[target >= 0]].sum()
    torch.testing.assert_close(rows.mean(), (plain * row_weight).sum() / divisor)
    tokens = sparring.SoftmaxLoss(reduction="none")
    shaped = tokens(logits.T[None], target[None], row_weight=row_weight[None])
    torch.testing.assert_close(
        shaped[0], nn.functional.cross_entropy(logits, target, reduction="none") * row_weight
    )


def test_a_weight_of_zero_keeps_the_row_and_nan_stays_out_of_won_rows() -> None:
    logits = torch.tensor([[9.0, 0.0], [0.0, 0.1]])
    target = torch.tensor([0, 0])
    rows = sparring.ASSoftmaxLoss().rows(logits, target, row_weight=torch.tensor([torch.nan, 0.0]))
    assert rows.value.tolist() == [0.0, 0.0]
    assert rows.won.tolist() == [True, False]


HEADS: dict[str, Any] = {
    "fused": lambda **settings: LinearLoss(6, 9, loss="as-softmax", chunk_rows=5, **settings),
    "parallel": lambda **settings: ClassParallelHead(6, 9, chunk_rows=5, **settings),
    "sparse": lambda **settings: ClassParallelHead(
        6, 9, loss="sparse-softmax", k=3, chunk_rows=5, **settings
    ),
    "multiclass": lambda **settings: LinearLoss(6, 9, loss="focal", chunk_rows=5, **settings),
}


def parameters(head: Any) -> tuple[nn.Parameter, nn.Parameter]:
    layer = head.linear if isinstance(head, LinearLoss) else head
    return layer.weight, layer.bias


@pytest.mark.parametrize("kind", HEADS)
def test_heads_agree_with_unfused_float64(kind: str) -> None:
    """Values and gradients of extras and row weights, against the same loss on materialised logits."""
    head = HEADS[kind](dtype=torch.float64, weight=torch.rand(9, dtype=torch.float64) + 0.5)
    features = torch.randn(13, 6, dtype=torch.float64, requires_grad=True)
    target = torch.randint(9, (13,))
    target[4] = -100
    row_weight = torch.rand(13, dtype=torch.float64)
    weight, bias = parameters(head)
    logits = nn.functional.linear(features, weight, bias)
    loss = head.loss if kind in ("fused", "multiclass") else sparring.make_loss(head.name, **head.settings())
    if kind in ("parallel", "sparse"):
        loss.register_buffer("weight", head.class_weight)
    upstream = {name: torch.randn(13, dtype=torch.float64) for name in FLOATS}

    def objective(rows: Any) -> Tensor:
        return rows.mean() + sum((rows.extras[name] * upstream[name]).sum() for name in FLOATS)

    rows = head.rows(features, target, row_weight=row_weight, extras=EXTRAS)
    expected = loss.rows(logits, target, row_weight=row_weight, extras=EXTRAS)
    check(rows.extras, logits, target, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(rows.weighted(), expected.weighted())
    leaves = (features, weight, bias)
    gradients = torch.autograd.grad(objective(rows), leaves)
    torch.testing.assert_close(gradients, torch.autograd.grad(objective(expected), leaves))
    torch.testing.assert_close(
        head(features, target, row_weight=row_weight), loss(logits, target, row_weight=row_weight)
    )
    assert head.rows(features, target).extras is None


def test_row_weights_need_no_second_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """The forward pass of a fused head knows the weights, so its gradients are only scaled."""
    from sparring.heads import chunked

    calls = []
    solve = chunked.solve
    monkeypatch.setattr(chunked, "solve", lambda *args: calls.append(1) or solve(*args))
    head = LinearLoss(6, 9, loss="softmax", chunk_rows=8)
    features = torch.randn(13, 6, requires_grad=True)
    head(features, torch.randint(9, (13,)), row_weight=torch.rand(13)).backward()
    assert len(calls) == 1


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_extras_are_float32(dtype: torch.dtype) -> None:
    logits, target = batch("softmax", dtype=dtype)
    extras = sparring.SoftmaxLoss().rows(logits, target, extras=EXTRAS).extras or {}
    assert {extras[name].dtype for name in FLOATS} == {torch.float32}
    check(extras, logits, target, rtol=1e-4, atol=1e-5)


def test_masked_classes_and_large_logits() -> None:
    """A class at -inf has probability 0; large logits lose no digits; a row with NaN is NaN."""
    logits = torch.tensor([[1e4, 1e4 - 1, -torch.inf], [torch.nan, 0.0, 0.0], [0.0, -torch.inf, -torch.inf]])
    target = torch.tensor([1, 0, 0])
    layer = nn.Linear(3, 3, bias=False)
    layer.weight.data = torch.eye(3)
    extras = sparring.SoftmaxLoss().rows(logits, target, extras=EXTRAS).extras or {}
    p = torch.tensor([1.0, 0.0]).softmax(0)
    torch.testing.assert_close(extras["entropy"][0], -(p * p.log()).sum())
    torch.testing.assert_close(extras["margin"][0], p[1] - p[0])
    assert extras["nll"][1].isnan()
    assert extras["margin"][2] == 1
    assert extras["entropy"][2] == 0
    assert extras["correct"].tolist() == [False, False, True]


def test_extras_under_transforms() -> None:
    """torch.func and torch.compile's tracing use materialised logits."""
    head = LinearLoss(4, 5, loss="softmax", dtype=torch.float64)
    features, target = torch.randn(3, 4, dtype=torch.float64), torch.arange(3)

    def entropy(x: Tensor) -> Tensor:
        extras = head.rows(x, target, extras=("entropy",)).extras
        assert extras is not None
        return extras["entropy"].sum()

    leaf = features.clone().requires_grad_()
    (expected,) = torch.autograd.grad(entropy(leaf), leaf)
    torch.testing.assert_close(torch.func.grad(entropy)(features), expected)
    torch.testing.assert_close(torch.func.jacfwd(entropy)(features), expected)


def test_errors() -> None:
    logits, target = torch.zeros(2, 3), torch.tensor([0, 1])
    with pytest.raises(ValueError, match=r"extras must be some of nll, .*; got 'nnl'"):
        sparring.SoftmaxLoss().rows(logits, target, extras=("nnl",))
    with pytest.raises(ValueError, match="expected one weight for each of 2 rows"):
        sparring.SoftmaxLoss()(logits, target, row_weight=torch.ones(3))
    head = ClassParallelHead(3, 3)
    with pytest.raises(ValueError, match="expected one weight for each of 2 rows"):
        head(logits, target, row_weight=torch.ones(3))
    with pytest.raises(ValueError, match="extras need one target class"):
        LinearLoss(3, 3, loss="multilabel-softmax").rows(logits, torch.eye(3)[:2], extras=("nll",))


def test_the_benchmark_measures_every_case() -> None:
    out = run_script(Path(__file__).parents[2] / "benchmarks" / "rows.py", "--measure", "--repetitions", 1)
    times = json.loads(out)
    assert len(times) == 4
    assert all(microseconds > 0 for microseconds in times.values())


class Operators(TorchDispatchMode):
    """Records the names of the operators that run."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", ["softmax", "as-softmax", "sparse-softmax", "focal"])
def test_without_extras_no_operator_is_added(name: str) -> None:
    """The rows of a module run the check of the input and the row function, and nothing else."""
    logits, target = batch(name)
    loss = sparring.make_loss(name)
    loss.rows(logits, target)  # the first call makes a workspace
    with Operators() as whole:
        loss.rows(logits, target)
    with Operators() as parts:
        check_class_input(logits, target, None, -100)
        type(loss).row_function(logits, target, ignore_index=-100, **loss.settings())
    views = ("aten.permute.default", "aten.view.default")  # rows of logits
    with_rows, alone = ([name for name in mode.names if name not in views] for mode in (whole, parts))
    assert with_rows == alone
