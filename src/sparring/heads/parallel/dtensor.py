"""Where slices live: the groups of ranks, and parameters that torch knows as parts of a whole."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from sparring.heads.parallel.collectives import Wire, alone, is_initialized


def meet(group: Any, mesh: Any, device: Any) -> tuple[Wire, Wire, Any]:
    """Between the slices of the classes, between copies of them, and the mesh that DTensors live on."""
    if mesh is not None:
        if group is not None:
            raise ValueError("give a group or a mesh, not both")
        if mesh.ndim > 2:
            raise ValueError(f"mesh has {mesh.ndim} dimensions, expected (classes,) or (data, classes)")
        return (
            Wire(mesh.get_group(mesh.ndim - 1)),
            Wire(mesh.get_group(0)) if mesh.ndim == 2 else alone(),
            mesh,
        )
    if not is_initialized():
        return alone(), alone(), None
    import torch.distributed as dist
    from torch.distributed.device_mesh import DeviceMesh

    kind = torch.device("meta" if device is None else device).type
    if kind == "meta":  # where the group talks
        kind = "cuda" if dist.get_backend(group) == "nccl" else "cpu"
    world: Any = dist.group.WORLD
    return Wire(group), alone(), DeviceMesh.from_group(world if group is None else group, kind)


def device_of(device: Any, mesh: Any) -> torch.device | None:
    """Where a rank's slice goes: as asked, or where the mesh is."""
    if device is not None or mesh is None:
        return None if device is None else torch.device(device)
    return (
        torch.device(mesh.device_type, torch.cuda.current_device())
        if mesh.device_type == "cuda"
        else torch.device(mesh.device_type)
    )


def parameter(own: Tensor, num_classes: int, mesh: Any) -> nn.Parameter:
    """A rank's slice; on a mesh as a part of the whole: Shard(0) over the classes, copied over what comes before them."""
    if mesh is None:
        return nn.Parameter(own)
    from torch.distributed.tensor import DTensor, Replicate, Shard

    placements = [*(Replicate() for _ in range(mesh.ndim - 1)), Shard(0)]
    shape = torch.Size((num_classes, *own.shape[1:]))
    stride = (math.prod(shape[1:]), *own.stride()[1:])
    return nn.Parameter(
        DTensor.from_local(own, mesh, placements, run_check=False, shape=shape, stride=stride)
    )


def own_slice(parameter: Any) -> Tensor:
    """This rank's part, without autograd."""
    own: Tensor = parameter.to_local() if hasattr(parameter, "to_local") else parameter
    return own.detach()


def with_gradient(parameter: Any) -> Tensor:
    """This rank's part; its gradient is a part likewise."""
    own: Tensor = (
        parameter.to_local(grad_placements=parameter.placements)
        if hasattr(parameter, "to_local")
        else parameter
    )
    return own


def plain(x: Any) -> Tensor:
    """A DTensor, such as tensor-parallel layers give, as the whole tensor on every rank; anything else as it is."""
    if not hasattr(x, "full_tensor"):
        return x  # type: ignore[no-any-return]
    from torch.distributed.tensor import Replicate

    whole: Tensor = x.full_tensor(grad_placements=[Replicate()] * x.device_mesh.ndim)
    return whole


def of_rank(x: Tensor, sizes: list[int], wire: Wire) -> Tensor:
    """Of the rows of all ranks those of this one."""
    start = sum(sizes[: wire.rank])
    return x[start : start + sizes[wire.rank]]
