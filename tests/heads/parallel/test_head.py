"""A class-parallel head equals the unsharded one on one to four ranks and in one process; its errors."""

import pytest
import torch
from torch import nn
from torch.autograd.functional import jacobian

from sparring import (
    AdaptiveDelta,
    ASSoftmaxLoss,
    ClassParallelHead,
    LinearLoss,
    Loss,
    SparseSoftmaxLoss,
    WarmupDelta,
)
from tests.heads.parallel import nonfinite
from tests.processes import run_ranks


@pytest.mark.parametrize(
    "line",
    [
        "unsharded: [(1, 40), (2, 40), (3, 40), (4, 40)]",  # number of ranks, cases
        "nonfinite: passed",
        "collectives: passed",
        "meshes: passed",
    ],
)
def test_on_several_ranks(all_ranks: list[str], line: str) -> None:
    assert line in all_ranks


@pytest.fixture(scope="module")
def all_ranks() -> list[str]:
    return run_ranks(4, "tests.heads.parallel.all_ranks").splitlines()


def test_nonfinite_values_in_one_process() -> None:
    nonfinite.check_all()


def test_batched_gradients_are_refused() -> None:
    head, target = ClassParallelHead(4, 9, reduction="none"), torch.arange(3)
    with pytest.raises(RuntimeError, match=r"has no batched gradients .* one gradient after the other"):
        jacobian(lambda x: head(x, target), torch.randn(3, 4), vectorize=True)
    assert jacobian(lambda x: head(x, target), torch.randn(3, 4)).shape == (3, 3, 4)


def test_in_one_process_it_is_a_linear_loss() -> None:
    torch.manual_seed(0)
    whole = LinearLoss(6, 11, loss=ASSoftmaxLoss(0.3))
    head = ClassParallelHead.from_linear(whole.linear)
    x, target = torch.randn(3, 5, 6), torch.randint(11, (3, 5))
    torch.testing.assert_close(head(x, target), whole(x, target))
    assert head.predict(x, 2).indices.tolist() == whole.logits(x).topk(2).indices.tolist()
    assert torch.equal(head.to_linear().weight, whole.linear.weight)
    assert "classes 0 to 10 on rank 0 of 1" in repr(head)


@pytest.mark.parametrize(
    "loss",
    [ASSoftmaxLoss(1.0), SparseSoftmaxLoss(k=1000), SparseSoftmaxLoss(k=11)],
    ids=["delta=1", "k=1000", "k=C"],
)
def test_where_nothing_is_left_out_it_is_softmax(loss: Loss) -> None:
    torch.manual_seed(0)
    layer = nn.Linear(6, 11)
    x, target = torch.randn(5, 6), torch.arange(5)
    head = ClassParallelHead.from_linear(layer, loss=loss)
    torch.testing.assert_close(head(x, target), nn.functional.cross_entropy(layer(x), target))


def test_a_schedule_of_delta_is_followed() -> None:
    torch.manual_seed(0)
    head = ClassParallelHead(4, 9, delta=WarmupDelta(0.3, total_steps=2, share=0.5))
    x, target = 9 * head.to_linear().weight.detach()[:3], torch.arange(3)
    first = float(head(x, target).detach())
    for _ in range(2):
        head.delta.step()
    assert float(head.delta.value) == 0.3
    assert float(head(x, target).detach()) < first
    assert isinstance(ClassParallelHead(4, 9, delta=AdaptiveDelta()).delta, AdaptiveDelta)


def test_the_weights_begin_like_those_of_a_linear_layer() -> None:
    torch.manual_seed(3)
    head = ClassParallelHead(16, 10_000)
    assert float(head.weight.detach().abs().max()) <= 0.25
    assert float(head.weight.detach().std()) == pytest.approx(0.25 / 3**0.5, rel=0.02)
    assert len(head.bias.unique()) > 9_000  # type: ignore[union-attr]
    torch.manual_seed(3)
    assert torch.equal(ClassParallelHead(16, 10_000).weight, head.weight)


def test_a_second_backward_and_a_loss_that_is_scaled() -> None:
    torch.manual_seed(0)
    head = ClassParallelHead(4, 9, delta=0.2)
    x, target = torch.randn(6, 4, requires_grad=True), torch.tensor([0, 3, 5, -100, 8, 8])
    loss = head(x, target)
    first = torch.autograd.grad(loss, [x, head.weight], retain_graph=True)
    second = torch.autograd.grad(3 * loss, [x, head.weight])
    for a, b in zip(first, second, strict=True):
        torch.testing.assert_close(3 * a, b)


def test_under_autocast_products_are_in_half_precision() -> None:
    torch.manual_seed(0)
    head = ClassParallelHead(16, 50)
    x, target = torch.randn(8, 16, requires_grad=True), torch.arange(8)
    whole = head(x, target)
    with torch.autocast("cpu", torch.bfloat16):
        half = head(x, target)
    half.backward()
    assert half.dtype == torch.float32
    assert half != whole
    torch.testing.assert_close(half, whole, rtol=0.02, atol=0.02)
    assert x.grad is not None
    assert head.weight.grad is not None
    assert head.weight.grad.dtype == torch.float32


@pytest.mark.parametrize("loss", ["as-softmax", "as-logit", "sparse-softmax"])
def test_under_autocast_with_class_weights(loss: str) -> None:
    torch.manual_seed(0)
    head = ClassParallelHead(4, 30, loss=loss, weight=torch.rand(30))
    x, target = torch.randn(8, 4, requires_grad=True), torch.arange(8)
    with torch.autocast("cpu", torch.bfloat16):
        head(x, target).backward()
    assert head.bias is not None
    assert head.bias.grad is not None
    assert head.bias.grad.isfinite().all()


def test_a_target_that_is_far_behind() -> None:
    layer = nn.Linear(2, 3, bias=False)
    layer.weight = nn.Parameter(torch.tensor([[1.0, 0], [0, 1], [0, 0]]))
    head, x = (
        ClassParallelHead.from_linear(layer, loss="as-logit"),
        torch.tensor([[-50.0, 50]], requires_grad=True),
    )
    loss = head(x, torch.tensor([0]))
    loss.backward()
    assert loss.item() == 100
    assert x.grad is not None
    assert x.grad.tolist() == [[-1, 1]]


@pytest.mark.parametrize("loss", ["as-softmax", "as-logit", "softmax"])
def test_nan_is_not_hidden(loss: str) -> None:
    head, x = ClassParallelHead(4, 9, loss=loss), torch.randn(3, 4)
    x[1, 1] = torch.nan
    value = head(x, torch.arange(3))
    value.backward()
    assert value.isnan()
    assert head.weight.grad is not None
    assert head.weight.grad.isnan().any()


def test_the_callers_loss_is_left_alone() -> None:
    loss = ASSoftmaxLoss(AdaptiveDelta(), weight=torch.arange(1.0, 10))
    layer = nn.Linear(4, 9)
    x, target = torch.randn(5, 4), torch.arange(5)
    first, second = (ClassParallelHead.from_linear(layer, loss=loss) for _ in range(2))
    assert loss.weight is not None
    assert first.delta is loss.delta
    assert torch.equal(first(x, target), second(x, target))


def test_class_weights_outlive_the_meta_device() -> None:
    head = ClassParallelHead(4, 9, device="meta", weight=torch.arange(1.0, 10))
    head.to_empty(device="cpu")
    head.reset_parameters()
    assert head.class_weight is not None
    assert head.class_weight.tolist() == list(range(1, 10))
    assert head(torch.randn(3, 4), torch.arange(3)).isfinite()


def test_frozen_features_and_frozen_weights() -> None:
    head = ClassParallelHead(4, 9)
    x, target = torch.randn(6, 4), torch.arange(6)
    head(x, target).backward()
    assert head.weight.grad is not None
    head.requires_grad_(False)
    x.requires_grad_()
    head(x, target).backward()
    assert x.grad is not None


def test_no_rows_at_all() -> None:
    head = ClassParallelHead(4, 9)
    loss = head(torch.zeros(0, 4, requires_grad=True), torch.zeros(0, dtype=torch.long))
    loss.backward()
    assert float(loss.detach()) == 0
    assert head.predict(torch.zeros(0, 4), 3).values.shape == (0, 3)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ClassParallelHead(4, 0), "num_classes must be a whole number of at least 1"),
        (
            lambda: ClassParallelHead(4, 9, inputs="sharded"),
            "inputs must be one of replicated, gathered; got 'sharded'",
        ),
        (
            lambda: ClassParallelHead(4, 9, loss="entmax15"),
            "entmax15 has no class-parallel form; use as-logit, as-softmax",
        ),
        (
            lambda: ClassParallelHead(4, 9, loss=nn.CrossEntropyLoss()),
            "loss must be a name .* got CrossEntropyLoss",
        ),  # type: ignore[arg-type]
        (lambda: ClassParallelHead(4, 9, 0.3), "bias must be True or False, got 0.3"),
        (lambda: ClassParallelHead(4, 9, delta=1.5), "delta must lie in"),
        (lambda: ClassParallelHead(4, 9, delta=0.1, loss="softmax"), '"softmax" has no setting delta'),
        (
            lambda: ClassParallelHead(4, 9, delta=0.9, loss=ASSoftmaxLoss(0.1)),
            "delta: pass it to the loss object as-softmax",
        ),
        (lambda: ClassParallelHead(4, 9, weight=torch.ones(8)), r"weight has shape \(8,\), expected \(9,\)"),
        (
            lambda: ClassParallelHead(4, 9)(torch.zeros(2, 5), torch.zeros(2).long()),
            r"expected \(…, 4\) features, not logits",
        ),
        (
            lambda: ClassParallelHead(4, 9)(torch.zeros(2, 4), torch.tensor([0, 9])),
            "target 9 is out of range for 9 classes",
        ),
        (
            lambda: ClassParallelHead(4, 9)(torch.zeros(2, 4).double(), torch.zeros(2).long()),
            "input is float64 and the weight float32",
        ),
        (
            lambda: ClassParallelHead(4, 9)(torch.zeros(2, 4), torch.zeros(3).long()),
            "One class index for each row of features",
        ),
        (
            lambda: ClassParallelHead(4, 9).predict(torch.zeros(2, 4), 10),
            "k is 10, expected at most the number of classes, 9",
        ),
    ],
)
def test_errors(make: object, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        make()  # type: ignore[operator]
