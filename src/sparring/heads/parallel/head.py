"""A linear head and its loss whose classes are spread over the ranks of a group: for label spaces that do not fit one device.

    features ─► (gathered) ─► logits of the own classes ─► a few numbers a row between ranks ─► loss, the same on every rank

What goes over the wire depends on rows and features, never on the number of classes.
"""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from sparring.heads.dispatch import RULES
from sparring.heads.gradients import Needs
from sparring.heads.parallel.autograd import OwnRows, ParallelRows
from sparring.heads.parallel.chunked import Job, Pass, Strong, Top, chunk_rows, own_logits, top_of_all
from sparring.heads.parallel.collectives import several
from sparring.heads.parallel.dtensor import (
    device_of,
    meet,
    of_rank,
    own_slice,
    parameter,
    plain,
    with_gradient,
)
from sparring.heads.parallel.shards import Slice, initialise
from sparring.losses.as_softmax import ASSoftmaxLoss
from sparring.losses.base import ClassLoss, Loss, at_least_float32, make_loss, reduce, valid_targets
from sparring.losses.checks import check_count, check_features, under_autocast
from sparring.losses.delta import DeltaSchedule
from sparring.losses.kernels.rule import SOFTMAX_RULE
from sparring.losses.loss_wrapper import CarriesLoss
from sparring.losses.rows import RowLosses
from sparring.losses.sparse_softmax import SparseSoftmaxLoss

INPUTS = ("replicated", "gathered")


class Predicted(NamedTuple):
    """As torch.topk returns: the largest first."""

    values: Tensor  # (…, k) logits
    indices: Tensor  # (…, k) classes


class ClassParallelHead(CarriesLoss):
    """A linear layer and its loss, each rank with its slice of the classes: `LinearLoss` past one device.

    Loss and gradients are those of the unsharded layer, on every rank. Without torch.distributed it is one rank with all classes.

    Args:
        in_features, num_classes, bias, device, dtype: of the linear layer. A rank holds ⌈num_classes / ranks⌉ classes, the last ones fewer.
        delta: of AS-Softmax, 0.3 or a schedule; 1 is plain softmax.
        weight, ignore_index, reduction: of the loss, as in nn.CrossEntropyLoss.
        loss: another loss by name, "softmax", "as-logit" or "sparse-softmax"; or a loss with settings of its own.
        group: the ranks that share the classes; None: all.
        mesh: in place of a group, a DeviceMesh: of one dimension, the classes; or of two, data × classes: then the slices are copied
            over the data dimension, and their gradients averaged over it.
        inputs: "replicated": every rank is given the same batch. "gathered": every rank brings a batch of its own, of whatever size, as
            under DDP; the loss is that of all of them.
        averaged: with gathered inputs: whoever takes the input's gradient averages over ranks, as DDP and FSDP do, so that it is given
            times the ranks. False: the gradient of the loss as it is.
        chunk_rows: rows whose logits a rank holds at once; from the shapes where not given.

    The parameters are DTensors, Shard(0) over the classes, where torch.distributed is at work: torch.distributed.checkpoint, FSDP2 and
    optimizers know them. Give them a parameter group of their own, and do not wrap the head in DDP.

    >>> head = ClassParallelHead(8, 1000, delta=0.3)
    >>> head(torch.zeros(4, 8), torch.arange(4)).shape, head.predict(torch.zeros(4, 8), k=5).indices.shape
    (torch.Size([]), torch.Size([4, 5]))
    """

    loss: ClassLoss
    weight: nn.Parameter
    bias: nn.Parameter | None
    class_weight: Tensor | None
    _class_weight: Tensor | None

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        delta: float | DeltaSchedule | None = None,
        bias: bool = True,
        group: Any = None,
        *,
        loss: Loss | str | None = None,
        weight: Tensor | None = None,
        ignore_index: int | None = None,
        reduction: str | None = None,
        mesh: Any = None,
        inputs: str = "replicated",
        averaged: bool = True,
        chunk_rows: int | None = None,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.in_features, self.num_classes = (
            check_count("in_features", in_features),
            check_count("num_classes", num_classes),
        )
        if inputs not in INPUTS:
            raise ValueError(f"inputs must be one of {', '.join(INPUTS)}; got {inputs!r}")
        self.inputs, self.averaged = inputs, averaged
        self.chunk_rows = None if chunk_rows is None else check_count("chunk_rows", chunk_rows)
        self.loss = _loss(loss, delta=delta, weight=weight, ignore_index=ignore_index, reduction=reduction)
        class_weight = self.loss.weight
        self.loss.weight = None  # a rank has its own
        if class_weight is not None and class_weight.shape != (num_classes,):
            raise ValueError(
                f"weight has shape {tuple(class_weight.shape)}, expected ({num_classes},): one weight per class"
            )
        self.wire, self.replicas, self.mesh = meet(group, mesh, device)
        self.slice = Slice.of(num_classes, self.wire.rank, self.wire.size)
        device = device_of(device, self.mesh)
        own = None if class_weight is None else class_weight[slice(*self.slice)].detach().clone()
        self._class_weight = own  # outlives a meta device
        self.register_buffer("class_weight", None if own is None else own.to(device), persistent=False)
        self.weight = parameter(
            torch.empty(self.slice.size, in_features, device=device, dtype=dtype), num_classes, self.mesh
        )
        self.register_parameter(
            "bias",
            parameter(torch.empty(self.slice.size, device=device, dtype=dtype), num_classes, self.mesh)
            if bias
            else None,
        )
        self.reset_parameters()
        self._checked = False

    # ------------------------------------------------------------ parameters

    def reset_parameters(self, seed: int | None = None) -> None:
        """Begin anew, from the seed of torch's generator on the first rank: the same weights for any number of ranks."""
        first = torch.randint(2**62, (1,)) if seed is None else torch.tensor([seed])
        if self.mesh is not None:
            first = first.to(self.mesh.device_type)
            for wire in (self.wire, self.replicas):
                first = wire.gather(first)[0]
        weight, bias = self._own()
        if not weight.is_meta:
            if self.class_weight is not None and self._class_weight is not None:
                self.class_weight.copy_(self._class_weight)
            initialise(weight, bias, self.slice, int(first))

    def _own(self) -> tuple[Tensor, Tensor | None]:
        """This rank's slices, without autograd."""
        weight, bias = own_slice(self.weight), None if self.bias is None else own_slice(self.bias)
        if len(weight) != self.slice.size:
            raise RuntimeError(
                f"of {self.slice.size} classes {len(weight)} are here: FSDP has cut the slice further. reset_parameters comes before"
                ' fully_shard; for others: torch.distributed.fsdp.register_fsdp_forward_method(head, "predict"), and "rows"'
            )
        return weight, bias

    @classmethod
    def from_linear(cls, linear: nn.Linear, **settings: Any) -> ClassParallelHead:
        """With the weights of a layer that every rank has: each takes its slice."""
        device = None if linear.weight.is_cpu else linear.weight.device  # where the group talks
        like = {"device": device, "dtype": linear.weight.dtype, "bias": linear.bias is not None}
        made = cls(linear.in_features, linear.out_features, **{**like, **settings})
        with torch.no_grad():
            for own, whole in ((made.weight, linear.weight), (made.bias, linear.bias)):
                if own is not None:
                    own_slice(own).copy_(whole[slice(*made.slice)])
        return made

    def to_linear(self) -> nn.Linear:
        """All classes as one plain layer, on every rank."""
        made = nn.Linear(
            self.in_features, self.num_classes, self.bias is not None, self.weight.device, self.weight.dtype
        )
        with torch.no_grad():
            for place, own in ((made.weight, self.weight), (made.bias, self.bias)):
                if own is not None:
                    place.copy_(own if self.mesh is None else own.full_tensor())  # type: ignore[attr-defined]
        return made

    # ------------------------------------------------------------ the loss

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """The loss: a scalar, equal on all ranks; with reduction="none" the losses of this rank's targets, in their shape: what ranks
        with gathered inputs make of them is added up, so divide by the rows of all. All ranks call it, as they do `rows` and `predict`."""
        rows, own = self._rows(input, target)
        if self.reduction == "none" and self.inputs == "gathered":
            of_own = None if rows.weight is None else of_rank(rows.weight, own, self.wire)
            rows = rows._replace(value=OwnRows.apply(rows.value, own, self.wire), weight=of_own)
        return reduce(rows, self.reduction, input, target.shape)

    def rows(self, input: Tensor, target: Tensor) -> RowLosses:
        """The unreduced story, the same on all ranks: of gathered inputs the rows of all of them, in the order of ranks. A loss made
        of it has to be the same on all ranks, too."""
        return self._rows(input, target)[0]

    def _rows(self, input: Tensor, target: Tensor) -> tuple[RowLosses, list[int]]:
        input, target = plain(input), plain(target)
        x, labels = self._flat(input, target)
        sizes = self._meet(x, labels)
        if self.inputs == "gathered":
            labels = self.wire.gather_rows(labels, sizes)
        safe, valid = valid_targets(labels, self.ignore_index)
        there = valid.nonzero().squeeze(1)
        dtype = (
            torch.get_autocast_dtype(x.device.type)
            if under_autocast(x) and x.dtype != torch.float64
            else x.dtype
        )
        of_rows = self._of_rows(safe[there], at_least_float32(dtype))
        job = Job(self._pass(), self.slice, self.wire, self._step(len(there)))
        self._own()
        weight, bias = with_gradient(self.weight), None if self.bias is None else with_gradient(self.bias)
        ahead = torch.is_grad_enabled() and self.reduction != "none"
        needs = Needs(*(ahead and each is not None and each.requires_grad for each in (x, weight, bias)))
        gathered = (
            (sizes, float(self.wire.size) if self.averaged else 1.0) if self.inputs == "gathered" else None
        )
        found, active = ParallelRows.apply(
            x, weight, bias, safe, there, of_rows, job, needs, dtype, gathered, self.replicas
        )
        rows = RowLosses(found, valid, active)
        if of_rows is not None:
            rows = rows._replace(weight=torch.zeros_like(found).index_copy(0, there, of_rows))
        return rows, sizes

    def _step(self, n_rows: int) -> int:
        return chunk_rows(n_rows, self.num_classes, self.in_features, self.wire.size, self.chunk_rows)

    def _of_rows(self, target: Tensor, dtype: torch.dtype) -> Tensor | None:
        """The class weights of targets: each rank tells those that it has."""
        if self.class_weight is None:
            return None
        mine = self.slice.local(target)
        own = self.class_weight.to(dtype)
        found = own[mine.clamp(min=0)] if len(own) else own.new_zeros(len(mine))
        return self.wire.sum(torch.where(mine >= 0, found, 0))

    def _pass(self) -> Pass:
        settings = self.loss.settings()
        if isinstance(self.loss, SparseSoftmaxLoss):
            return (
                Top(self.loss.k) if self.loss.k < self.num_classes else Strong(SOFTMAX_RULE, self.num_classes)
            )
        values = [value.value if isinstance(value, DeltaSchedule) else value for value in settings.values()]
        return Strong(RULES[type(self.loss).row_function][1](*values), self.num_classes)

    def _flat(self, input: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        check_features(
            input, target, self.in_features, self.num_classes, self.ignore_index, self.weight.dtype
        )
        return input.reshape(-1, self.in_features), target.reshape(-1).long()

    def _meet(self, x: Tensor, target: Tensor) -> list[int]:
        """Rows of each rank. The first time ranks tell each other whether they are used as they have to be."""
        if self.mesh is None and several():
            raise RuntimeError(
                "the head was made before torch.distributed was at work, and has all classes: init_process_group comes first"
            )
        sizes = self.wire.sizes(len(x), x.device) if self.inputs == "gathered" else [len(x)] * self.wire.size
        if not self._checked and self.wire.size > 1:
            self._checked = True
            weight = own_slice(self.weight).detach()
            some = (
                len(weight) > 0 and weight.min() != weight.max()
            )  # slices that are all one number tell nothing
            mark = weight.double().sum() if some else weight.new_tensor(torch.nan, dtype=torch.double)
            seen = self.wire.gather(
                torch.stack([mark, torch.tensor(float(len(x)), device=x.device), target.double().sum()])
            )
            if self.inputs == "replicated" and len(seen[:, 1:].unique(dim=0)) > 1:
                raise ValueError(
                    f"the ranks were given different batches ({', '.join(f'{n:.0f}' for n in seen[:, 1])} rows), and inputs is "
                    '"replicated": pass inputs="gathered" where every rank brings a batch of its own'
                )
            marks = seen[:, 0][~seen[:, 0].isnan()]
            if len(marks) > 1 and len(marks.unique()) == 1:
                raise ValueError(
                    "all ranks hold the same weights, not slices: was the head wrapped in DDP? Wrap the encoder alone"
                )
        return sizes

    # ------------------------------------------------------------ inference

    @torch.no_grad()
    def predict(self, input: Tensor, k: int = 1) -> Predicted:
        """The k largest logits of all classes and their classes, ``(…, k)``; no rank sees more of another's than k of them a row."""
        check_count("k", k)
        if k > self.num_classes:
            raise ValueError(f"k is {k}, and there are {self.num_classes} classes")
        check_features(input, None, self.in_features, self.num_classes, self.ignore_index, self.weight.dtype)
        input = plain(input)
        x = input.reshape(-1, self.in_features)
        if self.inputs == "gathered":
            x = self.wire.gather_rows(x, sizes := self.wire.sizes(len(x), x.device))
        weight, bias = self._own()
        step = self._step(len(x))
        parts = [
            top_of_all(own_logits(part, weight, bias), k, self.wire, self.slice) for part in x.split(step)
        ]
        values, indices = (torch.cat(each) for each in zip(*parts, strict=True))
        if self.inputs == "gathered":
            values, indices = (of_rank(each, sizes, self.wire) for each in (values, indices))
        return Predicted(
            values.to(input.dtype).reshape(*input.shape[:-1], k), indices.reshape(*input.shape[:-1], k)
        )

    # ------------------------------------------------------------ what it is

    def extra_repr(self) -> str:
        which = (
            f"classes {self.slice.start} to {self.slice.stop - 1}"
            if self.slice.size
            else "none of the classes"
        )
        return (
            f"{self.in_features}, {self.num_classes}, {which} on rank {self.wire.rank} of {self.wire.size}, inputs={self.inputs!r}, "
            f"bias={self.bias is not None}"
        )


def _loss(loss: Loss | str | None, **given: Any) -> ClassLoss:
    """A loss of the head's own. What is None was not given."""
    given = {name: value for name, value in given.items() if value is not None}
    if loss is None or isinstance(loss, str):
        loss = make_loss(loss or ASSoftmaxLoss.name, **given)
        given = {}
    known = [ASSoftmaxLoss.name, SparseSoftmaxLoss.name, "softmax", "as-logit"]
    if not isinstance(loss, ClassLoss) or loss.name not in known:
        name = loss.name if isinstance(loss, Loss) else type(loss).__name__
        raise ValueError(f"no class-parallel form of {name}; there is one of {', '.join(sorted(known))}")
    if given:
        raise ValueError(f"{', '.join(given)}: give it to the loss, {loss.name}, which came as an object")
    made = copy.copy(
        loss
    )  # its class weights are going to be cut up; a schedule of δ stays the one that was given
    made._buffers = dict(loss._buffers)
    return made
