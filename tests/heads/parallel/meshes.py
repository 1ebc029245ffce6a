"""Run by test_head.py under torchrun: data × classes, with DDP and with FSDP2 around the encoder; and what ranks tell of mistakes."""

from __future__ import annotations

import copy
import re
import sys
from datetime import timedelta
from typing import Any
from unittest import mock

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor, Shard, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

from sparring import ASSoftmaxLoss, ClassParallelHead, LinearLoss
from sparring.heads.parallel import clip_grad_norm_

N, C, STEPS = 24, 21, 4
H = 8


def encoder() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(5, 12), nn.Tanh(), nn.Linear(12, H))


def whole_head() -> LinearLoss:
    torch.manual_seed(2)
    made = LinearLoss(H, C, ASSoftmaxLoss(0.3))
    made.linear.weight.data *= 3
    return made


def batches() -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(3)
    return [
        (torch.randn(N, 5, generator=generator), torch.randint(C, (N,), generator=generator))
        for _ in range(STEPS)
    ]


def full(x: Tensor) -> Tensor:
    return x.full_tensor() if isinstance(x, DTensor) else x  # type: ignore[no-any-return]


def train(net: nn.Module, head: Any, own: Any, clip: float | None = None) -> list[Tensor]:
    groups = [{"params": list(net.parameters())}, {"params": list(head.parameters())}]
    optimizer = torch.optim.SGD(groups, 0.5)
    norms = []
    for x, target in batches():
        head(net(x[own]), target[own]).backward()
        if clip is not None:
            every = [*net.parameters(), *head.parameters()]
            norms.append(
                clip_grad_norm_(every, clip)
                if isinstance(head, ClassParallelHead)
                else nn.utils.clip_grad_norm_(every, clip)
            )
        optimizer.step()
        optimizer.zero_grad()
    weights = [full(p).detach() for p in net.parameters()]
    layer = head.to_linear() if isinstance(head, ClassParallelHead) else head.linear
    return [*weights, *(p.detach() for p in layer.parameters()), *norms]


def alike(found: list[Tensor], wanted: list[Tensor], what: str) -> None:
    for a, b in zip(found, wanted, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5, msg=lambda text: f"{what}: {text}")


def refused(call: Any, words: str, kind: type[Exception] = ValueError) -> None:
    with pytest.raises(kind, match=re.escape(words)):
        call()


def lean(size: int) -> None:
    """What a rank keeps falls as 1/p; what it sends does not depend on the number of classes."""
    sent = []
    for n_classes in (40, 4000):
        head = ClassParallelHead(H, n_classes, delta=1.0)
        x, target = torch.randn(10, H, generator=torch.Generator().manual_seed(0)), torch.arange(10)
        head(x.requires_grad_(), target).backward()  # the first one has a look at everybody, too
        before = head.wire.n_bytes
        head(x, target).backward()
        sent.append(head.wire.n_bytes - before)
        optimizer = torch.optim.AdamW(head.parameters())
        optimizer.step()
        kept = [
            head.weight,
            head.weight.grad,
            *(optimizer.state[head.weight][name] for name in ("exp_avg", "exp_avg_sq")),
        ]
        assert [each.to_local().numel() for each in kept] == [n_classes // size * H] * 4
    assert (
        sent == [2 * (size - 1) * 4 * (3 * 10 + 10 * H) // size] * 2
    )  # max, Σ exp and target of each row; the input's gradient
    before = head.wire.n_bytes
    head.predict(x, 3)
    assert head.wire.n_bytes - before == (size - 1) * 10 * 3 * (4 + 8)


def main() -> None:
    early = ClassParallelHead(H, C)
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    rank, size = dist.get_rank(), dist.get_world_size()
    wanted = train(encoder(), whole_head(), slice(None))
    mesh = init_device_mesh("cpu", (2, size // 2), mesh_dim_names=("data", "class"))
    data, parts = mesh.get_coordinate()[0], slice(rank * N // size, (rank + 1) * N // size)
    half = slice(
        data * N // 2, (data + 1) * N // 2
    )  # what a data rank has, the same for all ranks of its classes

    # every rank its own part of the batch: encoder and head over all ranks
    head = ClassParallelHead.from_linear(whole_head().linear, inputs="gathered")
    alike(train(DistributedDataParallel(encoder()), head, parts), wanted, "DDP, all ranks")
    with mock.patch(
        "torch.distributed.reduce_scatter", side_effect=RuntimeError("gloo does not support reduce_scatter")
    ):  # as it once was
        head = ClassParallelHead.from_linear(whole_head().linear, inputs="gathered")
        alike(train(DistributedDataParallel(encoder()), head, parts), wanted, "without reduce-scatter")
    # data × classes: slices copied over the data dimension
    for inputs, own in (("gathered", parts), ("replicated", half)):
        head = ClassParallelHead.from_linear(whole_head().linear, mesh=mesh, inputs=inputs)
        assert head.slice.size <= -(-C // (size // 2))
        alike(train(DistributedDataParallel(encoder()), head, own), wanted, f"DDP, data × classes, {inputs}")
        net = encoder()
        fully_shard(net, mesh=mesh["data"])  # over the data dimension; ranks of one batch hold the same part
        if inputs == "replicated":
            head = ClassParallelHead.from_linear(whole_head().linear, mesh=mesh, inputs=inputs)
            alike(train(net, head, own), wanted, "FSDP2, data × classes")
    net = encoder()
    fully_shard(net)
    head = ClassParallelHead.from_linear(whole_head().linear, inputs="gathered")
    alike(train(net, head, parts), wanted, "FSDP2, all ranks")
    # the head's slices cut further by FSDP2
    net, head = encoder(), ClassParallelHead.from_linear(whole_head().linear, mesh=mesh["class"])
    fully_shard(head, mesh=mesh["data"])
    alike(train(DistributedDataParallel(net), head, half), wanted, "FSDP2 on the head")
    refused(lambda: head.predict(torch.zeros(2, H)), "FSDP has cut the slice further", RuntimeError)
    register_fsdp_forward_method(head, "predict")
    found, looked = (
        head.predict(x_ := torch.randn(5, H, generator=torch.Generator().manual_seed(6)), 2),
        head.to_linear()(x_).topk(2, 1),
    )
    assert torch.equal(found.indices, looked.indices)
    # copies, as of an averaged model
    assert torch.equal(
        copy.deepcopy(ClassParallelHead(H, C, mesh=mesh, bias=False)).to_linear()(x_).isfinite(),
        torch.ones(5, C).bool(),
    )
    # a DTensor optimizer state is a slice too; clipping sees the whole
    clipped = train(encoder(), whole_head(), slice(None), clip=0.1)
    head = ClassParallelHead.from_linear(whole_head().linear, inputs="gathered")
    alike(train(DistributedDataParallel(encoder()), head, parts, clip=0.1), clipped, "clipped")

    # features that are DTensors themselves, sharded by rows
    head = ClassParallelHead.from_linear(whole_head().linear)
    x, target = torch.randn(8, H, generator=torch.Generator().manual_seed(5)), torch.arange(8)
    spread = distribute_tensor(x, head.mesh, [Shard(0)]).requires_grad_()
    loss = head(spread, target)
    loss.backward()
    a = x.clone().requires_grad_()
    whole_head()(a, target).backward()
    torch.testing.assert_close(spread.grad.full_tensor(), a.grad)

    # the same weights to begin with, whatever the number of ranks
    torch.manual_seed(7)
    begun = ClassParallelHead(H, 9000).to_linear()
    torch.manual_seed(7)
    alone = ClassParallelHead(H, 9000, group=dist.new_subgroups(1)[0])
    assert torch.equal(begun.weight, alone.to_linear().weight)
    assert torch.equal(begun.bias, alone.to_linear().bias)

    lean(size)

    # mistakes
    refused(lambda: early(torch.zeros(2, H), torch.arange(2)), "init_process_group comes first", RuntimeError)
    head = ClassParallelHead.from_linear(whole_head().linear)
    x, target = batches()[0][0][:, :4].repeat(1, 2), batches()[0][1]
    refused(lambda: head(x[parts], target[parts]), 'pass inputs="gathered"')
    even = ClassParallelHead(H, 4 * size, bias=False)
    dist.broadcast(even.weight.to_local().data, 0)  # what DDP does to its module's parameters
    refused(lambda: even(x, target.clamp(max=size)), "was the head wrapped in DDP?")
    refused(lambda: ClassParallelHead(H, C, mesh=mesh, group=dist.group.WORLD), "a group or a mesh, not both")
    if rank == 0:
        sys.stdout.write("mesh: as one process\n")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
