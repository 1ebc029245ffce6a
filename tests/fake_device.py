"""Training steps on a device that has no values: what reads a value back, or lands on the CPU, fails.

python -m tests.fake_device

Fake tensors raise for ``.item()``, ``nonzero`` and boolean indexes. The device is torch's stand-in for an
accelerator, since a build of torch without CUDA cannot differentiate on "cuda". It stays registered, so this
runs in a process of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
)
from torch.utils import backend_registration
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import sparring
from sparring.backward.compact import compact
from sparring.losses.kernels import margin_softmax, margin_softmax_chunks

DEVICE = "fakegpu"
# Operations that launch nothing: views, and memory that is not written.
_FREE = (
    "alias as_strided detach empty empty_like expand lift_fresh new_empty permute select slice split squeeze"
)
FREE = {*_FREE.split(), "t", "transpose", "unsqueeze", "view", "_unsafe_view", "_reshape_alias", "device"}
SYNCS = (DataDependentOutputException, DynamicOutputShapeException)
# The most kernels that forward and backward of a loss may launch.
MOST_LAUNCHES = {"as-softmax": 50, "as-logit": 50, "softmax": 35}


class Launches(TorchDispatchMode):
    """Counts operations, and refuses results on the CPU."""

    def __init__(self) -> None:
        super().__init__()
        self.names: Counter[str] = Counter()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        name = function.overloadpacket.__name__
        on_cpu = [x for x in tree_leaves(result) if isinstance(x, Tensor) and x.is_cpu and x.dim() > 0]
        assert not on_cpu, f"{name} returns a tensor on the CPU"
        if name not in FREE:
            self.names[name] += 1
        return result


def launches(step: Callable[[], object]) -> Counter[str]:
    with Launches() as mode:
        step()
    return mode.names


def inputs(multilabel: bool = False) -> tuple[Tensor, Tensor]:
    logits = torch.randn(8, 30, device=DEVICE, requires_grad=True)
    if multilabel:
        return logits, torch.zeros(8, 30, device=DEVICE)
    return logits, torch.zeros(8, dtype=torch.long, device=DEVICE)


def check_losses() -> None:
    """Every loss, forward and backward; the kernels for devices stand behind `is_eager`."""
    for name in sparring.list_losses():
        logits, target = inputs(name.startswith("multilabel"))
        loss = sparring.make_loss(name)
        names = launches(lambda loss=loss, x=logits, t=target: loss(x, t).backward())
        assert logits.grad is not None
        assert logits.grad.device.type == DEVICE
        n = sum(names.values())
        assert n <= MOST_LAUNCHES.get(name, 300), f"{name} launches {n} kernels: {dict(names)}"
        print(f"{name}: {n} kernels a step")


def check_a_sync_is_found() -> None:
    """The counter-test: a loss that reads a value on the way."""
    logits, target = inputs()
    chunk = margin_softmax_chunks.chunk

    for read in (lambda x: x.max().item(), lambda x: x.nonzero(), lambda x: x[x > 0]):

        def chunk_with_sync(x: Tensor, *rest: Any, read: Callable[[Tensor], object] = read) -> Any:
            read(x)
            return chunk(x, *rest)

        patched = patch.object(margin_softmax_chunks, "chunk", chunk_with_sync)
        with patched, pytest.raises(SYNCS):
            sparring.ASSoftmaxLoss()(logits, target).backward()


def check_head() -> None:
    """The unfused form reads nothing. The chunked form reads the active rows once a chunk (documented)."""
    weight = torch.randn(30, 16, device=DEVICE, requires_grad=True)
    features = torch.randn(8, 16, device=DEVICE, requires_grad=True)
    target = torch.zeros(8, dtype=torch.long, device=DEVICE)
    loss = sparring.functional.linear_as_softmax_loss
    names = launches(lambda: loss(features, weight, target).backward())
    assert weight.grad is not None
    print(f"fused head, traced: {sum(names.values())} kernels a step")


def check_training_step() -> None:
    """A model, the loss, the optimizer; with `compact`, the only reads are those of the surviving rows."""
    layers = (nn.Linear(16, 32, device=DEVICE), nn.GELU(), nn.Linear(32, 30, device=DEVICE))
    model = nn.Sequential(*layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loss = sparring.ASSoftmaxLoss()
    x = torch.randn(8, 16, device=DEVICE)
    target = torch.zeros(8, dtype=torch.long, device=DEVICE)

    def step() -> None:
        loss(model(x), target).backward()
        optimizer.step()
        optimizer.zero_grad()

    print(f"training step: {sum(launches(step).values())} kernels")
    with compact(model), pytest.raises(SYNCS, match="nonzero") as error:
        step()
    print(f"compact reads the surviving rows: {error.value}")


def main() -> None:
    backend_registration._setup_privateuseone_for_python_backend(DEVICE)
    plain = (Tensor, nn.Parameter)
    original = margin_softmax.is_eager

    def is_eager(logits: Tensor) -> bool:
        """Fake tensors as if they were plain ones, so that the kernels for devices run."""
        return logits.device.type == DEVICE or (type(logits) in plain and original(logits))

    with FakeTensorMode(), patch.object(margin_softmax, "is_eager", is_eager):
        check_losses()
        check_a_sync_is_found()
        check_head()
        check_training_step()


if __name__ == "__main__":
    main()
