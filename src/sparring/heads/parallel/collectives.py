"""Collective operations over the processes of a group, on torch.distributed."""

import copy
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

T = TypeVar("T")


def is_initialized() -> bool:
    return dist.is_available() and dist.is_initialized()


class Collectives:
    """Collective operations over one process group. With a single process each of them is the identity.

    All processes of the group call the same methods in the same order.

    Args:
        group: A process group; None is the default group.
        device: Where numbers and objects are sent from; None is the CPU. NCCL needs a CUDA device.
        local: Use this process alone, even if torch.distributed is initialised.

    Attributes:
        rank, size: Of this process, and of the group.
        n_bytes: Bytes that left this rank in tensor operations, for ring algorithms: an all-reduce sends
            everything twice, a gather and a reduce-scatter once.
    """

    def __init__(self, group: Any = None, *, device: Any = None, local: bool = False) -> None:
        self.group = group
        self.device = device
        distributed = is_initialized() and not local
        self.size = dist.get_world_size(group) if distributed else 1
        self.rank = dist.get_rank(group) if distributed else 0
        if self.rank < 0:
            raise ValueError("this rank is not in the group: make the head on the ranks of the group only")
        self.n_bytes = 0

    def __deepcopy__(self, memo: Any) -> "Collectives":
        return copy.copy(self)  # a process group cannot be copied

    # ------------------------------------------------------------ tensors

    def sum(self, x: Tensor) -> Tensor:
        """Sum over ranks, in place."""
        return self._all_reduce(x, "SUM")

    def max(self, x: Tensor) -> Tensor:
        """Maximum over ranks, in place."""
        return self._all_reduce(x, "MAX")

    def _all_reduce(self, x: Tensor, operation: str) -> Tensor:
        if self.size > 1 and x.numel():
            self.n_bytes += 2 * (self.size - 1) * x.nbytes // self.size
            dist.all_reduce(x, op=getattr(dist.ReduceOp, operation), group=self.group)
        return x

    def broadcast(self, tensors: Iterable[Tensor]) -> None:
        """Overwrite tensors, such as parameters, with those of rank 0."""
        if self.size > 1:
            for tensor in tensors:
                dist.broadcast(tensor.data, self._first_rank(), group=self.group)

    def gather(self, x: Tensor) -> Tensor:
        """(size, …): the tensors of all ranks, which have one shape."""
        gathered = x.new_empty(self.size, *x.shape)
        if self.size == 1 or not x.numel():
            return gathered.copy_(x[None])
        self.n_bytes += (self.size - 1) * x.nbytes
        dist.all_gather(list(gathered.unbind()), x.contiguous(), group=self.group)
        return gathered

    def gather_sizes(self, x: Tensor) -> list[int]:
        """The number of rows of each rank."""
        if self.size == 1:
            return [len(x)]
        sizes: list[int] = self.gather(torch.tensor([len(x)], device=x.device)).flatten().tolist()
        return sizes

    def gather_rows(self, x: Tensor, sizes: Sequence[int]) -> Tensor:
        """The rows of all ranks, in the order of ranks. ``sizes`` are the rows of each rank."""
        if self.size == 1:
            return x
        padded = x.new_zeros(max(sizes), *x.shape[1:])
        padded[: len(x)] = x
        return torch.cat([part[:n] for part, n in zip(self.gather(padded), sizes, strict=True)])

    def own_rows(self, x: Tensor, sizes: Sequence[int]) -> Tensor:
        """The rows of this rank among the rows of all ranks."""
        start = sum(sizes[: self.rank])
        return x[start : start + sizes[self.rank]]

    def scatter_sum(self, x: Tensor, sizes: Sequence[int]) -> Tensor:
        """Sum the rows of all ranks over ranks; each rank gets its own rows."""
        if self.size == 1 or not x.numel():
            return x
        padded = x.new_zeros(self.size, max(sizes), *x.shape[1:])
        for slot, part in zip(padded, x.split(list(sizes)), strict=True):
            slot[: len(part)] = part
        result = torch.empty_like(padded[0])
        try:
            dist.reduce_scatter(result, list(padded.unbind()), group=self.group)
        except RuntimeError as error:  # gloo of older versions of torch
            if "not support" not in str(error):
                raise
            return self.own_rows(self.sum(x), sizes)
        self.n_bytes += (self.size - 1) * result.nbytes
        return result[: sizes[self.rank]]

    # ------------------------------------------------------------ numbers and objects

    def sum_numbers(self, numbers: Sequence[float]) -> list[float]:
        """Sum each number over ranks, in float64."""
        if self.size == 1:
            return list(numbers)
        totals: list[float] = self.sum(
            torch.tensor(numbers, dtype=torch.float64, device=self.device)
        ).tolist()
        return totals

    def broadcast_object(self, value: T) -> T:
        """The value of rank 0."""
        if self.size == 1:
            return value
        values = [value]
        dist.broadcast_object_list(values, self._first_rank(), group=self.group, device=self.device)
        return values[0]

    def gather_objects(self, value: T) -> list[T]:
        """The values of all ranks."""
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value, group=self.group)
        return values

    def barrier(self) -> None:
        if self.size > 1:
            dist.barrier(self.group)

    def _first_rank(self) -> int:
        return 0 if self.group is None else dist.get_global_rank(self.group, 0)

    def sum_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Sum gradients. One that is None on some processes is zero there; one that all lack stays None."""
        if self.size == 1:
            return
        trained = [parameter for parameter in parameters if parameter.requires_grad]
        if any(parameter.grad is not None and parameter.grad.is_sparse for parameter in trained):
            raise ValueError(
                "sparse gradients cannot be summed over processes; use nn.Embedding(sparse=False)"
            )
        has_grad = [parameter.grad is not None for parameter in trained]
        present = self.max(torch.tensor(has_grad, dtype=torch.int32, device=self.device))
        by_dtype: dict[torch.dtype, list[nn.Parameter]] = {}
        for parameter, is_present in zip(trained, present.tolist(), strict=True):
            if is_present:
                by_dtype.setdefault(parameter.dtype, []).append(parameter)
        for group in by_dtype.values():
            grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in group]
            flat = self.sum(torch.cat([grad.flatten() for grad in grads]))
            for parameter, grad in zip(group, flat.split([p.numel() for p in group]), strict=True):
                parameter.grad = grad.view_as(parameter)
