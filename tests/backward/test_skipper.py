from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from sparring import ASSoftmaxLoss
from sparring.backward import skipper as skip
from tests.backward.models import CASES, N, backward, difference, make
from tests.backward.twins import assert_same, compared, grads_of, half_won, mlp, twins

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
    assert compaction.stats.n_walks == (won > 0)
    whole = name in ("batch-norm", "lstm") and 0 < won < 1  # from there on
    assert compaction.stats.n_partial == whole
    assert compaction.stats.n_samples_backward == (N if whole else round(N * (1 - won)))
    assert not whole or next(iter(compaction.stats.reasons)).startswith("in full from ")


@pytest.mark.parametrize(
    ("name", "in_full"),
    [
        *(
            (name, set())
            for name in (
                "bert",
                "bert-eager",
                "bert-no-attention-dropout",
                "distilbert",
                "vit",
                "tokens",
                "cnn",
                "conv1d",
            )
        ),
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


def test_our_losses_give_the_survivors() -> None:
    model, loss = mlp().eval(), ASSoftmaxLoss(delta=0.02)
    x = torch.randn(64, 6)
    y = model(x).argmax(1)
    y[:8] = -100
    active = int(loss.rows(model(x), y).active.sum())
    assert 0 < active < 56
    with skip.compact(model) as compaction:
        loss(model(x), y).backward()
    assert compaction.stats.n_samples_backward == active


def test_undone_at_the_end() -> None:
    model = mlp()
    with skip.compact(model) as compaction:
        with skip.compact(model):  # somebody else compacts the same model for a while
            pass
        half_won(model(torch.randn(8, 6))).backward()
    assert compaction.stats.n_skipping == 1
    assert "_RegionFunction" not in type(model(torch.randn(8, 6)).grad_fn).__name__
    assert not model._forward_hooks
    assert not model._forward_pre_hooks
    with pytest.raises(TypeError, match="in place"):
        compaction(torch.randn(8, 6))


def test_gradients_of_inputs() -> None:
    def run(model: nn.Module) -> list[torch.Tensor]:
        leaf = torch.randn(8, 6, requires_grad=True)
        half_won(model(leaf * 2)).backward()
        return [leaf.grad, *grads_of(model)]

    assert_same(run)


def test_accumulates_into_what_is_there() -> None:
    def run(model: nn.Module) -> list[torch.Tensor]:
        for _ in range(3):
            half_won(model(torch.randn(8, 6))).backward()
        return grads_of(model)

    assert_same(run)


def test_several_outputs_and_their_survivors_together() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.a, self.b = mlp(), nn.Linear(4, 3), nn.Linear(4, 2)

        def forward(self, x: torch.Tensor) -> dict[str, object]:
            h = self.body(x)
            return {"a": self.a(h), "b": (self.b(h), h, h), "n": len(x)}

    def run(model: nn.Module) -> list[torch.Tensor]:
        out = model(torch.linspace(-1, 1, 48).view(8, 6))
        (out["a"][:2].exp().sum() + out["b"][0][1:4].square().sum() + out["b"][2][6].sum()).backward()
        return grads_of(model)

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
            self.body, self.head = mlp(), nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(Gelu.apply(self.body(x), 3, "x"))

    assert compared(Coupled().eval(), torch.linspace(-1, 1, 48).view(8, 6)).in_full == {"GeluBackward": 1}


def test_frozen_and_unused_parameters() -> None:
    def run(model: nn.Module) -> list[torch.Tensor]:
        model[0].requires_grad_(False)
        model[3].weight.requires_grad_(False)
        model.register_parameter("unused", nn.Parameter(torch.ones(3)))
        half_won(model(torch.randn(8, 6))).backward()
        assert [n for n, p in model.named_parameters() if p.grad is None] == [
            "unused",
            "0.weight",
            "0.bias",
            "3.weight",
        ]
        return [g for g in grads_of(model) if g is not None]

    assert_same(run)


def test_tied_weights() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(9, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.embedding(x).mean(1) @ self.embedding.weight.t()

    assert not compared(Tied(), torch.arange(24).view(8, 3) % 9).in_full


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
        half_won(out.float()).backward()
        return grads_of(model)

    plain, compacted = twins(run)
    for a, b in zip(plain, compacted, strict=True):
        assert b.dtype == torch.float32
        torch.testing.assert_close(b, a, rtol=2e-2, atol=2e-3)


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
        half_won(model(x)).backward()
    assert order == [3, 2, 1]


class _Held:
    def __init__(self, alive: list[int]) -> None:
        self.alive = alive
        alive.append(1)

    def __del__(self) -> None:
        self.alive.pop()


def test_any_other_loss_is_welcome() -> None:
    def run(model: nn.Module) -> list[torch.Tensor]:
        out = model(torch.randn(8, 6))
        F.multi_margin_loss(out, out.argmax(1), margin=0.01).backward()
        return grads_of(model)

    assert_same(run)


@pytest.mark.parametrize("training", [False, True])
def test_batch_norm_that_keeps_its_statistics_does_not_mix_samples(training: bool) -> None:
    """What counts is the mode after ``model.train()``, which a loop calls; the modes stay as they are."""

    class Frozen(nn.Sequential):
        def train(self, mode: bool = True) -> Frozen:
            super().train(mode)
            self[1].eval()
            return self

    layers = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)
    mixing, frozen = nn.Sequential(*layers).train(training), Frozen(*layers)
    assert skip.has_batch_norm(mixing)
    assert [module.training for module in mixing.modules()] == [training] * 3
    assert not skip.has_batch_norm(frozen.train(training))
    assert skip.has_batch_norm(nn.BatchNorm1d(4, track_running_stats=False).eval())
    assert not skip.has_batch_norm(nn.Sequential(nn.Linear(2, 2), nn.LayerNorm(2)))
