"""What a compacted model leaves to torch's engine, and what it lets pass."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from sparring.backward import skipper as skip
from sparring.training.loop import Loop
from tests.backward.twins import assert_same, compared, grads_of, half_won, mlp


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
    assert stats.reasons == {"reentrant checkpointing" if reentrant else "saved tensors are hooked": 1}


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


def test_a_pickle_notices_hooks_in_a_new_process(tmp_path: Path) -> None:
    model = mlp()
    skip.compact(model)
    (tmp_path / "model").write_bytes(pickle.dumps(model))
    script = (
        "import pickle, sys, torch\n"
        "model = pickle.load(open(sys.argv[1], 'rb'))\n"
        "inner = []\n"
        "model[0].register_forward_hook(lambda _module, _args, output: inner.append(output))\n"
        "calls = []\n"
        "output = model(torch.ones(8, 6))\n"
        "inner[0].register_hook(calls.append)\n"
        "(output.sum(1) * (torch.arange(8) % 2)).sum().backward()\n"
        "assert len(calls) == 1\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "model")], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_inference_and_torch_func_are_left_alone() -> None:
    model = mlp().eval()
    x = torch.randn(8, 6)
    expected = torch.func.grad(lambda p: half_won(torch.func.functional_call(model, p, (x,))))(
        dict(model.named_parameters())
    )
    with skip.compact(model):
        with torch.no_grad():
            assert not model(x).requires_grad
        got = torch.func.grad(lambda p: half_won(torch.func.functional_call(model, p, (x,))))(
            dict(model.named_parameters())
        )
    assert all(torch.equal(got[name], grad) for name, grad in expected.items())


def test_a_compiled_model_is_exact() -> None:
    def run(model: nn.Module) -> list[torch.Tensor]:
        model.eval()
        half_won(torch.compile(model, backend="aot_eager")(torch.linspace(-1, 1, 48).view(8, 6))).backward()
        return grads_of(model)

    assert_same(run)


def test_compiled_models_say_so() -> None:
    torch.compiler.reset()  # it would take what it made of another model without hooks
    x = torch.linspace(-1, 1, 48).view(8, 6)
    inside, outside = mlp().eval(), torch.compile(mlp().eval(), backend="aot_eager")
    with skip.compact(inside) as compaction:
        half_won(torch.compile(inside, backend="aot_eager")(x)).backward()
    assert compaction.stats.compiled
    with skip.compact(outside) as compaction:
        half_won(outside(x)).backward()
    assert compaction.stats.reasons == {"a compiled model": 1}
    assert compaction.stats.n_skipping == 0


def test_a_leaf_hook_is_called_once() -> None:
    model, x = nn.Linear(3, 2), torch.randn(4, 3)
    model.weight.register_hook(lambda grad: grad * 0.5)
    expected = torch.autograd.grad((model(x) ** 2).sum(), model.weight)[0]
    skip.compact(model)
    (model(x) ** 2).sum().backward()
    torch.testing.assert_close(model.weight.grad, expected)


class Tied(nn.Module):
    """The input may be made of the very weights that the output layer uses."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding, self.body = nn.Embedding(9, 8), nn.Linear(8, 8)

    def forward(self, x: torch.Tensor, again: torch.Tensor | None = None) -> torch.Tensor:
        h = self.body(x).tanh().mean(1)
        return (h if again is None else h * again) @ self.embedding.weight.t()


@pytest.mark.parametrize("chained", [False, True])
@pytest.mark.parametrize("won", [0, 1])
def test_inputs_made_of_the_models_own_parameters_or_of_each_other(won: int, chained: bool) -> None:
    grads = []
    for compacted in (False, True):
        model = Tied()
        if compacted:
            compaction = skip.compact(model)
        x = F.embedding(torch.arange(24).view(8, 3) % 9, model.embedding.weight)
        if chained:
            leaf = torch.linspace(-1, 1, 192).view(8, 3, 8).requires_grad_()
            x = leaf * 1.5
        out = model(x, x.mean(1).exp()) if chained else model(x)
        (out.logsumexp(1) * torch.tensor([1.0, 1.0 - won]).repeat(4)).sum().backward()
        grads.append([*grads_of(model)[1:], leaf.grad if chained else model.embedding.weight.grad])
    for a, b in zip(*grads, strict=True):
        torch.testing.assert_close(b, a)
    assert next(iter(compaction.stats.reasons)).startswith("inputs made of")


def test_a_model_that_writes_into_its_input() -> None:
    class Writing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = mlp()

        def forward(self, features: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
            features["logits"] = self.body(features["x"])
            return features

    model = Writing()
    with skip.compact(model) as compaction:
        half_won(model({"x": torch.randn(8, 6)})["logits"]).backward()
    assert compaction.stats.n_skipping == 1


def test_a_forward_that_cannot_be_seen_is_told() -> None:
    model = mlp()
    with skip.compact(model) as compaction:
        with pytest.warns(UserWarning, match=r"Call model\(\.\.\.\)"):
            model.forward(torch.randn(8, 6))
        model.forward(torch.randn(8, 6))  # once is enough
        with torch.no_grad():
            model.forward(torch.randn(8, 6))
        half_won(model(torch.randn(8, 6))).backward()
    assert compaction.stats.reasons == {"the model was not called itself": 2}
    assert compaction.stats.n_skipping == 1


def test_a_forward_over_activations_from_before_calls_their_hooks() -> None:
    def run(model: nn.Module, hooked: bool) -> list[torch.Tensor]:
        leaf = torch.ones(8, 6, requires_grad=True)
        before = leaf * 2
        if hooked:
            before.register_hook(lambda grad: grad.clamp(-0.01, 0.01))
        model[0].register_forward_pre_hook(lambda _module, args: (args[0] + before,))
        half_won(model(torch.randn(8, 6))).backward()
        return [leaf.grad, *grads_of(model)]

    assert_same(lambda model: run(model, hooked=False))
    assert_same(lambda model: run(model, hooked=True))


@pytest.mark.parametrize("share", [0, 1])
def test_reentrant_checkpointing_by_the_engine_and_all_won(share: int) -> None:
    class Checked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.body = nn.Linear(6, 6), mlp().eval()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return checkpoint(self.body, self.a(x), use_reentrant=True)

    model = Checked()
    twin = copy.deepcopy(model)
    skip.compact(twin)
    for each in (model, twin):
        (each(torch.ones(8, 6)).logsumexp(1) * share).sum().backward()
    for a, b in zip(grads_of(model), grads_of(twin), strict=True):
        assert b is not None
        torch.testing.assert_close(b, a)


@pytest.mark.parametrize("mode", ["micro", "rows", "two-pass"])
def test_a_won_batch_calls_hooks_all_the_same(mode: str) -> None:
    """A hook may add to the gradient, weight decay say: leaving a backward out would lose it."""
    from sparring import ASSoftmaxLoss
    from tests.training.toy import digits_like, net

    ends = []
    for skipping in ("off", mode):
        torch.manual_seed(0)
        model = net(0.0)
        model[0].weight.register_hook(lambda grad, w=model[0].weight: grad + 0.1 * w.detach())
        data = digits_like()
        Loop(model, ASSoftmaxLoss(0.0), data, epochs=2, batch_size=4, lr=0.05, skip=skipping).run()
        ends.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
    torch.testing.assert_close(*ends, rtol=1e-4, atol=1e-5)


def test_sharded_models_are_refused() -> None:
    class FSDPModule(nn.Linear):
        pass

    with pytest.raises(ValueError, match="two-pass"):
        skip.compact(nn.Sequential(FSDPModule(2, 2)))
