"""Run by all_ranks.py: heads beside DDP and FSDP2, on meshes of data × classes, and errors for wrong use."""

import copy
import re
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

N_STEPS = 4
N, C = 24, 21
H = 8


def encoder() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(5, 12), nn.Tanh(), nn.Linear(12, H))


def whole_head() -> LinearLoss:
    torch.manual_seed(2)
    head = LinearLoss(H, C, loss=ASSoftmaxLoss(0.3))
    head.linear.weight.data *= 3
    return head


def sharded_head(**options: Any) -> ClassParallelHead:
    return ClassParallelHead.from_linear(whole_head().linear, **options)


def batches() -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(3)
    return [
        (torch.randn(N, 5, generator=generator), torch.randint(C, (N,), generator=generator))
        for _ in range(N_STEPS)
    ]


def train(net: nn.Module, head: Any, own: slice, clip: float | None = None) -> list[Tensor]:
    """The trained weights, and the norms of the gradients where they are clipped."""
    optimizer = torch.optim.SGD(
        [{"params": list(net.parameters())}, {"params": list(head.parameters())}], 0.5
    )
    is_parallel = isinstance(head, ClassParallelHead)
    norms = []
    for x, target in batches():
        head(net(x[own]), target[own]).backward()
        if clip is not None:
            clip_function = clip_grad_norm_ if is_parallel else nn.utils.clip_grad_norm_
            norms.append(clip_function([*net.parameters(), *head.parameters()], clip))
        optimizer.step()
        optimizer.zero_grad()
    layer = head.to_linear() if is_parallel else head.linear
    parameters = [*net.parameters(), *layer.parameters()]
    weights = [p.full_tensor() if isinstance(p, DTensor) else p for p in parameters]
    return [*(weight.detach() for weight in weights), *norms]


def assert_alike(actual: list[Tensor], expected: list[Tensor], name: str) -> None:
    for a, b in zip(actual, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5, msg=lambda text: f"{name}: {text}")


def refused(call: Any, words: str, error: type[Exception] = ValueError) -> None:
    with pytest.raises(error, match=re.escape(words)):
        call()


def check_training(mesh: Any, parts: slice, half: slice) -> None:
    """Training equals that of one process. ``parts``: the rows of a rank; ``half``: those of a data rank."""
    expected = train(encoder(), whole_head(), slice(None))

    head = sharded_head(inputs="gathered")
    assert_alike(train(DistributedDataParallel(encoder()), head, parts), expected, "DDP, all ranks")
    unsupported = RuntimeError("gloo does not support reduce_scatter")  # in older versions of torch
    with mock.patch("torch.distributed.reduce_scatter", side_effect=unsupported):
        head = sharded_head(inputs="gathered")
        net = DistributedDataParallel(encoder())
        assert_alike(train(net, head, parts), expected, "without reduce-scatter")

    for inputs, own in (
        ("gathered", parts),
        ("replicated", half),
    ):  # shards replicated over the data dimension
        head = sharded_head(mesh=mesh, inputs=inputs)
        assert head.shard.size <= -(-C // mesh.size(1))
        net = DistributedDataParallel(encoder())
        assert_alike(train(net, head, own), expected, f"DDP, data × classes, {inputs}")
    net = encoder()
    fully_shard(net, mesh=mesh["data"])
    assert_alike(train(net, sharded_head(mesh=mesh), half), expected, "FSDP2, data × classes")
    net = encoder()
    fully_shard(net)
    assert_alike(train(net, sharded_head(inputs="gathered"), parts), expected, "FSDP2, all ranks")

    head = sharded_head(mesh=mesh["class"])
    fully_shard(head, mesh=mesh["data"])  # shards the head's shards further
    assert_alike(train(DistributedDataParallel(encoder()), head, half), expected, "FSDP2 on the head")
    refused(lambda: head.predict(torch.zeros(2, H)), "FSDP has sharded the head further", RuntimeError)
    register_fsdp_forward_method(head, "predict")
    x = torch.randn(5, H, generator=torch.Generator().manual_seed(6))
    assert torch.equal(head.predict(x, 2).indices, head.to_linear()(x).topk(2, 1).indices)

    clipped = train(encoder(), whole_head(), slice(None), clip=0.1)
    head = sharded_head(inputs="gathered")
    net = DistributedDataParallel(encoder())
    assert_alike(train(net, head, parts, clip=0.1), clipped, "clipped")


def check_dtensor_features() -> None:
    """Features that are DTensors, sharded by rows."""
    head = sharded_head()
    x, target = torch.randn(8, H, generator=torch.Generator().manual_seed(5)), torch.arange(8)
    sharded = distribute_tensor(x, head.mesh, [Shard(0)]).requires_grad_()
    head(sharded, target).backward()
    x.requires_grad_()
    whole_head()(x, target).backward()
    torch.testing.assert_close(sharded.grad.full_tensor(), x.grad)


def check_initial_weights(mesh: Any) -> None:
    """They do not depend on the number of ranks; a head can be copied."""
    alone = dist.new_subgroups(1)[0]
    torch.manual_seed(7)
    many_ranks = ClassParallelHead(H, 9000).to_linear()
    torch.manual_seed(7)
    one_rank = ClassParallelHead(H, 9000, group=alone).to_linear()
    assert torch.equal(many_ranks.weight, one_rank.weight)
    assert torch.equal(many_ranks.bias, one_rank.bias)
    head = copy.deepcopy(ClassParallelHead(H, C, bias=False, mesh=mesh))
    assert head.to_linear()(torch.ones(5, H)).isfinite().all()


def check_memory_and_bytes(size: int) -> None:
    """The memory of a rank falls as 1/p; the bytes it sends do not depend on the number of classes."""
    sent = []
    for n_classes in (40, 4000):
        head = ClassParallelHead(H, n_classes, delta=1.0)
        x, target = torch.randn(10, H, generator=torch.Generator().manual_seed(0)), torch.arange(10)
        head(x.requires_grad_(), target).backward()  # the first call also compares the ranks
        before = head.collectives.n_bytes
        head(x, target).backward()
        sent.append(head.collectives.n_bytes - before)
        optimizer = torch.optim.AdamW(head.parameters())
        optimizer.step()
        state = optimizer.state[head.weight]
        for tensor in (head.weight, head.weight.grad, state["exp_avg"], state["exp_avg_sq"]):
            assert tensor.to_local().numel() == n_classes // size * H
    # max, Σ exp and the target's logit of each row, and the gradient of the input
    assert sent == [2 * (size - 1) * 4 * (3 * 10 + 10 * H) // size] * 2
    before = head.collectives.n_bytes
    head.predict(x, 3)
    assert head.collectives.n_bytes - before == (size - 1) * 10 * 3 * (4 + 8)


def check_errors(early: ClassParallelHead, mesh: Any, parts: slice, size: int) -> None:
    refused(lambda: early(torch.zeros(2, H), torch.arange(2)), "init_process_group first", RuntimeError)
    head = sharded_head()
    x, target = batches()[0][0][:, :4].repeat(1, 2), batches()[0][1]
    refused(lambda: head(x[parts], target[parts]), 'pass inputs="gathered"')
    even = ClassParallelHead(H, 4 * size, bias=False)
    dist.broadcast(even.weight.to_local().data, 0)  # as DDP does with the parameters of its module
    refused(lambda: even(x, target.clamp(max=size)), "was the head wrapped in DDP?")
    refused(lambda: ClassParallelHead(H, C, mesh=mesh, group=dist.group.WORLD), "pass only one of them")


def check_all(early: ClassParallelHead) -> None:
    """``early``: a head made before the process group."""
    rank, size = dist.get_rank(), dist.get_world_size()
    mesh = init_device_mesh("cpu", (2, size // 2), mesh_dim_names=("data", "class"))
    data = mesh.get_coordinate()[0]
    parts = slice(rank * N // size, (rank + 1) * N // size)
    half = slice(data * N // 2, (data + 1) * N // 2)
    check_training(mesh, parts, half)
    check_dtensor_features()
    check_initial_weights(mesh)
    check_memory_and_bytes(size)
    check_errors(early, mesh, parts, size)
