"""What a compacted model leaves to torch's engine, and what passes through it unchanged."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from contextlib import nullcontext

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

from sparring.backward.backward_hook import hook_of
from sparring.backward.compact import compact
from tests.backward.twins import FunctionNet, assert_same, compared, grads_of, half_won, mlp

X = torch.linspace(-1, 1, 48).view(8, 6)


@pytest.mark.parametrize("reason", ["retain_graph", "a graph used twice", "inputs given", "few zero rows"])
def test_left_to_the_engine(reason: str) -> None:
    def run(model: nn.Module) -> list[Tensor]:
        output = model(torch.randn(8, 6))
        parameters = list(model.parameters())
        grads = None
        if reason == "retain_graph":
            half_won(output).backward(retain_graph=True)
            half_won(output).backward()
        elif reason == "a graph used twice":
            first_grads = torch.autograd.grad(half_won(output), parameters, create_graph=True)
            sum(grad.square().sum() for grad in first_grads).backward()
        elif reason == "inputs given":
            grads = list(torch.autograd.grad(half_won(output), parameters))
        else:
            output.square().sum().backward()
        if (hook := hook_of(model)) is not None:
            assert next(iter(hook.stats.reasons)) == reason
        return grads or grads_of(model)

    assert_same(run)


def test_a_loss_on_an_activation() -> None:
    def run(model: nn.Module) -> list[Tensor]:
        activations: list[Tensor] = []
        model[3].register_forward_hook(lambda _module, _args, output: activations.append(output))
        output = model(torch.randn(8, 6))
        (half_won(output) + activations[0].square().mean()).backward()
        return grads_of(model)

    assert_same(run)


@pytest.mark.parametrize("row_weights", [torch.ones(8), torch.arange(8) % 2], ids=["engine", "walk"])
def test_a_graph_serves_once(row_weights: Tensor) -> None:
    model = mlp()
    compact(model)
    total = (model(X) * row_weights[:, None]).sum()
    total.backward()
    with pytest.raises(RuntimeError, match="second time"):
        total.backward()


def test_tensor_and_module_hooks_are_called() -> None:
    def forward(net: nn.Module, x: Tensor) -> Tensor:
        h = net.body(x)
        h.register_hook(lambda grad: grad * 3)
        return net.head(h)

    net = FunctionNet(forward, body=mlp(), head=nn.Linear(4, 4))
    assert compared(net, torch.ones(8, 6)).reasons == {"hooks": 1}
    assert Tensor.register_hook.__name__ == "register_hook"

    model = mlp()
    calls: list[int] = []
    model[3].register_full_backward_hook(lambda *_: calls.append(1))
    with compact(model) as compaction:
        half_won(model(torch.randn(8, 6))).backward()
    assert calls == [1]
    assert compaction.stats.reasons == {"hooks": 1}


def test_an_error_in_the_forward_leaves_no_trace() -> None:
    model = mlp()
    register_hook = Tensor.register_hook
    compact(model)
    with pytest.raises(RuntimeError, match="shapes"):
        model(torch.randn(8, 5))
    assert Tensor.register_hook is register_hook
    half_won(model(torch.randn(8, 6))).backward()


def test_outputs_changed_in_place_and_saved_tensors_spoilt() -> None:
    def run(model: nn.Module) -> list[Tensor]:
        output = model(torch.randn(8, 6))
        output.mul_(2)
        half_won(output).backward()
        return grads_of(model)

    assert_same(run)
    model = nn.Sequential(nn.Linear(6, 4), nn.Tanh())
    compact(model)
    output = model(torch.randn(8, 6))
    with torch.no_grad():
        output.mul_(2)  # the backward of tanh needs its result
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        half_won(output).backward()


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("weight", [0, 1])
def test_a_leaf_that_the_model_does_not_own(weight: int, frozen: bool) -> None:
    leaf = torch.ones(6, requires_grad=True)
    model = FunctionNet(lambda net, x: net.body(x * leaf), body=mlp()).eval().requires_grad_(not frozen)
    grads = []
    for context in (compact(model), nullcontext()):
        with context:
            half_won(model(X) * weight).backward()
        grads.append(leaf.grad)
        leaf.grad = None
    torch.testing.assert_close(*grads)


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointing(reentrant: bool) -> None:
    def forward(net: nn.Module, x: Tensor) -> Tensor:
        return net.head(checkpoint(net.body, net.first(x), use_reentrant=reentrant))

    net = FunctionNet(forward, first=nn.Linear(6, 6), body=mlp(), head=nn.Linear(4, 4))
    assert compared(net, X).reasons == {
        "reentrant checkpointing" if reentrant else "saved tensors are hooked": 1
    }


@pytest.mark.parametrize("weight", [0, 1])
def test_reentrant_checkpointing_with_all_rows_or_none(weight: int) -> None:
    def forward(net: nn.Module, x: Tensor) -> Tensor:
        return checkpoint(net.body, net.first(x), use_reentrant=True)

    net = FunctionNet(forward, first=nn.Linear(6, 6), body=mlp().eval())
    compared(net, X, lambda output: (output.logsumexp(1) * weight).sum())
    assert all(grad is not None for grad in grads_of(net))


def test_hooks_of_others_on_saved_tensors() -> None:
    def run(model: nn.Module) -> list[Tensor]:
        with save_on_cpu():
            output = model(torch.randn(8, 6))
        half_won(output).backward()
        return grads_of(model)

    assert_same(run)


def test_copies_and_pickles_stay_compacted() -> None:
    model = mlp()
    compact(model)
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        half_won(twin(torch.randn(8, 6))).backward()
        assert hook_of(twin).stats.n_skipping == 1
        assert all(grad is not None for grad in grads_of(twin))
    assert all(grad is None for grad in grads_of(model))


def test_a_pickle_notices_hooks_in_a_new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new process has not called ``compact``: torch's methods are not wrapped there."""
    model = mlp()
    compact(model)
    model(X)  # wraps them here
    data = pickle.dumps(model)
    for owner, name in (
        (Tensor, "register_hook"),
        (Tensor, "retain_grad"),
        (saved_tensors_hooks, "__enter__"),
    ):
        monkeypatch.setattr(owner, name, getattr(owner, name).__wrapped__)
    model = pickle.loads(data)
    activations: list[Tensor] = []
    calls: list[Tensor] = []
    model[0].register_forward_hook(lambda _module, _args, output: activations.append(output))
    output = model(X)
    activations[0].register_hook(calls.append)
    half_won(output).backward()
    assert len(calls) == 1


def test_inference_and_torch_func_are_left_alone() -> None:
    model = mlp().eval()

    def grads() -> dict[str, Tensor]:
        loss = lambda parameters: half_won(torch.func.functional_call(model, parameters, (X,)))  # noqa: E731
        return torch.func.grad(loss)(dict(model.named_parameters()))

    expected = grads()
    with compact(model):
        with torch.no_grad():
            assert not model(X).requires_grad
        assert all(torch.equal(grad, expected[name]) for name, grad in grads().items())


def test_compiled_models_are_exact_and_say_so() -> None:
    torch.compiler.reset()  # it would reuse the code of another model without hooks
    inside = mlp().eval()
    outside = torch.compile(copy.deepcopy(inside), backend="aot_eager")
    half_won(inside(X)).backward()
    expected = grads_of(inside)
    inside.zero_grad()
    with compact(inside) as compaction:
        half_won(torch.compile(inside, backend="aot_eager")(X)).backward()
    assert compaction.stats.compiled
    with compact(outside) as compaction:
        half_won(outside(X)).backward()
    assert compaction.stats.reasons == {"a compiled model": 1}
    assert compaction.stats.n_skipping == 0
    for model in (inside, outside):
        torch.testing.assert_close(grads_of(model), expected)


def test_a_leaf_hook_is_called_once() -> None:
    model = nn.Linear(6, 2)
    model.weight.register_hook(lambda grad: grad * 0.5)
    expected = torch.autograd.grad((model(X) ** 2).sum(), model.weight)[0]
    compact(model)
    (model(X) ** 2).sum().backward()
    torch.testing.assert_close(model.weight.grad, expected)


@pytest.mark.parametrize("chained", [False, True])
@pytest.mark.parametrize("won", [0, 1])
def test_inputs_computed_from_the_models_own_parameters_or_from_each_other(won: int, chained: bool) -> None:
    def forward(net: nn.Module, x: Tensor, factor: Tensor | float = 1.0) -> Tensor:
        return net.body(x).tanh().mean(1) * factor @ net.embedding.weight.t()

    grads = []
    for compacted in (False, True):
        torch.manual_seed(0)
        model = FunctionNet(forward, embedding=nn.Embedding(9, 8), body=nn.Linear(8, 8))
        compaction = compact(model) if compacted else None
        leaf = torch.linspace(-1, 1, 192).view(8, 3, 8).requires_grad_()
        if chained:
            x = leaf * 1.5
            output = model(x, x.mean(1).exp())
        else:
            output = model(F.embedding(torch.arange(24).view(8, 3) % 9, model.embedding.weight))
        (output.logsumexp(1) * torch.tensor([1.0, 1.0 - won]).repeat(4)).sum().backward()
        grads.append([*grads_of(model), *([leaf.grad] if chained else [])])
    torch.testing.assert_close(*grads)
    assert next(iter(compaction.stats.reasons)).startswith("inputs made of")


def test_a_model_that_writes_into_its_input() -> None:
    def forward(net: nn.Module, features: dict[str, Tensor]) -> dict[str, Tensor]:
        features["logits"] = net.body(features["x"])
        return features

    model = FunctionNet(forward, body=mlp())
    with compact(model) as compaction:
        half_won(model({"x": torch.randn(8, 6)})["logits"]).backward()
    assert compaction.stats.n_skipping == 1


def test_a_call_of_forward_is_warned_of() -> None:
    model = mlp()
    with compact(model) as compaction:
        with pytest.warns(UserWarning, match=r"Call model\(\.\.\.\)"):
            model.forward(X)
        model.forward(X)  # warns once
        with torch.no_grad():
            model.forward(X)
        half_won(model(X)).backward()
    assert compaction.stats.reasons == {"the model was not called itself": 2}
    assert compaction.stats.n_skipping == 1


@pytest.mark.parametrize("hook", [None, lambda grad: grad.clamp(-0.01, 0.01)], ids=["no hook", "hook"])
def test_activations_from_before_the_forward(hook: Callable[[Tensor], Tensor] | None) -> None:
    def run(model: nn.Module) -> list[Tensor]:
        leaf = torch.ones(8, 6, requires_grad=True)
        activation = leaf * 2
        if hook is not None:
            activation.register_hook(hook)
        model[0].register_forward_pre_hook(lambda _module, args: (args[0] + activation,))
        half_won(model(torch.randn(8, 6))).backward()
        return [leaf.grad, *grads_of(model)]

    assert_same(run)


def test_a_model_that_runs_in_full_is_left_to_torch() -> None:
    """BatchNorm at the outputs couples all samples: after three walks the model keeps torch's backward."""
    torch.manual_seed(0)
    layers = (nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4), nn.BatchNorm1d(4))
    plain = nn.Sequential(*layers)
    twin = copy.deepcopy(plain)
    with compact(twin) as compaction:
        for _ in range(5):
            for model in (plain, twin):
                model.zero_grad()
                half_won(model(X)).backward()
            for a, b in zip(grads_of(plain), grads_of(twin), strict=True):
                torch.testing.assert_close(b, a)
    stats = compaction.stats
    assert stats.reasons == {
        "in full from NativeBatchNormBackward0": 3,
        "most of the model runs in full": 2,
    }
    assert (stats.n_backward, stats.n_partial) == (3, 3)
    assert stats.n_samples_backward == stats.n_samples == 24
