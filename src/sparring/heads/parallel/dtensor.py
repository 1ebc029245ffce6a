"""Class shards: which classes a rank holds, and its parameters as DTensors."""

import math
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn

from sparring.heads.parallel.collectives import Collectives, is_initialized

SEED_BLOCK = 4096  # classes initialised from one seed


class ClassShard(NamedTuple):
    """The classes from ``start`` up to ``stop``, which one rank holds."""

    start: int
    stop: int

    @classmethod
    def of(cls, num_classes: int, rank: int, n_ranks: int) -> "ClassShard":
        """Shards as torch.chunk and DTensor's Shard(0) cut them: equal, the last ones smaller or empty.

        >>> [tuple(ClassShard.of(10, rank, 4)) for rank in range(4)]
        [(0, 3), (3, 6), (6, 9), (9, 10)]
        """
        size = -(-num_classes // n_ranks)
        start = min(num_classes, rank * size)
        return cls(start, min(num_classes, start + size))

    @property
    def size(self) -> int:
        return self.stop - self.start

    def local(self, classes: Tensor) -> Tensor:
        """Classes as indices into this shard; -1 for classes of other shards."""
        return torch.where((classes >= self.start) & (classes < self.stop), classes - self.start, -1)


@torch.no_grad()
def init_shard(weight: Tensor, bias: Tensor | None, shard: ClassShard, seed: int) -> None:
    """Initialise as nn.Linear does, uniformly within ±1/√H.

    Each block of classes has its own seed, so that a class gets the same weights for any number of ranks.
    """
    bound = 1 / math.sqrt(weight.shape[1])
    for block in range(shard.start // SEED_BLOCK, -(-shard.stop // SEED_BLOCK)):
        first = block * SEED_BLOCK
        generator = torch.Generator(weight.device).manual_seed(seed + block)
        values = torch.empty(SEED_BLOCK, weight.shape[1] + 1, dtype=torch.float32, device=weight.device)
        values.uniform_(-bound, bound, generator=generator)
        low = max(shard.start, first)
        high = min(shard.stop, first + SEED_BLOCK)
        rows = slice(low - shard.start, high - shard.start)
        weight[rows] = values[low - first : high - first, 1:].to(weight.dtype)
        if bias is not None:
            bias[rows] = values[low - first : high - first, 0].to(bias.dtype)


def resolve_groups(group: Any, mesh: Any, device: Any) -> tuple[Collectives, Collectives, Any]:
    """Resolve ``group`` or ``mesh`` into collectives and a device mesh.

    Returns:
        The collectives across class shards, the collectives across data-parallel replicas, and the device
        mesh for DTensor parameters (None without torch.distributed).
    """
    if mesh is not None:
        if group is not None:
            raise ValueError("got a group and a mesh; pass only one of them")
        if mesh.ndim > 2:
            raise ValueError(f"mesh has {mesh.ndim} dimensions, expected (classes,) or (data, classes)")
        has_replicas = mesh.ndim == 2
        replicas = Collectives(mesh.get_group(0)) if has_replicas else Collectives(local=True)
        return Collectives(mesh.get_group(mesh.ndim - 1)), replicas, mesh
    if not is_initialized():
        return Collectives(), Collectives(), None
    from torch.distributed.device_mesh import DeviceMesh

    device_type = torch.device("meta" if device is None else device).type
    if device_type == "meta":  # parameters will be where the group communicates
        device_type = "cuda" if dist.get_backend(group) == "nccl" else "cpu"
    world: Any = dist.group.WORLD
    mesh = DeviceMesh.from_group(world if group is None else group, device_type)
    return Collectives(group), Collectives(local=True), mesh


def shard_device(device: Any, mesh: Any) -> torch.device | None:
    """The device of a shard: ``device``, or the one of the mesh."""
    if device is not None or mesh is None:
        return None if device is None else torch.device(device)
    if mesh.device_type == "cuda":
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device(mesh.device_type)


def shard_parameter(shard: Tensor, num_classes: int, mesh: Any) -> nn.Parameter:
    """A parameter of one shard; on a mesh a DTensor, Shard(0) over the classes and replicated over data."""
    if mesh is None:
        return nn.Parameter(shard)
    from torch.distributed.tensor import DTensor, Replicate, Shard

    placements = [*(Replicate() for _ in range(mesh.ndim - 1)), Shard(0)]
    shape = torch.Size((num_classes, *shard.shape[1:]))
    stride = (math.prod(shape[1:]), *shard.stride()[1:])
    dtensor = DTensor.from_local(shard, mesh, placements, run_check=False, shape=shape, stride=stride)
    return nn.Parameter(dtensor)


def local_shard(parameter: Any, *, with_grad: bool = False) -> Any:
    """The shard of this rank as a plain tensor, detached unless ``with_grad``; None for None."""
    if parameter is None:
        return None
    if hasattr(parameter, "to_local"):
        parameter = parameter.to_local(grad_placements=parameter.placements if with_grad else None)
    return parameter if with_grad else parameter.detach()


def full_tensor(x: Any) -> Tensor:
    """A DTensor, such as the output of tensor-parallel layers, as a full tensor; a plain tensor unchanged."""
    if not hasattr(x, "full_tensor"):
        return x  # type: ignore[no-any-return]
    from torch.distributed.tensor import Replicate

    tensor: Tensor = x.full_tensor(grad_placements=[Replicate()] * x.device_mesh.ndim)
    return tensor


def check_ranks(
    collectives: Collectives, weight: Tensor, n_rows: int, target: Tensor, replicated: bool
) -> None:
    """Compare weights and batches between ranks to detect wrong use of a head.

    Raises:
        ValueError: ``replicated`` batches differ between ranks, or all ranks hold the same weights.
    """
    checksum = weight.double().sum()
    if not len(weight) or weight.min() == weight.max():  # constant shards tell nothing
        checksum = checksum.new_tensor(torch.nan)
    row = torch.stack([checksum, checksum.new_tensor(n_rows), target.double().sum()])
    checksums, *batches = collectives.gather(row).T
    if replicated and len(torch.stack(batches).unique(dim=1).T) > 1:
        n_rows_by_rank = ", ".join(f"{n:.0f}" for n in batches[0])
        raise ValueError(
            f"the ranks got different batches ({n_rows_by_rank} rows), expected the same one, as inputs"
            ' is "replicated": pass inputs="gathered" if every rank has its own batch'
        )
    checksums = checksums[~checksums.isnan()]
    if len(checksums) > 1 and len(checksums.unique()) == 1:
        raise ValueError(
            "all ranks hold the same weights instead of shards: was the head wrapped in DDP? Wrap the"
            " encoder only"
        )
