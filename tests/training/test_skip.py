from __future__ import annotations

import copy
import pickle

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from sparring import ASSoftmaxLoss
from sparring.training import skip
from tests.training.models import CASES, Case, N, backward, difference, make

SHARES = (0.0, 0.1, 0.5, 0.9, 1.0)


@pytest.mark.parametrize("won", SHARES)
@pytest.mark.parametrize("name", CASES)
def test_gradients_are_those_of_the_full_backward(name: str, won: float) -> None:
    case, twin = make(name), make(name)
    expected = backward(twin, won)
    with skip.compact(case.model) as compaction:
        got = backward(case, won)
    assert difference(expected, got) < 1e-5
    assert all(torch.equal(a, b) for a, b in zip(case.model.buffers(), twin.model.buffers(), strict=True))
    assert compaction.stats.n_skipping == (won > 0)
    assert compaction.stats.n_samples_backward == round(N * (1 - won))


@pytest.mark.parametrize(
    ("name", "in_full"),
    [
        *((name, set()) for name in ("bert", "bert-eager", "bert-no-attention-dropout", "distilbert", "vit", "tokens", "cnn", "conv1d")),
        ("group-norm", set()),
        ("transformer-batch-first", set()),
        ("batch-norm", {"NativeBatchNormBackward0"}),
        ("lstm", {"MkldnnRnnLayerBackward0"}),
    ],
)
def test_what_stays_whole(name: str, in_full: set[str]) -> None:
    case = make(name)
    with skip.compact(case.model) as compaction:
        backward(case, 0.5)
    assert set(compaction.stats.in_full) == in_full


def _mlp() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 4))


def _half_won(logits: torch.Tensor) -> torch.Tensor:
    """A loss with a gradient of zero for every other row."""
    return (logits.logsumexp(1) * (torch.arange(len(logits)) % 2)).sum()


def _twins(run) -> tuple[Case, Case]:
    """``run(model)`` on a plain and on a compacted model, from the same random state."""
    cases = []
    for compacted in (False, True):
        model = _mlp()
        if compacted:
            skip.compact(model)
        torch.manual_seed(1)
        cases.append(run(model))
    return tuple(cases)


def _same(run) -> None:
    plain, compacted = _twins(run)
    for a, b in zip(plain, compacted, strict=True):
        torch.testing.assert_close(b, a, rtol=1e-5, atol=1e-6)


def _grads(model: nn.Module) -> list[torch.Tensor]:
    return [p.grad for p in model.parameters()]


def test_our_losses_give_the_survivors() -> None:
    model, loss = _mlp().eval(), ASSoftmaxLoss(delta=0.02)
    x = torch.randn(64, 6)
    y = model(x).argmax(1)
    y[:8] = -100
    active = int(loss.rows(model(x), y).active.sum())
    assert 0 < active < 56
    with skip.compact(model) as compaction:
        loss(model(x), y).backward()
    assert compaction.stats.n_samples_backward == active


def test_undone_at_the_end() -> None:
    model = _mlp()
    with skip.compact(model) as compaction:
        with skip.compact(model):  # somebody else compacts the same model for a while
            pass
        _half_won(model(torch.randn(8, 6))).backward()
    assert compaction.stats.n_skipping == 1
    assert "_Gated" not in type(model(torch.randn(8, 6)).grad_fn).__name__
    assert not model._forward_hooks
    assert not model._forward_pre_hooks
    with pytest.raises(TypeError, match="in place"):
        compaction(torch.randn(8, 6))


def test_gradients_of_inputs() -> None:
    def run(model: nn.Module) -> list[torch.Tensor]:
        leaf = torch.randn(8, 6, requires_grad=True)
        _half_won(model(leaf * 2)).backward()
        return [leaf.grad, *_grads(model)]

    _same(run)


def test_accumulates_into_what_is_there() -> None:
    def run(model: nn.Module) -> list[torch.Tensor]:
        for _ in range(3):
            _half_won(model(torch.randn(8, 6))).backward()
        return _grads(model)

    _same(run)


def test_several_outputs_and_their_survivors_together() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.a, self.b = _mlp(), nn.Linear(4, 3), nn.Linear(4, 2)

        def forward(self, x: torch.Tensor) -> dict[str, object]:
            h = self.body(x)
            return {"a": self.a(h), "b": (self.b(h), h, h), "n": len(x)}

    def run(model: nn.Module) -> list[torch.Tensor]:
        out = model(torch.linspace(-1, 1, 48).view(8, 6))
        (out["a"][:2].exp().sum() + out["b"][0][1:4].square().sum() + out["b"][2][6].sum()).backward()
        return _grads(model)

    torch.manual_seed(0)
    plain = Two()
    twin = copy.deepcopy(plain)
    with skip.compact(twin) as compaction:
        torch.manual_seed(1)
        expected = run(plain)
        torch.manual_seed(1)
        got = run(twin)
    for a, b in zip(expected, got, strict=True):
        torch.testing.assert_close(b, a)
    assert compaction.stats.n_samples_backward == 5


@pytest.mark.parametrize("how", ["retain_graph", "a graph used twice", "inputs given", "few zero rows"])
def test_left_to_the_engine(how: str) -> None:
    def run(model: nn.Module) -> list[torch.Tensor]:
        out = model(torch.randn(8, 6))
        params = list(model.parameters())
        if how == "retain_graph":
            _half_won(out).backward(retain_graph=True)
            _half_won(out).backward()
        elif how == "a graph used twice":
            grads = torch.autograd.grad(_half_won(out), params, create_graph=True)
            sum(g.square().sum() for g in grads).backward()
        elif how == "inputs given":
            return list(torch.autograd.grad(_half_won(out), params))
        else:
            out.square().sum().backward()
        reasons = [r for hook in model._forward_hooks.values() for r in hook.stats.reasons]
        assert not reasons or reasons[0] == how
        return _grads(model)

    _same(run)


def test_a_loss_on_a_stashed_activation() -> None:
    def run(model: nn.Module) -> list[torch.Tensor]:
        stash: list[torch.Tensor] = []
        model[3].register_forward_hook(lambda _module, _args, output: stash.append(output))
        out = model(torch.randn(8, 6))
        (_half_won(out) + stash[0].square().mean()).backward()
        return _grads(model)

    _same(run)


def test_a_graph_serves_once() -> None:
    model = _mlp()
    skip.compact(model)
    total = _half_won(model(torch.randn(8, 6)))
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
            self.body, self.head = _mlp(), nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            h = self.body(x)
            h.register_hook(lambda grad: grad * 3)
            return self.head(h)

    torch.manual_seed(0)
    plain = Hooked()
    twin = copy.deepcopy(plain)
    with skip.compact(twin) as compaction:
        for model in (plain, twin):
            torch.manual_seed(1)
            _half_won(model(torch.ones(8, 6))).backward()
    assert all(torch.equal(a, b) for a, b in zip(_grads(plain), _grads(twin), strict=True))
    assert compaction.stats.reasons == {"hooks": 1}
    assert torch.Tensor.register_hook.__name__ == "register_hook"

    model, seen = _mlp(), []
    model[3].register_full_backward_hook(lambda *_: seen.append(1))
    with skip.compact(model) as compaction:
        _half_won(model(torch.randn(8, 6))).backward()
    assert seen == [1]
    assert compaction.stats.reasons == {"hooks": 1}


def test_an_error_in_the_forward_leaves_no_trace() -> None:
    model, original = _mlp(), torch.Tensor.register_hook
    skip.compact(model)
    with pytest.raises(RuntimeError, match="shapes"):
        model(torch.randn(8, 5))
    assert torch.Tensor.register_hook is original
    _half_won(model(torch.randn(8, 6))).backward()


def test_outputs_changed_in_place_and_saved_tensors_spoilt() -> None:
    def run(model: nn.Module) -> list[torch.Tensor]:
        out = model(torch.randn(8, 6))
        out.mul_(2)
        _half_won(out).backward()
        return _grads(model)

    _same(run)
    model = nn.Sequential(nn.Linear(6, 4), nn.Tanh())
    skip.compact(model)
    out = model(torch.randn(8, 6))
    with torch.no_grad():
        out.mul_(2)  # tanh's backward needs its result
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        _half_won(out).backward()


def test_a_leaf_the_model_does_not_own() -> None:
    stray = torch.ones(4, requires_grad=True)

    class Closing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = _mlp()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.body(x) * stray

    for won in (1, 0):
        model = Closing().eval()
        with skip.compact(model):
            _half_won(model(torch.ones(8, 6)) * won).backward()
        got, stray.grad = stray.grad, None
        _half_won(model(torch.ones(8, 6)) * won).backward()
        torch.testing.assert_close(got, stray.grad)
        stray.grad = None


def test_only_a_stray_leaf_is_trained() -> None:
    prompt = torch.zeros(6, requires_grad=True)

    class Prompted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = _mlp().eval().requires_grad_(False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.body(x + prompt)

    model = Prompted()
    with skip.compact(model):
        _half_won(model(torch.ones(8, 6))).backward()
    got, prompt.grad = prompt.grad, None
    _half_won(model(torch.ones(8, 6))).backward()
    torch.testing.assert_close(got, prompt.grad)


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointing(reentrant: bool) -> None:
    class Checked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.body, self.head = nn.Linear(6, 6), _mlp(), nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(checkpoint(self.body, self.a(x), use_reentrant=reentrant))

    torch.manual_seed(0)
    plain = Checked()
    twin = copy.deepcopy(plain)
    with skip.compact(twin) as compaction:
        for model in (plain, twin):
            torch.manual_seed(1)
            _half_won(model(torch.linspace(-1, 1, 48).view(8, 6))).backward()
    for a, b in zip(_grads(plain), _grads(twin), strict=True):
        torch.testing.assert_close(b, a)
    assert compaction.stats.n_skipping == reentrant  # the other kind keeps its own hands on what is saved


def test_saved_tensors_that_are_somebody_elses() -> None:
    def run(model: nn.Module) -> list[torch.Tensor]:
        with torch.autograd.graph.save_on_cpu():
            out = model(torch.randn(8, 6))
        _half_won(out).backward()
        return _grads(model)

    _same(run)


def test_a_function_with_the_name_of_a_rule_is_not_taken_for_it() -> None:
    class Gelu(torch.autograd.Function):
        """Couples samples."""

        @staticmethod
        def forward(ctx, x, factor, unused):
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return grad + grad.mean(0), None, None

    class Coupled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.head = _mlp(), nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(Gelu.apply(self.body(x), 3, "x"))

    torch.manual_seed(0)
    plain = Coupled().eval()
    twin = copy.deepcopy(plain)
    with skip.compact(twin) as compaction:
        for model in (plain, twin):
            _half_won(model(torch.linspace(-1, 1, 48).view(8, 6))).backward()
    for a, b in zip(_grads(plain), _grads(twin), strict=True):
        torch.testing.assert_close(b, a)
    assert compaction.stats.in_full == {"GeluBackward": 1}


def test_frozen_and_unused_parameters() -> None:
    def run(model: nn.Module) -> list[torch.Tensor]:
        model[0].requires_grad_(False)
        model[3].weight.requires_grad_(False)
        model.register_parameter("unused", nn.Parameter(torch.ones(3)))
        _half_won(model(torch.randn(8, 6))).backward()
        assert [n for n, p in model.named_parameters() if p.grad is None] == ["unused", "0.weight", "0.bias", "3.weight"]
        return [g for g in _grads(model) if g is not None]

    _same(run)


def test_tied_weights() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(9, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.embedding(x).mean(1) @ self.embedding.weight.t()

    torch.manual_seed(0)
    plain = Tied()
    twin = copy.deepcopy(plain)
    with skip.compact(twin) as compaction:
        for model in (plain, twin):
            _half_won(model(torch.arange(24).view(8, 3) % 9)).backward()
    torch.testing.assert_close(twin.embedding.weight.grad, plain.embedding.weight.grad)
    assert not compaction.stats.in_full


@pytest.mark.parametrize("won", [0.5, 1.0])
def test_sparse_gradients_stay_sparse(won: float) -> None:
    grads = []
    for compacted in (False, True):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Embedding(9, 4, sparse=True), nn.Flatten(), nn.Linear(12, 3))
        if compacted:
            skip.compact(model)
        out = model(torch.arange(24).view(8, 3) % 9)
        (out.exp().sum(1) * (torch.arange(8) >= 8 * won)).sum().backward()
        grads.append(model[0].weight.grad)
    assert all(grad.is_sparse for grad in grads)
    torch.testing.assert_close(grads[1].to_dense(), grads[0].to_dense())


def test_autocast() -> None:
    def run(model: nn.Module) -> list[torch.Tensor]:
        with torch.autocast("cpu", torch.bfloat16):
            out = model(torch.linspace(-1, 1, 48).view(8, 6))
        _half_won(out.float()).backward()
        return _grads(model)

    plain, compacted = _twins(run)
    for a, b in zip(plain, compacted, strict=True):
        assert b.dtype == torch.float32
        torch.testing.assert_close(b, a, rtol=2e-2, atol=2e-3)


def test_copies_and_pickles_stay_compacted() -> None:
    model = _mlp()
    skip.compact(model)
    for copied in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        _half_won(copied(torch.randn(8, 6))).backward()
        assert next(iter(copied._forward_hooks.values())).stats.n_skipping == 1
        assert all(g is not None for g in _grads(copied))
    assert all(g is None for g in _grads(model))


def test_inference_and_torch_func_are_left_alone() -> None:
    model = _mlp().eval()
    x = torch.randn(8, 6)
    expected = torch.func.grad(lambda p: _half_won(torch.func.functional_call(model, p, (x,))))(dict(model.named_parameters()))
    with skip.compact(model):
        with torch.no_grad():
            assert not model(x).requires_grad
        got = torch.func.grad(lambda p: _half_won(torch.func.functional_call(model, p, (x,))))(dict(model.named_parameters()))
    assert all(torch.equal(got[name], grad) for name, grad in expected.items())


def test_a_compiled_model_is_exact() -> None:
    def run(model: nn.Module) -> list[torch.Tensor]:
        model.eval()
        _half_won(torch.compile(model, backend="aot_eager")(torch.linspace(-1, 1, 48).view(8, 6))).backward()
        return _grads(model)

    _same(run)


def test_memory_is_freed_on_the_way() -> None:
    """What lies behind the walk is let go, as torch's engine does."""
    alive: list[int] = []

    class Probe(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.held = _Held(alive)
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            ctx.seen = len(alive)
            order.append(len(alive))
            return grad

    order: list[int] = []

    class Probed(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for _ in range(3):
                x = Probe.apply(x * 2)
            return x

    model = Probed()
    x = torch.ones(4, 2, requires_grad=True)
    with skip.compact(model):
        _half_won(model(x)).backward()
    assert order == [3, 2, 1]


class _Held:
    def __init__(self, alive: list[int]) -> None:
        self.alive = alive
        alive.append(1)

    def __del__(self) -> None:
        self.alive.pop()


def test_sharded_models_are_refused() -> None:
    class FSDPModule(nn.Linear):
        pass

    with pytest.raises(ValueError, match="two-pass"):
        skip.compact(nn.Sequential(FSDPModule(2, 2)))


def test_any_other_loss_is_welcome() -> None:
    def run(model: nn.Module) -> list[torch.Tensor]:
        out = model(torch.randn(8, 6))
        F.multi_margin_loss(out, out.argmax(1), margin=0.01).backward()
        return _grads(model)

    _same(run)
