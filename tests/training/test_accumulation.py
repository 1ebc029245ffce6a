from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from sparring import ASSoftmaxLoss
from sparring.training import AdaptiveAccumulation, ConstantAccumulation

counts = st.integers(0, 12).flatmap(
    lambda n: st.tuples(st.just(n), st.integers(0, n))
)  # N_all, N_masked of a micro-batch


def reference(trace: list[tuple[int, int]], lam: float, top: int, decide: str) -> list[int]:
    """Eq. 19 and its restrictions, window by window, in the words of the paper."""
    windows, steps, i = [], 1, 0
    while i < len(trace):
        if decide == "first":
            steps = _next(steps, *trace[i], lam, top)
        window = trace[i : i + steps]
        windows.append(steps)
        i += steps
        if decide == "previous":
            steps = _next(steps, sum(n for n, _ in window), sum(m for _, m in window), lam, top)
    return windows


def _next(steps: int, n_all: int, n_masked: int, lam: float, top: int) -> int:
    if n_all == 0:
        return steps
    wanted = top if n_all == n_masked else round(lam * n_all / (n_all - n_masked))
    if wanted < steps:
        wanted = steps  # i) increasing monotonically
    if wanted > steps + 1:
        wanted = steps + 1  # ii) adjacent ones differ by 1 at most
    return min(wanted, top)  # iii) an upper limitation


@given(
    st.lists(counts, max_size=60),
    st.sampled_from([0.2, 0.5, 1.0, 1.5, 4.0]),
    st.integers(1, 6),
    st.sampled_from(["previous", "first"]),
)
def test_follows_equation_19(trace: list[tuple[int, int]], lam: float, top: int, decide: str) -> None:
    accumulation, windows = AdaptiveAccumulation(lam, top, decide=decide), []
    for n_all, n_masked in trace:
        accumulation.add(n_all=n_all, n_masked=n_masked)
        if accumulation.n_micro == 1:
            windows.append(accumulation.steps)
        if accumulation.should_step:
            accumulation.close()
    assert windows == reference(trace, lam, top, decide)
    assert all(b - a in (0, 1) for a, b in pairwise(windows))
    assert all(1 <= steps <= top for steps in windows)


def test_padding_is_not_counted() -> None:
    loss, logits = ASSoftmaxLoss(delta=0.3), torch.tensor([[9.0, 0.0], [0.0, 1.0], [9.0, 0.0], [9.0, 0.0]])
    rows = loss.rows(logits, torch.tensor([0, 0, -100, -100]))
    padded, plain = AdaptiveAccumulation(1.0, 9), AdaptiveAccumulation(1.0, 9)
    assert padded.add(rows) == plain.add(n_all=2, n_masked=1) == 0.5
    padded.close()
    assert padded.steps == 2


def test_all_won_is_as_many_as_allowed_and_nothing_valid_says_nothing() -> None:
    accumulation = AdaptiveAccumulation(0.5, 3)
    assert accumulation.grown(8, 8) == 2
    assert accumulation.grown(0, 0) == 1
    accumulation.steps = 3
    assert accumulation.grown(8, 8) == 3


@pytest.mark.parametrize("decide", ["previous", "first"])
@pytest.mark.parametrize("weighted", [False, True])
def test_gradient_of_a_window_is_that_of_the_mean(decide: str, weighted: bool) -> None:
    """Micro-batches of different sizes, ignored rows, class weights, and a last window that stays short."""
    torch.manual_seed(0)
    loss = ASSoftmaxLoss(delta=0.3, weight=torch.tensor([1.0, 2.0, 0.5]) if weighted else None)
    model, twin = nn.Linear(4, 3), nn.Linear(4, 3)
    twin.load_state_dict(model.state_dict())
    accumulation = AdaptiveAccumulation(3.0, 3, decide=decide)
    batches = [(torch.randn(n, 4), torch.randint(0, 3, (n,))) for n in (4, 2, 5, 3, 1, 6, 2, 4)]
    batches[3][1][0] = -100
    window, lengths = [], []
    for i, (x, y) in enumerate(batches):
        rows = loss.rows(model(x), y)
        (rows.sum() * accumulation.add(rows)).backward()
        window.append((x, y))
        if accumulation.should_step or i == len(batches) - 1:
            accumulation.close(model.parameters())
            xs, ys = (torch.cat(parts) for parts in zip(*window, strict=True))
            loss(twin(xs), ys).backward()
            torch.testing.assert_close(model.weight.grad, twin.weight.grad)
            lengths.append(len(window))
            window = []
            model.zero_grad()
            twin.zero_grad()
    assert lengths == ([1, 2, 3, 2] if decide == "previous" else [2, 3, 3])


def test_state_survives() -> None:
    a, b = AdaptiveAccumulation(1.0, 4), AdaptiveAccumulation(1.0, 4)
    for i in range(7):
        a.add(n_all=8, n_masked=i)
        if a.should_step:
            a.close()
        b.load_state_dict(a.state_dict())
        assert b.state_dict() == a.state_dict()
        assert all(isinstance(value, (int, float)) for value in a.state_dict().values())


def test_constant_accumulation_stays() -> None:
    accumulation = ConstantAccumulation(3)
    for _ in range(3):
        assert not accumulation.should_step
        accumulation.add(n_all=4, n_masked=4)
    assert accumulation.should_step
    assert accumulation.close() == 1
    assert accumulation.steps == 3


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"lam": 0}, "lam must be above 0"),
        ({"max_steps": 0}, "max_steps must be a whole number"),
        ({"decide": "last"}, "previous, first"),
    ],
)
def test_bad_settings(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        AdaptiveAccumulation(**settings)


def test_bad_counts() -> None:
    with pytest.raises(ValueError, match="between 0 and n_all"):
        AdaptiveAccumulation().add(n_all=3, n_masked=4)
