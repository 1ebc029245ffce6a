"""What a compacted model leaves to torch's engine, and what it lets pass."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from sparring.training import skip
from tests.training.twins import assert_same, compared, grads_of, half_won, mlp


@pytest.mark.parametrize("how", ["retain_graph", "a graph used twice", "inputs given", "few zero rows"])
def test_left_to_the_engine(how: str) -> None:
    def run(model: nn.Module) -> list[torch.Tensor]:
        out = model(torch.randn(8, 6))
        params = list(model.parameters())
        if how == "retain_graph":
            half_won(out).backward(retain_graph=True)
            half_won(out).backward()
        elif how == "a graph used twice":
            grads = torch.autograd.grad(half_won(out), params, create_graph=True)
            sum(g.square().sum() for g in grads).backward()
        elif how == "inputs given":
            found = list(torch.autograd.grad(half_won(out), params))
        else:
            out.square().sum().backward()
        for gate in model._forward_hooks.values():  # of the compacted one
            assert next(iter(gate.stats.reasons)) == how
        return found if how == "inputs given" else grads_of(model)

    assert_same(run)


def test_a_loss_on_a_stashed_activation() -> None:
    def run(model: nn.Module) -> list[torch.Tensor]:
        stash: list[torch.Tensor] = []
        model[3].register_forward_hook(lambda _module, _args, output: stash.append(output))
        out = model(torch.randn(8, 6))
        (half_won(out) + stash[0].square().mean()).backward()
        return grads_of(model)

    assert_same(run)


def test_a_graph_serves_once() -> None:
    model = mlp()
    skip.compact(model)
    total = half_won(model(torch.randn(8, 6)))
    total.backward()
    with pytest.raises(RuntimeError, match="second time"):
        total.backward()
    for share in (0.0, 1.0):  # by the engine, by the walk
        total = (model(torch.randn(8, 6)) * (torch.arange(8) % 2 * share + 1 - share)[:, None]).sum()
        total.backward()
        with pytest.raises(RuntimeError, match="second time"):
            total.backward()


def test_tensor_and_module_hooks_still_run() -> None:
    class Hooked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.head = mlp(), nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            h = self.body(x)
            h.register_hook(lambda grad: grad * 3)
            return self.head(h)

    assert compared(Hooked(), torch.ones(8, 6)).reasons == {"hooks": 1}
    assert torch.Tensor.register_hook.__name__ == "register_hook"

    model, seen = mlp(), []
    model[3].register_full_backward_hook(lambda *_: seen.append(1))
    with skip.compact(model) as compaction:
        half_won(model(torch.randn(8, 6))).backward()
    assert seen == [1]
    assert compaction.stats.reasons == {"hooks": 1}


def test_an_error_in_the_forward_leaves_no_trace() -> None:
    model, original = mlp(), torch.Tensor.register_hook
    skip.compact(model)
    with pytest.raises(RuntimeError, match="shapes"):
        model(torch.randn(8, 5))
    assert torch.Tensor.register_hook is original
    half_won(model(torch.randn(8, 6))).backward()


def test_outputs_changed_in_place_and_saved_tensors_spoilt() -> None:
    def run(model: nn.Module) -> list[torch.Tensor]:
        out = model(torch.randn(8, 6))
        out.mul_(2)
        half_won(out).backward()
        return grads_of(model)

    assert_same(run)
    model = nn.Sequential(nn.Linear(6, 4), nn.Tanh())
    skip.compact(model)
    out = model(torch.randn(8, 6))
    with torch.no_grad():
        out.mul_(2)  # tanh's backward needs its result
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        half_won(out).backward()


def test_a_leaf_the_model_does_not_own() -> None:
    stray = torch.ones(4, requires_grad=True)

    class Closing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = mlp()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.body(x) * stray

    for won in (1, 0):
        model = Closing().eval()
        with skip.compact(model):
            half_won(model(torch.ones(8, 6)) * won).backward()
        got, stray.grad = stray.grad, None
        half_won(model(torch.ones(8, 6)) * won).backward()
        torch.testing.assert_close(got, stray.grad)
        stray.grad = None


def test_only_a_stray_leaf_is_trained() -> None:
    prompt = torch.zeros(6, requires_grad=True)

    class Prompted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = mlp().eval().requires_grad_(False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.body(x + prompt)

    model = Prompted()
    with skip.compact(model):
        half_won(model(torch.ones(8, 6))).backward()
    got, prompt.grad = prompt.grad, None
    half_won(model(torch.ones(8, 6))).backward()
    torch.testing.assert_close(got, prompt.grad)


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointing(reentrant: bool) -> None:
    class Checked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.body, self.head = nn.Linear(6, 6), mlp(), nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(checkpoint(self.body, self.a(x), use_reentrant=reentrant))

    stats = compared(Checked(), torch.linspace(-1, 1, 48).view(8, 6))
    assert stats.n_skipping == reentrant  # the other kind keeps its own hands on what is saved


def test_saved_tensors_that_are_somebody_elses() -> None:
    def run(model: nn.Module) -> list[torch.Tensor]:
        with torch.autograd.graph.save_on_cpu():
            out = model(torch.randn(8, 6))
        half_won(out).backward()
        return grads_of(model)

    assert_same(run)


def test_copies_and_pickles_stay_compacted() -> None:
    model = mlp()
    skip.compact(model)
    for copied in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        half_won(copied(torch.randn(8, 6))).backward()
        assert next(iter(copied._forward_hooks.values())).stats.n_skipping == 1
        assert all(g is not None for g in grads_of(copied))
    assert all(g is None for g in grads_of(model))


def test_inference_and_torch_func_are_left_alone() -> None:
    model = mlp().eval()
    x = torch.randn(8, 6)
    expected = torch.func.grad(lambda p: half_won(torch.func.functional_call(model, p, (x,))))(dict(model.named_parameters()))
    with skip.compact(model):
        with torch.no_grad():
            assert not model(x).requires_grad
        got = torch.func.grad(lambda p: half_won(torch.func.functional_call(model, p, (x,))))(dict(model.named_parameters()))
    assert all(torch.equal(got[name], grad) for name, grad in expected.items())


def test_a_compiled_model_is_exact() -> None:
    def run(model: nn.Module) -> list[torch.Tensor]:
        model.eval()
        half_won(torch.compile(model, backend="aot_eager")(torch.linspace(-1, 1, 48).view(8, 6))).backward()
        return grads_of(model)

    assert_same(run)


def test_sharded_models_are_refused() -> None:
    class FSDPModule(nn.Linear):
        pass

    with pytest.raises(ValueError, match="two-pass"):
        skip.compact(nn.Sequential(FSDPModule(2, 2)))
