"""All ways to compute the margin softmax agree: CPU kernel, sync-free chunks, the equation, torch.compile."""

from __future__ import annotations

import threading

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode

import sparring
from sparring.losses.base import valid_targets
from sparring.losses.kernels import margin_softmax_chunks, margin_softmax_cpu
from sparring.losses.kernels.margin_softmax import margin_softmax_rows
from sparring.losses.kernels.margin_softmax_chunks import compute_rows, gradient
from sparring.losses.kernels.margin_softmax_chunks import equation as _equation
from sparring.losses.kernels.rule import SOFTMAX_RULE, MarginRule, logit_rule, probability_rule

RULES = {
    "softmax": SOFTMAX_RULE,
    "delta-0": probability_rule(0.0),
    "delta-0.3": probability_rule(0.3),
    "delta-1": probability_rule(1.0),
    "margin-0": logit_rule(0.0),
    "margin-2": logit_rule(2.0),
    "margin-12": logit_rule(12.0),
}
every_rule = pytest.mark.parametrize("rule", RULES.values(), ids=RULES.keys())


def mixed(n_rows: int, n_classes: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    """Target probabilities from nearly 0 to nearly 1: won, plain, scanned and ignored rows in every chunk."""
    logits = torch.randn(n_rows, n_classes, dtype=dtype)
    target = torch.randint(n_classes, (n_rows,))
    logits[torch.arange(n_rows), target] += torch.linspace(-8, 16, n_rows, dtype=dtype)[
        torch.randperm(n_rows)
    ]
    target[::11] = -100
    return logits, target


def run(logits: Tensor, target: Tensor, rule: MarginRule, on_cpu: bool) -> tuple[Tensor, Tensor, Tensor]:
    safe, valid = valid_targets(target, -100)
    value, active, _, grad = compute_rows(logits, safe, valid, rule, True, on_cpu)
    return value, active, grad


def equation(logits: Tensor, target: Tensor, rule: MarginRule) -> tuple[Tensor, Tensor, Tensor]:
    safe, valid = valid_targets(target, -100)
    value, active, _, _ = _equation(logits, safe, valid, rule)
    return value, active, gradient(logits, safe, active, rule)


@every_rule
@pytest.mark.parametrize("on_cpu", [True, False], ids=["kernel", "sync-free"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
@pytest.mark.parametrize(("n_rows", "n_classes"), [(257, 2), (300, 9), (64, 513)])
def test_eager_equals_the_equation(
    n_rows: int, n_classes: int, dtype: torch.dtype, on_cpu: bool, rule: MarginRule
) -> None:
    logits, target = mixed(n_rows, n_classes, dtype)
    value, active, grad = run(logits, target, rule, on_cpu)
    value_, active_, grad_ = equation(logits, target, rule)
    tolerance = {"rtol": 2e-6, "atol": 2e-6} if dtype == torch.float32 else {"rtol": 1e-12, "atol": 1e-12}
    torch.testing.assert_close(value, value_, **tolerance)
    torch.testing.assert_close(grad, grad_, **tolerance)
    assert torch.equal(active, active_)


@every_rule
@pytest.mark.parametrize("on_cpu", [True, False], ids=["kernel", "sync-free"])
def test_chunks_do_not_show(monkeypatch: pytest.MonkeyPatch, on_cpu: bool, rule: MarginRule) -> None:
    logits, target = mixed(101, 13)
    whole = run(logits, target, rule, on_cpu)
    monkeypatch.setattr(margin_softmax_chunks, "_rows_per_chunk", lambda *_, **__: 7)
    for part, all_at_once in zip(run(logits, target, rule, on_cpu), whole, strict=True):
        torch.testing.assert_close(part, all_at_once)


@every_rule
def test_error_against_float64_is_no_larger_than_the_equations(rule: MarginRule) -> None:
    logits, target = mixed(400, 51)
    safe, valid = valid_targets(target, -100)
    truth, _, truth_grad = equation(logits.double(), target, rule)
    kernel, _, kernel_grad = run(logits, target, rule, True)
    plain, active, _, _ = _equation(logits, safe, valid, rule)
    plain_grad = gradient(logits, safe, active, rule)
    hair, size = 5e-7, truth.clamp(min=1)
    assert ((kernel - truth) / size).abs().max() <= ((plain - truth) / size).abs().max() + hair
    assert (kernel_grad - truth_grad).abs().max() <= (plain_grad - truth_grad).abs().max() + hair


@pytest.mark.parametrize("name", ["softmax", "delta-0.3", "margin-2"])
def test_inductor_agrees(name: str) -> None:
    rule = RULES[name]
    logits, target = mixed(97, 11)
    x = logits.clone().requires_grad_()

    def value(x: Tensor) -> Tensor:
        return margin_softmax_rows(x, target, rule).value

    compiled = torch.compile(value, fullgraph=True)(x)
    expected, _, grad = run(logits, target, rule, True)
    torch.testing.assert_close(compiled, expected, rtol=2e-6, atol=2e-6)
    torch.testing.assert_close(torch.autograd.grad(compiled.sum(), x)[0], grad, rtol=2e-6, atol=2e-6)
    torch._dynamo.reset()


@every_rule
def test_off_cpu_there_is_no_device_sync(rule: MarginRule) -> None:
    # fake tensors have no values: an .item(), a nonzero() or a branch on data would raise
    with FakeTensorMode():
        logits, target = torch.empty(4096, 600), torch.zeros(4096, dtype=torch.long)
        value, active, _, grad = compute_rows(logits, target, target >= 0, rule, True, False)
    assert value.shape == active.shape == (4096,)
    assert grad.shape == (4096, 600)


@pytest.mark.parametrize("rule", [SOFTMAX_RULE, probability_rule(1.0)], ids=["softmax", "delta-1"])
def test_off_cpu_it_is_cross_entropy_to_the_last_digit(rule: MarginRule) -> None:
    logits, target = mixed(300, 51)
    x = logits.clone().requires_grad_()
    cross_entropy = torch.nn.functional.cross_entropy(x, target, reduction="none")
    value, _, grad = run(logits, target, rule, False)
    assert torch.equal(value, cross_entropy)
    (expected,) = torch.autograd.grad(cross_entropy.sum(), x)
    torch.testing.assert_close(grad, expected, rtol=1.2e-7, atol=0)


def test_the_cpu_kernel_reads_values(monkeypatch: pytest.MonkeyPatch) -> None:
    # the counter-test: the same probe catches code that reads values
    monkeypatch.setattr(margin_softmax_cpu, "workspace", margin_softmax_cpu.Workspace())
    with FakeTensorMode(allow_non_fake_inputs=True):  # the kernel has constants
        logits, target = torch.empty(4, 6), torch.zeros(4, dtype=torch.long)
        with pytest.raises(DataDependentOutputException):
            compute_rows(logits, target, target >= 0, probability_rule(0.3), True, True)


def test_threads_do_not_share_a_workspace() -> None:
    batches = [mixed(200, 31) for _ in range(4)]
    expected = [run(*batch, probability_rule(0.3), True) for batch in batches]
    wrong: list[int] = []

    def work(i: int) -> None:
        for _ in range(20):
            if not all(
                torch.equal(a, b)
                for a, b in zip(run(*batches[i], probability_rule(0.3), True), expected[i], strict=True)
            ):
                wrong.append(i)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_workspace_made_in_inference_mode_serves_training() -> None:
    logits, target = mixed(50, 9)
    margin_softmax_cpu.forget_workspace()
    with torch.inference_mode():
        margin_softmax_rows(logits, target, probability_rule(0.3))
    x = logits.requires_grad_()
    margin_softmax_rows(x, target, probability_rule(0.3)).mean().backward()
    assert x.grad is not None
    assert x.grad.isfinite().all()


def test_logits_far_below_every_threshold_keep_their_digits() -> None:
    logits = torch.tensor([[0.0, -1000.0, -1.0], [0.0, -95.0, -0.5]])
    value, active, grad = run(logits, torch.tensor([1, 1]), logit_rule(2.0), True)
    value_, active_, grad_ = equation(logits.double(), torch.tensor([1, 1]), logit_rule(2.0))
    torch.testing.assert_close(value.double(), value_, rtol=1e-6, atol=0)
    torch.testing.assert_close(grad.double(), grad_, rtol=2e-6, atol=1e-6)
    assert torch.equal(active, active_)


def test_a_target_just_above_delta() -> None:
    # log p_t > log δ to the last digit, while p_t − δ rounds to nothing: keeps all, and no NaN
    for step in range(-4, 5):
        p_t = 0.3 + step * 3e-8
        logits = torch.tensor([[p_t, 0.4, 0.2999999, 1e-30, 1e-12]]).log()
        value, active, grad = run(logits, torch.tensor([0]), probability_rule(0.3), True)
        assert value.item() == pytest.approx(-torch.log_softmax(logits, 1)[0, 0].item(), abs=1e-6)
        assert active.item()
        assert grad.isfinite().all()


def test_gradient_is_the_only_large_tensor_kept() -> None:
    logits = torch.randn(64, 50, requires_grad=True)
    rows = margin_softmax_rows(logits, torch.randint(50, (64,)), probability_rule(0.3))
    saved = [x for x in rows.value.grad_fn.saved_tensors if x.numel() == logits.numel()]  # type: ignore[union-attr]
    assert len(saved) == 2, "the logits, which are the caller's, and the gradient"
    assert any(x.data_ptr() == logits.data_ptr() for x in saved)


def test_a_backward_from_outside_of_vmap() -> None:
    """Inside vmap the loss cannot see that a gradient is needed."""
    logits, target = torch.randn(3, 5, 7), torch.randint(7, (5,))
    batched, looped = (logits.clone().requires_grad_() for _ in range(2))

    def loss(x: Tensor) -> Tensor:
        return margin_softmax_rows(x, target, probability_rule(0.3)).mean()

    torch.vmap(loss)(batched).sum().backward()
    torch.stack([loss(x) for x in looped]).sum().backward()
    torch.testing.assert_close(batched.grad, looped.grad)


@pytest.mark.parametrize(
    "loss",
    [
        sparring.ASSoftmaxLoss(0.3),
        sparring.ASSoftmaxLoss(1.0),
        sparring.ASSoftmaxLoss(0.3, concede=0.4),
        sparring.ASLogitLoss(1.0),
        sparring.SoftmaxLoss(),
    ],
    ids=["as-softmax", "delta-1", "concede", "as-logit", "softmax"],
)
def test_compiled_with_few_classes(loss: sparring.Loss) -> None:
    """Enough logits for the form that inductor fuses, and numbers of all kinds."""
    logits, target = mixed(2000, 7)
    logits[target == -100] = torch.nan
    odd = logits.clone()
    odd[1, 2], odd[2, 0], odd[4, 1] = torch.nan, torch.inf, -torch.inf
    odd[5, target[5].clamp(min=0)] = -torch.inf
    torch._dynamo.reset()
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    for numbers in (logits, odd):
        for dtype in (torch.float32, torch.bfloat16):
            pairs = []
            for function in (compiled, loss):
                x = numbers.to(dtype, copy=True).requires_grad_()
                value = function(x, target)
                pairs.append((value.detach(), torch.autograd.grad(value, x)[0]))
            torch.testing.assert_close(*pairs, equal_nan=True)


def test_compiled_with_few_classes_has_no_silent_second_derivative() -> None:
    logits, target = mixed(2000, 7)
    x = logits.requires_grad_()
    torch._dynamo.reset()
    loss = torch.compile(sparring.ASSoftmaxLoss(0.3), fullgraph=True, backend="eager")
    (gradient,) = torch.autograd.grad(loss(x, target), x, create_graph=True)
    with pytest.raises(RuntimeError):
        torch.autograd.grad(gradient.square().sum(), x)
