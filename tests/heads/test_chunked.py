"""The chunked passes under autograd and torch.func, and their memory."""

from typing import Any, ClassVar

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import sparring
from sparring import functional as SF
from sparring.heads import chunk_kernels, chunked
from sparring.losses.kernels import margin_softmax_chunks
from tests.heads.cases import STATES, batch, leaves, peak_memory, results


def test_a_mean_of_rows_needs_one_pass_and_anything_else_is_right_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls = []
    solve = chunked.solve
    monkeypatch.setattr(chunked, "solve", lambda inputs, *rest: calls.append(inputs) or solve(inputs, *rest))
    x, weight, _, target = batch(60, 6, 50)
    class_weight = torch.rand(50, dtype=torch.float64)
    for upstream, n_passes in (
        (torch.full((60,), 0.3, dtype=torch.float64), 1),
        (torch.rand(60, dtype=torch.float64), 2),
    ):
        calls.clear()
        ours, theirs = leaves(x, weight, dtype=torch.float64), leaves(x, weight, dtype=torch.float64)
        head = sparring.LinearLoss(6, 50, bias=False, loss=sparring.ASSoftmaxLoss(weight=class_weight))
        head.linear.weight = nn.Parameter(ours[1])
        (head.rows(ours[0], target).weighted() * upstream).sum().backward()
        (head.loss.rows(F.linear(*theirs), target).weighted() * upstream).sum().backward()
        assert len(calls) == n_passes
        torch.testing.assert_close(ours[0].grad, theirs[0].grad)
        torch.testing.assert_close(head.linear.weight.grad, theirs[1].grad)


UPSTREAM = {
    "a mask": [1.0, 0.0, 1.0, 0.0],
    "less than the first": [1.0, 0.5, 0.25, -1.0],
    "uneven by half a percent": [1.0, 1.005, 1.0, 1.0],
    "zero": [0.0, 0.0, 0.0, 0.0],
    "negative": [-2.0, -2.0, -2.0, -2.0],
}


@pytest.mark.parametrize("name", UPSTREAM)
@pytest.mark.parametrize("zero_weight", [False, True])
def test_whatever_comes_from_above(name: str, zero_weight: bool) -> None:
    x, weight, _, _ = batch(40, 6, 50, "none won")
    target, upstream = torch.arange(40), torch.tensor(UPSTREAM[name], dtype=torch.float64).repeat(10)
    class_weight = torch.rand(50, dtype=torch.float64) + 0.5
    if zero_weight:
        class_weight[0] = 0  # of the first active row
    loss = sparring.ASSoftmaxLoss(weight=class_weight)
    ours, theirs = leaves(x, weight, dtype=torch.float64), leaves(x, weight, dtype=torch.float64)
    head = sparring.LinearLoss(6, 50, bias=False, loss=loss, chunk_rows=16).double()
    head.linear.weight = nn.Parameter(ours[1])
    (head.rows(ours[0], target).weighted() * upstream).sum().backward()
    (loss.rows(F.linear(*theirs), target).weighted() * upstream).sum().backward()
    torch.testing.assert_close(ours[0].grad, theirs[0].grad)
    torch.testing.assert_close(head.linear.weight.grad, theirs[1].grad)


def test_row_losses_may_be_changed_in_place() -> None:
    x, weight, _, target = batch(40, 6, 50)
    outputs = []
    for fused in (True, False):
        parameters = leaves(x, weight, dtype=torch.float64)
        if fused:
            losses = SF.linear_as_softmax_loss(*parameters, target, reduction="none")
        else:
            losses = SF.as_softmax_loss(F.linear(*parameters), target, reduction="none")
        losses *= torch.linspace(0, 1, 40)
        losses[3:9] = 0
        outputs.append(torch.autograd.grad(losses.sum(), parameters))
    for mine, true in zip(*outputs, strict=True):
        torch.testing.assert_close(mine, true)


def test_a_second_backward_with_frozen_weights_and_another_scale() -> None:
    x, weight, _, target = batch(40, 6, 50)
    (x,) = leaves(x, dtype=torch.float64)
    loss = SF.linear_as_softmax_loss(x, weight, target, chunk_rows=16)
    first = torch.autograd.grad(3 * loss, x, retain_graph=True)[0].clone()
    torch.testing.assert_close(torch.autograd.grad(loss, x, retain_graph=True)[0], first / 3)
    differentiable = torch.autograd.grad(loss, x, create_graph=True)[0]
    torch.testing.assert_close(differentiable, first / 3)
    torch.testing.assert_close(torch.autograd.grad(loss, x)[0], first / 3)


def test_a_second_derivative_with_frozen_weights() -> None:
    x, weight, bias, target = batch(12, 4, 9)
    outputs = []
    for fused in (True, False):
        (point,) = leaves(x, dtype=torch.float64)
        if fused:
            loss = SF.linear_as_softmax_loss(point, weight, target, linear_bias=bias, chunk_rows=5)
        else:
            loss = SF.as_softmax_loss(F.linear(point, weight, bias), target)
        (grad,) = torch.autograd.grad(loss, point, create_graph=True)
        again = torch.autograd.grad(loss, point, create_graph=True)[0]
        torch.testing.assert_close(again, grad)
        outputs.append(torch.autograd.grad(grad.square().sum(), point)[0])
    torch.testing.assert_close(*outputs)


def test_deterministic_and_the_same_the_second_time() -> None:
    x, weight, bias, target = batch(300, 16, 1001)
    x, weight, bias = leaves(x, weight, bias, dtype=torch.float32)
    loss = SF.linear_as_softmax_loss(x, weight, target, linear_bias=bias, chunk_rows=64)
    again = SF.linear_as_softmax_loss(x, weight, target, linear_bias=bias, chunk_rows=64)
    first = [g.clone() for g in torch.autograd.grad(loss, [x, weight, bias], retain_graph=True)]
    for other in (
        torch.autograd.grad(loss, [x, weight, bias]),
        torch.autograd.grad(again, [x, weight, bias]),
    ):
        assert all(a.equal(b) for a, b in zip(first, other, strict=True))


def test_derivatives() -> None:
    x, weight, bias, target = batch(6, 3, 5)
    for reduction in ("mean", "none"):

        def loss(x: Tensor, weight: Tensor, bias: Tensor, reduction: str = reduction) -> Tensor:
            return SF.linear_as_softmax_loss(
                x, weight, target, linear_bias=bias, reduction=reduction, chunk_rows=4
            )

        parameters = leaves(x, weight, bias, dtype=torch.float64)
        assert torch.autograd.gradcheck(loss, parameters)
        assert torch.autograd.gradgradcheck(loss, parameters)


def test_torch_func() -> None:
    x, weight, bias, target = batch(12, 4, 9)

    def fused(x: Tensor, weight: Tensor, bias: Tensor, target: Tensor) -> Tensor:
        return SF.linear_as_softmax_loss(x, weight, target, linear_bias=bias, chunk_rows=5)

    def unfused(x: Tensor, weight: Tensor, bias: Tensor, target: Tensor) -> Tensor:
        return SF.as_softmax_loss(F.linear(x, weight, bias), target)

    ways = [
        lambda f: torch.func.grad(f, argnums=(0, 1, 2))(x, weight, bias, target),
        lambda f: torch.vmap(torch.func.grad(f, argnums=(0, 1)), in_dims=(0, None, None, 0))(
            x, weight, bias, target
        ),
        lambda f: torch.func.grad(lambda x: torch.func.grad(f)(x, weight, bias, target).square().sum())(x),
        lambda f: torch.func.jacrev(f)(x, weight, bias, target),
        lambda f: torch.vmap(torch.func.grad(f), in_dims=(1, None, None, 0))(
            x.T.contiguous(), weight, bias, target
        ),
    ]
    for way in ways:
        torch.testing.assert_close(way(fused), way(unfused))


@pytest.mark.parametrize("state", STATES)
def test_peak_memory_is_what_the_docstring_says(state: str) -> None:
    n_classes, chunk = 40000, 64
    x, weight, _, target = batch(512, 4, n_classes, state)
    x, weight = leaves(x, weight, dtype=torch.float32)
    held = peak_memory(lambda: SF.linear_as_softmax_loss(x, weight, target, chunk_rows=chunk).backward())
    gradient_bytes = 4 * (x.numel() + weight.numel())
    assert held <= 4 * (chunk + chunked.MIN_PART_ROWS) * n_classes + gradient_bytes + 2**19
    unfused = peak_memory(lambda: SF.as_softmax_loss(F.linear(x, weight), target).backward())
    assert unfused > 5 * held


def test_chunks_are_found_from_the_shapes() -> None:
    n_rows, n_classes = 1024, 20000
    shape = (n_rows, 4)
    narrow = chunked.chunk_sizes(shape, n_classes, None, on_cpu=True)
    wide = chunked.chunk_sizes((n_rows, 768), n_classes, None, on_cpu=True)
    assert narrow[1] < narrow[0] < wide[0] < n_rows
    assert chunked.chunk_sizes(shape, 10, None, on_cpu=True) == (n_rows, n_rows)
    assert chunked.chunk_sizes(shape, n_classes, 7, on_cpu=True) == (7, 7)
    rows, part_rows = chunked.chunk_sizes(shape, n_classes, None, on_cpu=False)
    assert rows == part_rows < n_rows
    x, weight = (
        torch.randn(n_rows, 4, requires_grad=True),
        torch.randn(n_classes, 4, requires_grad=True),
    )
    held = peak_memory(lambda: SF.linear_as_softmax_loss(x, weight, torch.arange(n_rows)).backward())
    assert held < 4 * n_rows * n_classes / 3


def test_label_rows_are_not_doubled() -> None:
    x, weight = torch.randn(512, 4, requires_grad=True), torch.randn(4000, 4, requires_grad=True)
    labels = (torch.rand(512, 4000) < 0.01).to(torch.int8)
    held = peak_memory(
        lambda: SF.linear_multilabel_as_softmax_loss(x, weight, labels, chunk_rows=16).backward()
    )
    assert held < 512 * 4000 * 4


def test_infinite_logits_and_nan() -> None:
    x, weight, _, target = batch(12, 4, 9)
    x, weight = x.float(), weight.float()
    x[2], weight[3] = 1e30 * weight[3].sign(), 1e10 * weight[3]  # a logit of inf
    assert (x @ weight.T)[2, 3] == torch.inf
    mine, true = (
        SF.linear_as_softmax_loss(x, weight, target, reduction="none"),
        SF.as_softmax_loss(x @ weight.T, target, reduction="none"),
    )
    torch.testing.assert_close(mine, true, equal_nan=True)
    x[1, 0] = torch.nan
    value = SF.linear_as_softmax_loss(x, weight, target, reduction="none")
    assert value.isnan().tolist() == [i in (1, 2) for i in range(12)]


class Marked(Tensor):
    """A tensor subclass that records its operations."""

    functions: ClassVar[list[str]] = []

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        cls.functions.append(getattr(function, "__name__", ""))
        return super().__torch_function__(function, types, args, kwargs or {})


def test_tensor_subclasses_see_every_operation() -> None:
    x, weight, _, target = batch(12, 4, 9)
    loss = SF.linear_as_softmax_loss(x.as_subclass(Marked), weight, target)
    assert "linear" in Marked.functions
    torch.testing.assert_close(loss.as_subclass(Tensor), SF.linear_as_softmax_loss(x, weight, target))


def test_the_path_of_other_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    """The torch operations that a GPU would run, on CPU."""

    def on_device(*args: object) -> chunk_kernels.ChunkResult:
        return chunk_kernels._on_device(*args, chunk=margin_softmax_chunks.chunk)

    for delta in (0.3, 1.0):
        x, weight, bias, target = batch(100, 8, 60)
        ours, theirs = (
            leaves(x, weight, bias, dtype=torch.float64),
            leaves(x, weight, bias, dtype=torch.float64),
        )
        with monkeypatch.context() as patch:
            patch.setattr(chunk_kernels, "_on_cpu", on_device)
            mine = results(
                SF.linear_as_softmax_loss(*ours[:2], target, linear_bias=ours[2], delta=delta, chunk_rows=16),
                None,
                ours,
            )
        true = results(SF.as_softmax_loss(F.linear(*theirs), target, delta=delta), None, theirs)
        for a, b in zip(mine, true, strict=True):
            torch.testing.assert_close(a, b)


@pytest.mark.parametrize("bound", [-torch.inf, torch.inf])
def test_rows_filled_up_with_classes_of_probability_0(bound: float) -> None:
    """37 classes in rows of 48, one of them with an infinite logit."""
    x, weight, bias, target = batch(60, 6, 37)
    bias[5] = bound
    fused = SF.linear_as_softmax_loss(x, weight, target, linear_bias=bias, reduction="none", chunk_rows=16)
    torch.testing.assert_close(
        fused, SF.as_softmax_loss(F.linear(x, weight, bias), target, reduction="none"), equal_nan=True
    )


@pytest.mark.parametrize(
    ("n_rows", "n_free", "chunks"),
    [(10, 10, [10]), (11, 10, [6, 5]), (25, 10, [10, 8, 7]), (30, 10, [10, 10, 10]), (0, 4, [])],
)
def test_no_small_chunk_at_the_end(n_rows: int, n_free: int, chunks: list[int]) -> None:
    sizes = []
    while n_rows:
        sizes.append(chunked._next_chunk(n_rows, n_free))
        n_rows -= sizes[-1]
    assert sizes == chunks


@pytest.mark.parametrize("n_classes", [10, 33, 48])
def test_a_row_without_any_probability(n_classes: int) -> None:
    """All logits -inf: NaN, as F.cross_entropy gives, also where columns of -inf fill up the row."""
    x, weight, bias, target = batch(60, 6, n_classes)
    bias.fill_(-torch.inf)
    outputs = []
    for fused in (True, False):
        w = weight.clone().requires_grad_()
        if fused:
            loss = SF.linear_as_softmax_loss(x, w, target, linear_bias=bias, chunk_rows=16)
        else:
            loss = SF.as_softmax_loss(F.linear(x, w, bias), target)
        outputs.append((loss.detach(), *torch.autograd.grad(loss, w)))
    for mine, true in zip(*outputs, strict=True):
        torch.testing.assert_close(mine, true, equal_nan=True)
        assert mine.isnan().all()


def test_a_target_out_of_range_is_refused_when_compiled() -> None:
    """Eleven classes in rows of sixteen."""
    x, weight, _, _ = batch(4, 6, 11)
    with pytest.raises(ValueError, match="target 12 is out of range for 11 classes"):
        torch.compile(SF.linear_as_softmax_loss, backend="eager")(x, weight, torch.tensor([1, 2, 12, 3]))
