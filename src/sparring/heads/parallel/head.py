"""A linear head and its loss with the classes sharded over the ranks of a process group.

    features ─► (gather) ─► logits of this rank's classes ─► a few numbers per row between ranks ─► loss

Communication depends on the number of rows and features, not on the number of classes.
"""

import copy
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from sparring.heads.dispatch import check_bias, check_class_weight, product_dtype, resolve_loss
from sparring.heads.gradients import NeedsGrad
from sparring.heads.loss_wrapper import LossWrapper
from sparring.heads.parallel import chunked, dtensor
from sparring.heads.parallel.autograd import OwnRows, ParallelCall, ParallelRows
from sparring.heads.parallel.collectives import Collectives
from sparring.heads.parallel.dtensor import full_tensor, local_shard, shard_parameter
from sparring.heads.parallel.extras import head_extras
from sparring.heads.parallel.row_weights import class_row_weights, combine, gather_row_weight
from sparring.losses.base import ClassLoss, Loss, reduce, valid_targets
from sparring.losses.checks import check_count, check_features
from sparring.losses.concede import concede_value
from sparring.losses.delta import DeltaSchedule
from sparring.losses.kernels.modes import at_least_float32
from sparring.losses.rows import RowLosses, check_extras

INPUTS = ("replicated", "gathered")


class Predicted(NamedTuple):
    """The k largest logits in descending order, as torch.topk returns them."""

    values: Tensor  # (…, k) logits
    indices: Tensor  # (…, k) classes


class ClassParallelHead(LossWrapper):
    """`LinearLoss` with the classes sharded over ranks; loss and gradients equal those of the whole layer.

    Where torch.distributed is initialised, the parameters are DTensors, Shard(0) over the classes, and work
    with torch.distributed.checkpoint, FSDP2 and optimizers. Give them a separate parameter group, and do not
    wrap the head in DDP. Otherwise the head holds all classes. All ranks call its methods together.

    Args:
        in_features, num_classes, bias, device, dtype: As in ``nn.Linear``. A rank holds ⌈num_classes / ranks⌉
            classes, the last ranks fewer.
        delta: Margin of AS-Softmax, or a schedule of it. Default: 0.3.
        loss: Another loss by name ("softmax", "as-logit", "sparse-softmax"), or a loss object.
        group: The process group that shares the classes. Default: all ranks.
        mesh: A DeviceMesh instead of a group, with dimensions (classes,) or (data, classes). With two
            dimensions the shards are replicated over data, and their gradients averaged over it.
        inputs: "replicated": all ranks pass the same batch. "gathered": each rank passes its own batch, of
            any size, as under DDP; the loss is that of all of them.
        averaged: Scale the input gradient by the world size. Set it when the encoder is wrapped in DDP or
            FSDP, which divide gradients by the world size; only used with ``inputs="gathered"``.
        chunk_rows: Rows whose logits a rank holds at once; None derives it from the shapes.
        **settings: Settings of a loss given by name, such as ``weight`` or ``reduction``.

    Raises:
        TypeError, ValueError: An argument is invalid.

    >>> head = ClassParallelHead(8, 1000, delta=0.3)
    >>> head(torch.zeros(4, 8), torch.arange(4)).shape, head.predict(torch.zeros(4, 8), k=5).indices.shape
    (torch.Size([]), torch.Size([4, 5]))
    """

    loss: ClassLoss
    weight: nn.Parameter
    bias: nn.Parameter | None
    class_weight: Tensor | None

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        bias: bool = True,
        *,
        delta: float | DeltaSchedule | None = None,
        loss: Loss | str = "as-softmax",
        group: Any = None,
        mesh: Any = None,
        inputs: str = "replicated",
        averaged: bool = True,
        chunk_rows: int | None = None,
        device: Any = None,
        dtype: torch.dtype | None = None,
        **settings: Any,
    ) -> None:
        super().__init__()
        check_bias(bias)
        if inputs not in INPUTS:
            raise ValueError(f"inputs must be one of {', '.join(INPUTS)}; got {inputs!r}")
        self.in_features = check_count("in_features", in_features)
        self.num_classes = check_count("num_classes", num_classes)
        self.inputs = inputs
        self.averaged = averaged
        self.chunk_rows = None if chunk_rows is None else check_count("chunk_rows", chunk_rows)
        if delta is not None:
            settings["delta"] = delta
        loss = resolve_loss(loss, settings)
        chunked.parallel_loss(loss, num_classes)  # raises for a loss without a class-parallel form
        self.loss = cast("ClassLoss", copy.copy(loss))  # shares a schedule of δ
        self.loss._buffers = {**loss._buffers, "weight": None}  # the head holds those of its classes
        class_weight = cast("ClassLoss", loss).weight
        check_class_weight(class_weight, num_classes)
        self.collectives, self.replicas, self.mesh = dtensor.resolve_groups(group, mesh, device)
        self.shard = dtensor.ClassShard.of(num_classes, self.collectives.rank, self.collectives.size)
        device = dtensor.shard_device(device, self.mesh)
        if class_weight is not None:
            class_weight = class_weight[slice(*self.shard)].detach().clone()
        self._initial_class_weight = class_weight  # reset_parameters restores it after a meta device
        self.register_buffer(
            "class_weight", None if class_weight is None else class_weight.to(device), persistent=False
        )
        weight_shard = torch.empty(self.shard.size, in_features, device=device, dtype=dtype)
        bias_shard = torch.empty(self.shard.size, device=device, dtype=dtype)
        self.weight = shard_parameter(weight_shard, num_classes, self.mesh)
        self.register_parameter("bias", shard_parameter(bias_shard, num_classes, self.mesh) if bias else None)
        self.reset_parameters()
        self._checked = False

    def reset_parameters(self, seed: int | None = None) -> None:
        """Initialise the weights, equally for any number of ranks. Default seed: drawn on the first rank."""
        first = torch.randint(2**62, (1,)) if seed is None else torch.tensor([seed])
        if self.mesh is not None:
            first = first.to(self.mesh.device_type)
            for collectives in (self.collectives, self.replicas):
                first = collectives.gather(first)[0]
        weight, bias = self._local_parameters()
        if not weight.is_meta:
            if self.class_weight is not None and self._initial_class_weight is not None:
                self.class_weight.copy_(self._initial_class_weight)
            dtensor.init_shard(weight, bias, self.shard, int(first))

    def _local_parameters(self, *, with_grad: bool = False) -> tuple[Tensor, Tensor | None]:
        """The shards of this rank."""
        weight = local_shard(self.weight, with_grad=with_grad)
        if len(weight) != self.shard.size:
            raise RuntimeError(
                f"{len(weight)} of {self.shard.size} classes are here: FSDP has sharded the head further."
                " Call reset_parameters before fully_shard; for other methods call"
                ' torch.distributed.fsdp.register_fsdp_forward_method(head, "predict"), and "rows"'
            )
        return weight, local_shard(self.bias, with_grad=with_grad)

    @classmethod
    def from_linear(cls, linear: nn.Linear, **settings: Any) -> "ClassParallelHead":
        """A head with the weights of a layer that every rank has; each rank takes its shard."""
        device = None if linear.weight.is_cpu else linear.weight.device  # None: where the group communicates
        like = {"device": device, "dtype": linear.weight.dtype, "bias": linear.bias is not None}
        head = cls(linear.in_features, linear.out_features, **{**like, **settings})
        weight, bias = head._local_parameters()
        with torch.no_grad():
            weight.copy_(linear.weight[slice(*head.shard)])
            if bias is not None:
                bias.copy_(linear.bias[slice(*head.shard)])
        return head

    def to_linear(self) -> nn.Linear:
        """All classes as one plain layer, on every rank."""
        tensors = {"weight": self.weight} if self.bias is None else {"weight": self.weight, "bias": self.bias}
        has_bias = self.bias is not None
        linear = nn.Linear(
            self.in_features, self.num_classes, has_bias, self.weight.device, self.weight.dtype
        )
        linear.load_state_dict({name: full_tensor(tensor) for name, tensor in tensors.items()})
        return linear

    def forward(self, input: Tensor, target: Tensor, *, row_weight: Tensor | None = None) -> Tensor:
        """The loss of ``(…, H)`` features and ``(…)`` class indices.

        Returns:
            A scalar, equal on all ranks. With ``reduction="none"`` the losses of this rank's targets, in
            their shape; with gathered inputs, the gradients that the ranks compute from them are added up.
        """
        rows, sizes = self._rows(input, target, row_weight)
        if self.reduction == "none" and self.inputs == "gathered":
            value = OwnRows.apply(rows.value, sizes, self.collectives)
            weight = None if rows.weight is None else self.collectives.own_rows(rows.weight, sizes)
            rows = rows._replace(value=value, weight=weight)
        return reduce(rows, self.reduction, input, target.shape)

    def rows(
        self,
        input: Tensor,
        target: Tensor,
        *,
        row_weight: Tensor | None = None,
        extras: Sequence[str] = (),
    ) -> RowLosses:
        """One loss per row, and which rows are valid, won or active; equal on all ranks.

        With gathered inputs these are the rows of all ranks, in the order of ranks. A loss computed from them
        must be equal on all ranks. ``row_weight``, in the shape of the target, and ``extras`` are those of
        `Loss.rows`.
        """
        return self._rows(input, target, row_weight, check_extras(extras))[0]

    def _rows(
        self, input: Tensor, target: Tensor, row_weight: Tensor | None = None, extras: Sequence[str] = ()
    ) -> tuple[RowLosses, list[int]]:
        """The rows of all ranks, and the number of rows of each."""
        input = full_tensor(input)
        target = full_tensor(target)
        self._check_features(input, target)
        features = input.reshape(-1, self.in_features)
        target = target.reshape(-1).long()
        gathered = self.inputs == "gathered"
        size = self.collectives.size
        sizes = self.collectives.gather_sizes(features) if gathered else [len(features)] * size
        self._check_ranks(len(features), target)
        if row_weight is not None:
            all_sizes = sizes if gathered else None
            row_weight = gather_row_weight(row_weight, len(target), all_sizes, self.collectives)
        if gathered:
            target = self.collectives.gather_rows(target, sizes)
        target, valid = valid_targets(target, self.ignore_index)
        valid_rows = valid.nonzero().squeeze(1)
        dtype = product_dtype(features)
        number = at_least_float32(dtype)
        classes = (target[valid_rows], self.shard, self.collectives, number)
        row_weights = class_row_weights(self.class_weight, *classes)
        weight, bias = self._local_parameters(with_grad=True)
        enabled = torch.is_grad_enabled() and self.reduction != "none"
        loss = chunked.parallel_loss(self.loss, self.num_classes)
        call = ParallelCall(
            spec=chunked.ParallelSpec(loss, self.shard, self.collectives, self._chunk_rows(len(valid_rows))),
            target=target,
            valid_rows=valid_rows,
            coefficient=combine(row_weights, row_weight, valid_rows, number),
            needs=NeedsGrad.of(features, weight, bias, enabled=enabled),
            dtype=dtype,
            sizes=sizes if gathered else None,
            input_scale=float(size) if self.averaged else 1.0,
            replicas=self.replicas,
        )
        value, active, conceded = ParallelRows.apply(features, weight, bias, call)
        if row_weights is not None:
            row_weights = torch.zeros_like(value).index_copy(0, valid_rows, row_weights)
        concedes = concede_value(getattr(self.loss, "concede", None)) < 1
        rows = RowLosses(value, valid, active, row_weights, conceded if concedes else None)
        if extras:
            rows = rows._replace(extras=head_extras(features, weight, bias, call, valid, extras))
        return rows.scaled(row_weight), sizes

    def _chunk_rows(self, n_rows: int) -> int:
        n_classes = -(-self.num_classes // self.collectives.size)
        return chunked.chunk_rows(n_rows, n_classes, self.in_features, self.chunk_rows)

    def _check_features(self, input: Tensor, target: Tensor | None) -> None:
        dtype = self.weight.dtype
        check_features(input, target, self.in_features, self.num_classes, self.ignore_index, dtype)

    def _check_ranks(self, n_rows: int, target: Tensor) -> None:
        """At the first call, compare batches and weights between ranks to detect wrong use."""
        if self.mesh is None and Collectives().size > 1:
            raise RuntimeError(
                "the head holds all classes, because it was made before torch.distributed was initialised:"
                " call init_process_group first"
            )
        if not self._checked and self.collectives.size > 1:
            self._checked = True
            replicated = self.inputs == "replicated"
            dtensor.check_ranks(self.collectives, local_shard(self.weight), n_rows, target, replicated)

    @torch.no_grad()
    def predict(self, input: Tensor, k: int = 1) -> Predicted:
        """The k largest logits over all classes and their classes, ``(…, k)`` each, of ``(…, H)`` features.

        Features are replicated or gathered as in `forward`. Each rank sends k logits per row.
        """
        if check_count("k", k) > self.num_classes:
            raise ValueError(f"k is {k}, expected at most the number of classes, {self.num_classes}")
        self._check_features(input, None)
        input = full_tensor(input)
        features = input.reshape(-1, self.in_features)
        gathered = self.inputs == "gathered"
        sizes = self.collectives.gather_sizes(features) if gathered else []
        if gathered:
            features = self.collectives.gather_rows(features, sizes)
        weight, bias = self._local_parameters()
        chunks = [
            chunked.topk(chunked.shard_logits(chunk, weight, bias), k, self.shard, self.collectives)
            for chunk in features.split(self._chunk_rows(len(features)))
        ]
        tensors = [torch.cat(parts) for parts in zip(*chunks, strict=True)]
        if gathered:
            tensors = [self.collectives.own_rows(tensor, sizes) for tensor in tensors]
        values, indices = (tensor.reshape(*input.shape[:-1], k) for tensor in tensors)
        return Predicted(values.to(input.dtype), indices)

    def extra_repr(self) -> str:
        rank = f"rank {self.collectives.rank} of {self.collectives.size}"
        classes = f"classes {self.shard.start} to {self.shard.stop - 1}" if self.shard.size else "no classes"
        shape = f"{self.in_features}, {self.num_classes}, bias={self.bias is not None}"
        return f"{shape}, {classes} on {rank}, inputs={self.inputs!r}"
