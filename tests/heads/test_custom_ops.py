"""The fused head under torch.compile."""

import pytest
import torch
import torch._dynamo.testing
import torch.nn.functional as F

import sparring
from sparring import functional as SF
from tests.heads.cases import batch, results


@pytest.mark.parametrize("loss", ["as-softmax", "softmax", "sparse-softmax", "multilabel-as-softmax"])
@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_torch_compile(loss: str, reduction: str) -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)
    head = sparring.LinearLoss(6, 40, loss=sparring.make_loss(loss, reduction=reduction), chunk_rows=8)
    x = (3 * torch.randn(20, 6)).requires_grad_()
    target = (torch.rand(20, 40) < 0.2).long() if "multilabel" in loss else torch.randint(40, (20,))
    inductor = loss == "as-softmax" and reduction == "mean"  # slow, and no different from aot_eager here
    compiled = torch.compile(head, fullgraph=True, backend="inductor" if inductor else "aot_eager")
    parameters, upstream = [x, *head.linear.parameters()], torch.rand(20) if reduction == "none" else None
    for mine, true in zip(
        results(compiled(x, target), upstream, parameters),
        results(head(x, target), upstream, parameters),
        strict=True,
    ):
        torch.testing.assert_close(mine, true)


def test_torch_compile_with_everything_set() -> None:
    torch._dynamo.reset()
    x, weight, bias, target = batch(40, 6, 50)
    target[target == -100] = 7
    class_weight = torch.rand(50, dtype=torch.float64)
    settings = {
        "linear_bias": bias,
        "weight": class_weight,
        "ignore_index": 7,
        "delta": 0.2,
        "chunk_rows": 16,
    }  # weight and bias are frozen
    compiled = torch.compile(
        lambda x, reduction: SF.linear_as_softmax_loss(x, weight, target, reduction=reduction, **settings),
        fullgraph=True,
        backend="aot_eager",
    )
    for reduction in ("mean", "none"):
        points = [
            x.clone().requires_grad_(),
            x.T.contiguous().T.requires_grad_(),
        ]  # the second one's rows do not lie end to end
        expected = SF.as_softmax_loss(
            F.linear(points[0], weight, bias), target, class_weight, 7, reduction, delta=0.2
        )
        upstream = torch.rand_like(expected)
        (true,) = torch.autograd.grad(expected, points[0], upstream)
        for point in points:
            loss = compiled(point, reduction)
            torch.testing.assert_close(loss, expected)
            torch.testing.assert_close(torch.autograd.grad(loss, point, upstream)[0], true)


def test_torch_compile_does_not_compile_for_every_batch_size() -> None:
    torch._dynamo.reset()
    counter = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    head = sparring.LinearASSoftmaxLoss(6, 40)
    compiled = torch.compile(head, backend=counter, fullgraph=True)
    for n_rows in (20, 21, 30, 7, 44):
        x, target = torch.randn(n_rows, 6, requires_grad=True), torch.randint(40, (n_rows,))
        compiled(x, target).backward()
        torch.testing.assert_close(x.grad, torch.autograd.grad(head(x, target), x)[0])
    assert counter.frame_count <= 2


def test_a_schedule_under_torch_compile_does_not_compile_at_every_step() -> None:
    torch._dynamo.reset()
    counter = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    head = sparring.LinearASSoftmaxLoss(6, 40, delta=sparring.LinearDelta(0.9, 0.1, total_steps=10))
    compiled = torch.compile(head, backend=counter, fullgraph=True)
    x, target = torch.randn(20, 6), torch.arange(20)
    for _ in range(6):
        torch.testing.assert_close(compiled(x, target), head(x, target))
        head.delta.step()
    assert counter.frame_count <= 2
