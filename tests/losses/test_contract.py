"""The contract of every registered loss, whatever its equation."""

from __future__ import annotations

import copy
import inspect
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

import sparring
from sparring import functional
from tests.cases import CASES, IDS, NAMES, SETTINGS, batch, is_multilabel, make

every_case = pytest.mark.parametrize(("name", "settings"), CASES, ids=IDS)
every_loss = pytest.mark.parametrize("name", NAMES)
# one case for every path through the code: most settings are constants of the same graph
COMPILED = [(name, SETTINGS[name][0]) for name in NAMES]
COMPILED += [("sparse-softmax", {"k": 100}), ("multilabel-sparse-softmax", {"k": 100})]
COMPILED += [("label-smoothing", {"epsilon": 0.0})]


def gradient(loss: sparring.Loss, logits: Tensor, target: Tensor) -> Tensor:
    logits = logits.clone().requires_grad_()
    (grad,) = torch.autograd.grad(loss(logits, target).sum(), logits)
    return grad


@every_case
def test_gradient_and_second_derivative(name: str, settings: dict[str, Any]) -> None:
    logits, target = batch(name, n_rows=6, n_classes=4, dtype=torch.float64)
    loss = make(name, settings)
    assert gradcheck(
        lambda x: loss(x, target), logits.requires_grad_(), check_forward_ad=True, check_batched_grad=True
    )
    assert gradgradcheck(lambda x: loss(x, target), logits, check_batched_grad=True)


@every_case
def test_rows_are_consistent(name: str, settings: dict[str, Any]) -> None:
    logits, target = batch(name, n_rows=40)
    loss = make(name, settings, reduction="none")
    rows = loss.rows(logits, target)
    assert (rows.value >= 0).all()
    assert rows.value.dtype == torch.float32
    assert rows.valid.dtype == rows.active.dtype == torch.bool
    assert not (rows.active & ~rows.valid).any()
    assert (rows.value[~rows.active] == 0).all(), "won and ignored rows cost exactly nothing"
    assert (gradient(loss, logits, target)[~rows.active] == 0).all(), "and get exactly no gradient"
    assert torch.equal(loss(logits, target), rows.value)


@every_case
def test_reductions(name: str, settings: dict[str, Any]) -> None:
    logits, target = batch(name)
    none, mean, total = (make(name, settings, reduction=r)(logits, target) for r in ("none", "mean", "sum"))
    rows = make(name, settings).rows(logits, target)
    torch.testing.assert_close(total, none.sum())
    torch.testing.assert_close(
        mean, none.sum() / rows.valid.sum(), msg="mean divides by all valid rows, won ones included"
    )


@every_case
def test_rows_are_independent_of_each_other(name: str, settings: dict[str, Any]) -> None:
    logits, target = batch(name, n_rows=40)
    loss = make(name, settings, reduction="none")
    pick = torch.randperm(40)[:17]
    torch.testing.assert_close(loss(logits[pick], target[pick]), loss(logits, target)[pick])


@every_case
def test_ignored_rows_change_nothing(name: str, settings: dict[str, Any]) -> None:
    logits, target = batch(name)
    loss = make(name, settings)
    rows = loss.rows(logits, target)
    assert not rows.valid[2]
    changed = logits.clone()
    changed[2] = 50 * torch.randn(logits.shape[1])
    torch.testing.assert_close(loss(changed, target), loss(logits[rows.valid], target[rows.valid]))


@every_case
def test_nothing_valid_gives_a_connected_zero(name: str, settings: dict[str, Any]) -> None:
    logits, target = batch(name)
    logits.requires_grad_()
    value = make(name, settings)(logits, torch.full_like(target, -100))
    value.backward()
    assert value.item() == 0
    assert logits.grad is not None
    assert not logits.grad.any()


@every_case
def test_empty_batch(name: str, settings: dict[str, Any]) -> None:
    logits, target = batch(name, n_rows=0)
    logits.requires_grad_()
    value = make(name, settings)(logits, target)
    value.backward()
    assert value.item() == 0
    assert logits.grad is not None
    assert logits.grad.shape == logits.shape
    assert make(name, settings, reduction="none")(logits, target).shape == (0,)


@every_case
def test_one_class(name: str, settings: dict[str, Any]) -> None:
    target = torch.ones(3, 1) if is_multilabel(name) else torch.zeros(3, dtype=torch.long)
    logits = torch.randn(3, 1, requires_grad=True)
    value = make(name, settings)(logits, target)
    value.backward()
    assert logits.grad is not None
    if is_multilabel(
        name
    ):  # no negative label, so there is no margin: log(1 + exp(−o)) of the positive remains
        scaled = logits.detach() / settings.get("tau", 1)
        torch.testing.assert_close(value, torch.nn.functional.softplus(-scaled).mean())
        assert (logits.grad < 0).all()
    else:
        assert value.item() == 0
        assert not logits.grad.any()


@every_case
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bf16", "fp16"])
def test_half_precision(name: str, settings: dict[str, Any], dtype: torch.dtype) -> None:
    logits, target = batch(name)
    half = logits.to(dtype)
    loss = make(name, settings)
    assert loss(half, target).dtype == dtype, "F.cross_entropy returns the input's dtype too"
    assert loss.rows(half, target).value.dtype == torch.float32
    with torch.autocast("cpu", dtype=dtype):
        x = half.clone().requires_grad_()
        value = loss(x, target)
    assert value.dtype == torch.float32
    value.backward()
    assert x.grad is not None
    assert x.grad.dtype == dtype
    torch.testing.assert_close(value, loss(half.float(), target))
    torch.testing.assert_close(x.grad, gradient(loss, half.float(), target).to(dtype))


@every_case
def test_extreme_logits(name: str, settings: dict[str, Any]) -> None:
    values = torch.tensor([1e4, -1e4, 0.0])
    logits = torch.cartesian_prod(values, values, values)  # every row of three
    if is_multilabel(name):
        labels = torch.cartesian_prod(*[torch.tensor([0, 1])] * 3)
        logits, target = logits.repeat_interleave(len(labels), 0), labels.repeat(len(logits), 1)
    else:
        logits, target = logits.repeat_interleave(3, 0), torch.arange(3).repeat(len(logits))
    loss = make(name, settings, reduction="none")
    value = loss(logits, target)
    assert value.isfinite().all()
    assert (value >= 0).all()
    assert gradient(loss, logits, target).isfinite().all()


@every_case
def test_nan_is_not_hidden(name: str, settings: dict[str, Any]) -> None:
    logits, target = batch(name)
    logits[0, 0] = torch.nan
    target[0] = torch.tensor([1] + [0] * 6) if is_multilabel(name) else 1
    assert make(name, settings)(logits, target).isnan()


@pytest.mark.parametrize(("name", "settings"), COMPILED, ids=str)
def test_compiles_to_one_graph(name: str, settings: dict[str, Any]) -> None:
    """Same values and gradients; NaN in the ignored row reaches nothing there either."""
    logits, target = batch(name)
    logits[2] = torch.nan
    loss = make(name, settings, reduction="none")
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    x = logits.clone().requires_grad_()
    value = compiled(x, target)
    torch.testing.assert_close(value, loss(logits, target))
    (grad,) = torch.autograd.grad(value.sum(), x)
    torch.testing.assert_close(grad, gradient(loss, logits, target))
    assert not grad[2].any()
    torch._dynamo.reset()


@every_case
def test_torch_func(name: str, settings: dict[str, Any]) -> None:
    logits, target = batch(name, n_rows=8)
    loss = make(name, settings)
    expected = gradient(loss, logits, target)
    torch.testing.assert_close(torch.func.grad(lambda x: loss(x, target))(logits), expected)
    per_row = torch.func.vmap(torch.func.grad(loss.__call__))(logits, target)  # per-sample gradients
    torch.testing.assert_close(per_row, gradient(make(name, settings, reduction="sum"), logits, target))
    stacked = torch.stack([logits, logits.flip(0)])
    shared_target = torch.func.vmap(loss.__call__, in_dims=(0, None))(stacked, target)
    torch.testing.assert_close(shared_target, torch.stack([loss(x, target) for x in stacked]))
    hessian = torch.func.jacrev(torch.func.jacrev(lambda x: loss(x, target)))(logits.double())
    assert hessian.isfinite().all()


@every_case
def test_pickles_copies_and_restores(name: str, settings: dict[str, Any]) -> None:
    logits, target = batch(name)
    loss = make(name, settings)
    for other in (pickle.loads(pickle.dumps(loss)), copy.deepcopy(loss)):
        assert torch.equal(other(logits, target), loss(logits, target))
    loss.load_state_dict(loss.state_dict())
    for key, value in settings.items():
        assert f"{key}={value}" in repr(loss)


@every_loss
def test_module_and_function_share_parameters_and_defaults(name: str) -> None:
    cls = type(sparring.make_loss(name))
    stem = name.replace("-", "_")
    function = inspect.signature(getattr(functional, f"{stem}_loss")).parameters
    module = inspect.signature(cls).parameters
    assert list(function)[:2] == ["input", "target"]
    shared = {k: v.default for k, v in function.items() if k not in ("input", "target")}
    assert shared == {k: v.default for k, v in module.items()}
    own = [k for k, v in function.items() if v.kind is v.KEYWORD_ONLY]
    class_weights = ["pos_weight"] if is_multilabel(name) else []
    assert own == [*cls.setting_names, *class_weights]
    logits, target = batch(name)
    assert torch.equal(getattr(functional, f"{stem}_loss")(logits, target), cls()(logits, target))


@every_case
def test_backward_twice_and_upstream_gradients(name: str, settings: dict[str, Any]) -> None:
    logits, target = batch(name)
    loss = make(name, settings, reduction="none")
    upstream = torch.randn(len(logits))
    x = logits.clone().requires_grad_()
    value = loss(x, target)
    (first,) = torch.autograd.grad(value, x, upstream, retain_graph=True)
    first = first.clone()
    (second,) = torch.autograd.grad(value, x, upstream)
    torch.testing.assert_close(first, second)
    torch.testing.assert_close(first, gradient(loss, logits, target) * upstream[:, None])


@every_case
def test_repeated_calls_agree_to_the_bit(name: str, settings: dict[str, Any]) -> None:
    logits, target = batch(name, n_rows=40)
    loss = make(name, settings)
    assert torch.equal(loss(logits, target), loss(logits, target))
    assert torch.equal(gradient(loss, logits, target), gradient(loss, logits, target))


@every_case
def test_evaluation_in_inference_mode_then_training(name: str, settings: dict[str, Any]) -> None:
    logits, target = batch(name, n_rows=40)
    loss = make(name, settings)
    with torch.inference_mode():
        evaluated = loss(logits, target)
    x = logits.clone().requires_grad_()
    trained = loss(x, target)
    trained.backward()
    assert torch.equal(evaluated.clone(), trained.detach())


@every_case
def test_deterministic_algorithms(name: str, settings: dict[str, Any]) -> None:
    logits, target = batch(name, n_rows=40)
    loss = make(name, settings)
    expected = gradient(loss, logits, target)
    torch.use_deterministic_algorithms(True)
    try:
        assert torch.equal(gradient(loss, logits, target), expected)
    finally:
        torch.use_deterministic_algorithms(False)
