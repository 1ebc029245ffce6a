"""Run by test_sharding.py in two processes: gradients of wrapped or sharded models, compacted or not."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

from sparring.backward.compact import compact

WON = (0.0, 0.5, 1.0)
COMPACTED = ("before", "after", "a part")


def net() -> nn.Sequential:
    torch.manual_seed(0)
    body = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh())
    return nn.Sequential(body, nn.Linear(16, 4))


def shard_layers(model: nn.Sequential) -> nn.Module:
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in (model[0][0], model[0][2], model[1]):
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def shard_root(model: nn.Sequential) -> nn.Module:
    return fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))


def flatten(model: nn.Sequential) -> nn.Module:
    return FullyShardedDataParallel(model, device_id=torch.device("cpu"))


def tensor_parallel(model: nn.Sequential) -> nn.Module:
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    return parallelize_module(model, mesh, {"0.0": ColwiseParallel(), "0.2": RowwiseParallel()})


def ddp(**settings: Any) -> Callable[[nn.Sequential], nn.Module]:
    return lambda model: DistributedDataParallel(model, **settings)


WRAPPERS: dict[str, Callable[[nn.Sequential], nn.Module]] = {
    "ddp": ddp(),
    "ddp, static graph": ddp(static_graph=True),
    "ddp, bucket views": ddp(gradient_as_bucket_view=True),
    "ddp, unused parameters": ddp(find_unused_parameters=True),
    "ddp, no_sync": ddp(),
    "fully_shard, by layer": shard_layers,
    "fully_shard, the root": shard_root,
    "FSDP": flatten,
    "tensor parallel": tensor_parallel,
}


def gradients(name: str, compacted: str) -> list[list[Tensor]]:
    """The gradients of two steps at each share of won rows.

    ``compacted``: "no", "before" or "after" the model is wrapped, or "a part" of the model before that.
    """
    model = net()
    if compacted == "a part":
        compact(model[0])
    if compacted == "before":
        compact(model)
    wrapped = WRAPPERS[name](model)
    if compacted == "after":
        compact(wrapped)
    results = []
    for won in WON:
        wrapped.zero_grad()
        for step in range(2):
            torch.manual_seed(10 * step + dist.get_rank() * (name != "tensor parallel"))
            with wrapped.no_sync() if name == "ddp, no_sync" and step == 0 else nullcontext():
                rows = wrapped(torch.randn(8, 6)).logsumexp(1)
                (rows * (torch.arange(8) >= 8 * won)).sum().backward()
        grads = [parameter.grad for parameter in wrapped.parameters() if parameter.grad is not None]
        results.append([getattr(grad, "full_tensor", grad.clone)() for grad in grads])
    return results


def difference(expected: list[Tensor], grads: list[Tensor]) -> str:
    if len(grads) != len(expected):
        return f"{len(grads)} gradients instead of {len(expected)}"
    scale = max(float(grad.abs().max()) for grad in expected) or 1.0
    worst = max(float((a - b).abs().max()) for a, b in zip(expected, grads, strict=True)) / scale
    return "equal" if worst < 1e-5 else f"off by {worst:.1%}"


def outcomes(name: str) -> dict[tuple[str, str], list[str]]:
    """For each share of won rows: "equal", "refused", or how different the gradients are."""
    expected = gradients(name, "no")
    results: dict[tuple[str, str], list[str]] = {}
    for compacted in COMPACTED:
        try:
            results[name, compacted] = list(map(difference, expected, gradients(name, compacted)))
        except ValueError as error:
            results[name, compacted] = ["refused" if "two-pass" in str(error) else str(error)]
    return results


def main(path: str) -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # FSDP's own
    dist.init_process_group("gloo")
    results: dict[tuple[str, str], list[str]] = {}
    for name in WRAPPERS:
        results |= outcomes(name)
    torch.save(results, f"{path}.{dist.get_rank()}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
