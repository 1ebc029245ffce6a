"""Random networks of operations, with and without a rule, mixing samples or not: gradients equal torch's."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from sparring.backward.compact import compact

B, T, H = 6, 4, 8

# from (B, T, H) and a weight (H, H) to (B, T, H)
OPERATIONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "linear": F.linear,
    "matmul": lambda x, w: x @ w,
    "einsum": lambda x, w: torch.einsum("bth,hk->btk", x, w),
    "sequence first": lambda x, w: F.linear(x.transpose(0, 1), w).transpose(0, 1),
    "sequence first, flat": lambda x, w: (
        (x.transpose(0, 1).reshape(T * B, H) @ w).view(T, B, H).permute(1, 0, 2)
    ),
    "attention": lambda x, w: (
        F.scaled_dot_product_attention(*[t.view(B, T, 2, 4).transpose(1, 2) for t in (x, x @ w, x)])
        .transpose(1, 2)
        .reshape(B, T, H)
    ),
    "attention by hand": lambda x, w: torch.softmax(x @ (x @ w).transpose(1, 2) / 3, -1) @ x,
    "shared mask": lambda x, _: (
        torch.softmax((x @ x.mT).masked_fill(torch.ones(T, T).triu(1).bool(), -9.0), -1) @ x
    ),
    "layer norm": lambda x, w: F.layer_norm(x, (H,), w[0], w[1]),
    "norm over both": lambda x, _: F.layer_norm(x, (T, H)),
    "rms": lambda x, w: x * (x.pow(2).mean(-1, keepdim=True) + 1e-3).rsqrt() * w[0],
    "group norm": lambda x, w: F.group_norm(x.transpose(1, 2), 2, w[0], w[1]).transpose(1, 2),
    "conv1d": lambda x, w: F.conv1d(x.transpose(1, 2), w[:, :, None].expand(H, H, 3), padding=1).transpose(
        1, 2
    ),
    "conv2d": lambda x, w: F.conv2d(x.unsqueeze(1), w[:3, :3][None, None], padding=1).squeeze(1),
    "pool": lambda x, w: (
        F.max_pool2d(x.unsqueeze(1), 2).repeat_interleave(2, 2).repeat_interleave(2, 3).squeeze(1) * w[0]
    ),
    "gelu": lambda x, w: F.gelu(x * w[0]),
    "glu": lambda x, _: torch.cat([F.glu(x, -1), x[..., : H // 2].relu()], -1),
    "gate": lambda x, w: x * torch.sigmoid(x @ w) + (1 - torch.sigmoid(x[:, :1])) * x,
    "dropout": lambda x, w: F.dropout(x, 0.3) + w[0],
    "position": lambda x, w: x + w[:T] + torch.arange(T)[:, None] * 0.1,
    "flatten": lambda x, w: (x.flatten(1).unflatten(1, (H, T)) * w[0][:, None]).mT,
    "parts": lambda x, _: torch.stack([part * (i + 1) for i, part in enumerate(x.unbind(1))], 1),
    "some parts": lambda x, _: torch.cat([x.split([1, 3], 1)[1], x.chunk(2, 1)[0][:, :1]], 1),
    "mean": lambda x, w: x - x.mean(1, keepdim=True) + x.sum((1, 2)).view(B, 1, 1) * w[0],
    "where": lambda x, w: torch.where(x > 0, x * w[0], x.abs() + 1).clamp(-3, 3),
    "clamped": lambda x, w: (
        torch.clamp(x, -w[0].exp(), w[1].exp()) + torch.clamp_min(x, w[2] * 2) + x.minimum(w[3].tanh())
    ),
    "temperature": lambda x, w: x * w[0, 0] + x / w[1, 1].exp() - w[2, 2],
    "sequence first, largest": lambda x, w: (
        x + x.transpose(0, 1).max(0).values.unsqueeze(1) * w[0] + x.mT.amin(2).unsqueeze(1)
    ),
    "repeated outside": lambda x, w: (
        x.mean(1).tanh().repeat(T, 1, 1).transpose(0, 1) * w[0]
        + F.linear(x[:, 0], w).repeat(2, 1, 1).mean(0)[:, None]
    ),
    "another dtype": lambda x, w: (
        x.float().mean(1, keepdim=True, dtype=torch.double)
        + x.float().sum((1, 2), dtype=torch.double)[:, None, None] * w[0]
    ),
    "in place": lambda x, w: (x * w[0]).add_(1).tanh_(),
    "reshaped in place": lambda x, w: (
        (x * 2).contiguous().view(B, T * H).mul_(w.flatten()[: T * H]).view(B, T, H)
    ),
    "first": lambda x, w: x[:, 0].unsqueeze(1) + x * w[0] + x[:, -1:] + x[:],
    "samples reversed": lambda x, w: x.flip(0) * w[0],
    "samples coupled": lambda x, w: x - x.mean(0) * w[0],
    "batch norm": lambda x, w: F.batch_norm(x.reshape(B * T, H), None, None, w[0], w[1], training=True).view(
        B, T, H
    ),
    "samples joined": lambda x, w: torch.cat([x[:2] * w[0], x[2:]], 0),
    "sorted": lambda x, w: x.sort(1).values * w[0],
    "cumulative": lambda x, _: x.cumsum(1) * 0.3,
    "rolled": lambda x, w: x.roll((1, 2), (1, 2)) * w[0] + x.flip(2),
    "samples rolled": lambda x, w: x.roll(1, 0) * w[0],
    "padded": lambda x, w: F.pad(x, (1, 1, 1, 1))[:, 2:, 1:-1].repeat(1, 2, 1)[:, :T] * w[0],
    "samples not padded": lambda x, w: F.pad(x, (1, 0, 0, 0, 0, 0))[..., 1:] * w[0],
    "fourier": lambda x, w: torch.fft.fftn(x, dim=(1, 2)).real * w[0] / 9,
    "real fourier": lambda x, w: torch.fft.irfft(torch.fft.rfft(x, dim=2), n=H, dim=2) * w[0],
    "samples in fourier": lambda x, w: torch.fft.fft(x, dim=0).imag * w[0] / 9,
    "patches": lambda x, w: F.fold(F.unfold(x[:, None], (1, 3)), (T, H), (1, 3)).squeeze(1) * w[0],
    "gathered": lambda x, w: (
        x.gather(2, torch.arange(H).flip(0).expand(B, T, H)) + x.gather(1, torch.zeros(B, 1, H).long()) * w[0]
    ),
    "picked": lambda x, w: x.index_select(1, torch.tensor([3, 0, 0, 1])) * w[0],
    "repeated": lambda x, w: (
        (w[:T, None] * 1.5).repeat(B, 1, 1).view(B, T, H) + x.repeat(1, 1, 2).view(B, T, 2, H).sum(2)
    ),
    "unit": lambda x, w: F.normalize(x, dim=-1) * w[0] + x.norm(dim=1, keepdim=True) / 9,
    "log-sum-exp": lambda x, w: (
        x * w[0] + x.logsumexp(1, keepdim=True) - x.amax(2, keepdim=True) + x.amin((1, 2)).view(B, 1, 1)
    ),
    "frozen batch norm": lambda x, w: (
        F.batch_norm(x.mT, w[2].detach(), w[3].detach() ** 2 + 1, w[0], w[1], training=False).mT
    ),
    "sequence first attention": lambda x, w: (
        torch.einsum("tbh,sbh->bts", x.transpose(0, 1), (x @ w).transpose(0, 1)).tanh() @ x
    ),
    "tokens as columns": lambda x, w: (w @ x.reshape(B * T, H).t()).t().view(B, T, H),
    "tokens batched": lambda x, w: torch.bmm(x.transpose(0, 1), w.expand(T, H, H)).transpose(0, 1),
    "tokens batched, columns": lambda x, w: torch.bmm(w.expand(T, H, H), x.permute(1, 2, 0)).permute(2, 0, 1),
    "least": lambda x, w: x - x.min(2, keepdim=True).values * w[0] + x.max(1).values.unsqueeze(1),
    "largest": lambda x, w: x + x.max(1, keepdim=True).values * w[0],
    "written into": lambda x, w: torch.zeros_like(x).index_add(1, torch.arange(T), x @ w),
    "indexed": lambda x, w: x[torch.arange(B)[:, None], torch.tensor([0, 2, 1, 1])] * w[0],
}


# losses of the samples
HEADS: dict[str, Callable[[Tensor], Tensor]] = {
    "tokens": lambda out: out.square().sum((1, 2)),
    "pooled": lambda out: out.mean(1).exp().sum(1),
    "mixed": lambda out: out[:, 0].sum(1) * out[:, 1].sum(1),
}


class Network(nn.Module):
    def __init__(self, operations: list[str], joins: list[int]) -> None:
        super().__init__()
        self.operations = operations
        self.joins = joins
        self.embedding = nn.Embedding(9, H)
        self.weights = nn.Parameter(torch.randn(len(operations), H, H) / 2)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embedding(ids)
        activations = [x]
        for i, name in enumerate(self.operations):
            x = OPERATIONS[name](x, self.weights[i])
            x = (x + activations[self.joins[i] % len(activations)]) / 2  # a residual from any earlier one
            activations.append(x)
        return x


@given(
    st.lists(st.tuples(st.sampled_from(sorted(OPERATIONS)), st.integers(0, 9)), min_size=1, max_size=7),
    st.sets(st.integers(0, B - 1), min_size=1, max_size=B),
    st.sampled_from(sorted(HEADS)),
)
def test_any_composition_is_exact(steps: list[tuple[str, int]], won: set[int], head: str) -> None:
    torch.manual_seed(0)
    plain = Network([name for name, _ in steps], [join for _, join in steps]).double()
    twin = copy.deepcopy(plain)
    ids = torch.randint(0, 9, (B, T))
    row_weights = torch.tensor([0.0 if i in won else 1.0 for i in range(B)], dtype=torch.double)
    results = []
    with compact(twin, min_dropped=0.0) as compaction:
        for model in (plain, twin):
            torch.manual_seed(1)
            (HEADS[head](model(ids)) * row_weights).sum().backward()
            results.append([p.grad for p in model.parameters()])
    assert compaction.stats.n_walks == 1
    torch.testing.assert_close(*results, rtol=1e-9, atol=1e-11)


def test_every_operation_by_itself() -> None:
    for name in OPERATIONS:
        for won in ({1, 2, 5}, {0, 1, 2, 3, 4}):
            test_any_composition_is_exact.hypothesis.inner_test([(name, 0)], won, "tokens")


@pytest.mark.parametrize("name", ["samples not padded", "fourier", "real fourier", "patches"])
def test_an_operation_that_keeps_samples_apart_runs_on_survivors(name: str) -> None:
    model = Network([name], [0])
    with compact(model, min_dropped=0.0) as compaction:
        (model(torch.randint(0, 9, (B, T))).square().sum((1, 2)) * (torch.arange(B) % 2)).sum().backward()
    assert not compaction.stats.in_full
    assert compaction.stats.n_skipping == 1
