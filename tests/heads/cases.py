"""Batches in every state, comparison of results, and peak memory."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from sparring.losses.kernels.margin_softmax_cpu import forget_workspace

SHAPES = [(7, 5, 3), (300, 16, 1001), (513, 8, 37), (1, 4, 2), (129, 3, 130)]


STATES = ["none won", "mixed", "all won"]


def batch(
    n_rows: int, n_features: int, n_classes: int, state: str = "mixed", seed: int = 0
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Features, weight, bias and target in float64; some targets are ignored. Features point to their class
    where the row is to be won."""
    torch.manual_seed(seed)
    weight = torch.randn(n_classes, n_features, dtype=torch.float64)
    target = torch.randint(n_classes, (n_rows,))
    weight_t = F.normalize(weight[target], dim=1)
    pull = {"none won": -3.0, "mixed": 0.0, "all won": 200.0}[state] * torch.ones(
        n_rows, 1, dtype=torch.float64
    )
    if state == "mixed":
        pull = torch.tensor([-2.0, 2.0, 4.0, 8.0, 60.0], dtype=torch.float64)[torch.randint(5, (n_rows, 1))]
    weight = 3 * F.normalize(weight, dim=1)
    x = 0.1 * torch.randn(n_rows, n_features, dtype=torch.float64) + pull * weight_t
    if n_rows > 1:
        target[::5] = -100
    return x, weight, 0.1 * torch.randn(n_classes, dtype=torch.float64), target


def leaves(*tensors: Tensor | None, dtype: torch.dtype) -> list[Tensor | None]:
    return [None if x is None else x.to(dtype, copy=True).requires_grad_() for x in tensors]


def results(loss: Tensor, upstream: Tensor | None, parameters: list[Tensor | None]) -> list[Tensor]:
    """The loss, and the gradients of the parameters."""
    tensors = [x for x in parameters if x is not None]
    upstream = None if upstream is None else upstream.to(loss.dtype)
    return [loss.detach(), *torch.autograd.grad(loss, tensors, upstream)]


def agree(ours: list[Tensor], theirs: list[Tensor], exact: list[Tensor]) -> None:
    """Our error is at most about that of the unfused loss."""
    for mine, other, true in zip(ours, theirs, exact, strict=True):
        scale = float(true.abs().max()) + 1e-30
        error, reference = (float((x.double() - true).abs().max()) / scale for x in (mine, other))
        assert error <= 2 * reference + 2e-6, (error, reference)


def peak_memory(step: Callable[[], object]) -> int:
    """The largest number of bytes alive at once beyond those before, the reusable workspace included."""
    forget_workspace()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        step()
    assert record.profiler is not None
    events = sorted(record.profiler.kineto_results.events(), key=lambda event: event.start_ns())
    alive = peak = 0
    for event in events:
        if event.name() == "[memory]":
            alive += event.nbytes()
            peak = max(peak, alive)
    return peak
