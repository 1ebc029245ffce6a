"""The fused head under torch.compile."""

import pytest
import torch
import torch._dynamo.testing
import torch.nn.functional as F

import sparring
from sparring import functional as SF
from sparring.heads.custom_ops import _spec, spec_arguments
from sparring.heads.dispatch import HeadSpec
from sparring.heads.gradients import NeedsGrad
from sparring.losses.as_softmax import as_softmax_rows
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


@pytest.mark.parametrize("loss", ["softmax", "as-softmax", "as-logit"])
def test_a_schedule_of_kappa_does_not_compile_at_every_step(loss: str) -> None:
    """Once without conceded rows, once with them, whatever κ is."""
    torch._dynamo.reset()
    counter = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    head = sparring.LinearLoss(6, 9, loss=loss, concede=sparring.LinearDelta(1.0, 0.0, total_steps=8))
    head.linear.weight.data *= 6
    compiled = torch.compile(head.rows, backend=counter, fullgraph=True)
    x, target = torch.randn(20, 6), torch.arange(20) % 9
    n_conceded = set()
    for _ in range(8):
        rows, expected = compiled(x, target), head.rows(x, target)
        torch.testing.assert_close(rows.value, expected.value)
        assert (rows.conceded is None) == (expected.conceded is None)
        if rows.conceded is not None:
            assert torch.equal(rows.conceded, expected.conceded)
            n_conceded.add(int(rows.conceded.sum()))
        head.concede.step()
    assert counter.frame_count <= 2
    assert len(n_conceded) > 2


@pytest.mark.parametrize("settings", [{"delta": 0.2}, {"concede": 0.5, "delta": 0.2}])
def test_settings_are_passed_by_name(settings: dict[str, float]) -> None:
    """Also those of a loss without κ, and in any order."""
    spec = HeadSpec(as_softmax_rows, settings, -100, torch.float32, "torch", None)
    *arguments, _ = spec_arguments(spec, NeedsGrad(True, True, True))
    assert _spec(*arguments).settings == {"concede": 1.0, **settings}


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
