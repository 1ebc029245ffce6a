"""A linear head and its loss in one: `loss(F.linear(input, W, b), target)` without holding the (N, C) logits.

With a large label space the head is most of a step, in time and in memory. Chunks of rows bound the memory; and AS-Softmax bounds the
time: a row that is won has gradient zero, and so has a class that is discarded, so the two matrix products of the backward are made over
what survives.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from sparring.heads.chunked import chunk_sizes, fused_rows
from sparring.heads.dispatch import IMPLS, Head, find_impl
from sparring.losses.am_softmax import am_softmax_rows
from sparring.losses.as_softmax import ASSoftmaxLoss
from sparring.losses.base import (
    ClassLoss,
    Loss,
    MultilabelLoss,
    RowFunction,
    at_least_float32,
    make_loss,
    reduce,
    row_weights,
    valid_targets,
)
from sparring.losses.checks import check_count, check_linear_input, under_autocast
from sparring.losses.delta import DEFAULT_DELTA, DeltaSchedule, delta_value
from sparring.losses.diagnostics import margins
from sparring.losses.loss_wrapper import CarriesLoss
from sparring.losses.multilabel import MultilabelASSoftmaxLoss
from sparring.losses.rows import RowLosses
from sparring.losses.softmax import SoftmaxLoss
from sparring.losses.sparse_softmax import SparseSoftmaxLoss


def linear_rows(
    row_function: RowFunction,
    input: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    *,
    linear_bias: Tensor | None = None,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    multilabel: bool = False,
    impl: str = "auto",
    chunk_rows: int | None = None,
    reduction: str = "mean",
    **settings: Any,
) -> RowLosses:
    """One loss per row of input @ linear_weight.T + linear_bias. Rows in the order of the target; shapes as in `LinearLoss`.

    `reduction`: what is going to be done with them. Gradients are found in the forward pass for that; they are right for every other use
    as well, at the price of a second pass unless it comes to a multiple.
    """
    check_linear_input(input, linear_weight, target, linear_bias, weight, ignore_index, multilabel=multilabel)
    n_classes, n_features = linear_weight.shape
    n_rows = math.prod(input.shape[:-1])
    x = input.reshape(n_rows, n_features)
    target = target.reshape(n_rows, n_classes) if multilabel else target.reshape(n_rows).long()
    dtype = (
        torch.get_autocast_dtype(x.device.type) if under_autocast(x) and x.dtype != torch.float64 else x.dtype
    )
    settings = {
        name: delta_value(value) if name == "delta" else value for name, value in settings.items()
    }  # the δ of now
    chunk_rows = None if chunk_rows is None else check_count("chunk_rows", chunk_rows)
    head = Head(
        row_function, settings, ignore_index, dtype, find_impl(impl, x, dtype, row_function), chunk_rows
    )
    of_rows = None
    if weight is not None:
        safe, valid = valid_targets(target, ignore_index)
        of_rows = row_weights(weight, safe, valid, at_least_float32(x.dtype))
    return fused_rows(x, linear_weight, linear_bias, target, head, of_rows, reduction)


def linear_loss(
    row_function: RowFunction,
    input: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    *,
    reduction: str,
    multilabel: bool = False,
    **settings: Any,
) -> Tensor:
    """The same, reduced."""
    rows = linear_rows(
        row_function, input, linear_weight, target, multilabel=multilabel, reduction=reduction, **settings
    )
    return reduce(rows, reduction, input, target.shape[:-1] if multilabel else target.shape)


class LinearLoss(CarriesLoss):
    """A linear layer with one of our losses on it: takes features instead of logits.

    Args:
        in_features, num_classes, bias, device, dtype: of the linear layer, which is `linear`: tie its weight to an embedding, or put
            a layer of yours in its place.
        loss: a loss, or its name; class weights, ``ignore_index``, ``reduction`` and δ are its. Any loss will do but AM-Softmax. Softmax,
            AS-Softmax and the logit-margin variant have a kernel of their own, the others are differentiated chunk by chunk.
        impl: "torch", "triton" (CUDA; softmax, AS-Softmax and the logit-margin variant), or "auto".
        chunk_rows: rows whose logits are held at once; from the shapes where not given. For softmax and AS-Softmax in float32 on CPU,
            memory is chunk_rows × num_classes floats, a part of that (32 rows, or 4 MB if that is more), and the gradients.

    Shape:
        - input: ``(…, H)`` features
        - target: ``(…)`` class indices, or ``(…, C)`` labels for a multi-label loss
        - output: a scalar, or ``(…)`` with ``reduction="none"``

    >>> head = LinearLoss(8, 1000, "as-softmax")
    >>> head(torch.zeros(2, 3, 8), torch.zeros(2, 3, dtype=torch.long)).shape
    torch.Size([])
    """

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        loss: Loss | str = "as-softmax",
        *,
        bias: bool = True,
        impl: str = "auto",
        chunk_rows: int | None = None,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        loss = make_loss(loss) if isinstance(loss, str) else loss
        if not isinstance(loss, Loss):
            raise ValueError(
                f'loss must be a name such as "as-softmax" or a loss of ours, got {type(loss).__name__}'
            )
        if type(loss).row_function is am_softmax_rows:
            raise ValueError(
                "am-softmax takes cosines, and a linear layer gives none: use CosineLinear and AMSoftmaxLoss one after the other"
            )
        if impl not in IMPLS:
            raise ValueError(f"impl must be one of {', '.join(IMPLS)}; got {impl!r}")
        weight = getattr(loss, "weight", None)
        if weight is not None and weight.shape != (num_classes,):
            raise ValueError(
                f"weight has shape {tuple(weight.shape)}, expected ({num_classes},): one weight per class"
            )
        self.linear = nn.Linear(
            check_count("in_features", in_features),
            check_count("num_classes", num_classes),
            bias,
            device,
            dtype,
        )
        self.loss = loss
        self.impl = impl
        self.chunk_rows = None if chunk_rows is None else check_count("chunk_rows", chunk_rows)

    def rows(self, input: Tensor, target: Tensor) -> RowLosses:
        """The unreduced story: one loss per row, and which rows are valid, won or active."""
        if not self.fused:
            return self.loss.rows(*self._flat(input, target))
        return linear_rows(
            type(self.loss).row_function, input, self.linear.weight, target, **self._settings()
        )

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        loss = self.loss
        if not self.fused:
            value: Tensor = loss(*self._flat(input, target))
            return value.reshape(input.shape[:-1]) if loss.reduction == "none" else value
        return linear_loss(
            type(loss).row_function,
            input,
            self.linear.weight,
            target,
            reduction=loss.reduction,
            **self._settings(),
        )

    @torch.no_grad()
    def margins(self, input: Tensor, target: Tensor) -> Tensor:
        """`sparring.margins` of the logits, of so many rows at a time that these are never held; in the shape of the row losses."""
        rows = input.reshape(-1, input.shape[-1])
        labels = (
            target.reshape(len(rows), -1) if isinstance(self.loss, MultilabelLoss) else target.reshape(-1)
        )
        step, _ = chunk_sizes(rows.shape, self.linear.out_features, self.chunk_rows, on_cpu=rows.is_cpu)
        parts = zip(rows.split(step), labels.split(step), strict=True)
        found = [margins(self.logits(some), of_them, self.ignore_index) for some, of_them in parts]
        return torch.cat(found).reshape(input.shape[:-1])

    def logits(self, input: Tensor) -> Tensor:
        """For inference: ``(…, H)`` features to ``(…, C)`` logits."""
        return self.linear(input)  # type: ignore[no-any-return]

    @property
    def fused(self) -> bool:
        """Whether layer and loss are the plain ones, whose weights and equation can be used directly. Others (a layer with hooks or a
        forward of its own, a loss that overrides one) are called as they are, logits and all."""
        linear, loss = self.linear, type(self.loss)
        base = MultilabelLoss if issubclass(loss, MultilabelLoss) else ClassLoss
        hooks = (
            linear._forward_hooks
            or linear._forward_pre_hooks
            or linear._backward_hooks
            or linear._backward_pre_hooks
        )
        return (
            type(linear).forward is nn.Linear.forward
            and not hooks
            and loss.rows is base.rows
            and loss.forward is base.forward
        )

    def _flat(self, input: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """Logits and targets as rows."""
        logits = self.logits(input)
        logits, multilabel = logits.reshape(-1, logits.shape[-1]), isinstance(self.loss, MultilabelLoss)
        return logits, target.reshape(logits.shape) if multilabel else target.reshape(-1)

    def _settings(self) -> dict[str, Any]:
        return {
            "linear_bias": self.linear.bias,
            "weight": getattr(self.loss, "weight", None),
            "ignore_index": self.loss.ignore_index,
            "multilabel": isinstance(self.loss, MultilabelLoss),
            "impl": self.impl,
            "chunk_rows": self.chunk_rows,
            **self.loss.settings(),
        }

    def extra_repr(self) -> str:
        return f"impl={self.impl!r}, chunk_rows={self.chunk_rows}"

    @classmethod
    def on(cls, layer: nn.Linear, loss: Loss, **head: Any) -> LinearLoss:
        """A loss on a layer that is there already, such as a model's last one: the layer stays the model's, weights and all."""
        made = LinearLoss(layer.in_features, layer.out_features, loss, bias=False, device="meta", **head)
        made.linear = layer
        return made


class LinearSoftmaxLoss(LinearLoss):
    """A linear layer and softmax cross entropy: torch's ``nn.LinearCrossEntropyLoss`` with `rows`, ``(…, H)`` input and ``torch.func``."""

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        bias: bool = True,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
        **head: Any,
    ) -> None:
        super().__init__(
            in_features, num_classes, SoftmaxLoss(weight, ignore_index, reduction), bias=bias, **head
        )


class LinearASSoftmaxLoss(LinearLoss):
    """A linear layer and AS-Softmax: `ASSoftmaxLoss` of its logits, which are never held; the more is won, the less the backward costs.

    >>> head = LinearASSoftmaxLoss(8, 1000, delta=0.3)
    >>> rows = head.rows(torch.zeros(4, 8), torch.arange(4))
    >>> rows.won_share()
    tensor(0.)
    """

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        bias: bool = True,
        delta: float | DeltaSchedule = DEFAULT_DELTA,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
        **head: Any,
    ) -> None:
        super().__init__(
            in_features, num_classes, ASSoftmaxLoss(delta, weight, ignore_index, reduction), bias=bias, **head
        )


class LinearSparseSoftmaxLoss(LinearLoss):
    """A linear layer and Sparse-Softmax: the backward touches the k largest logits of each row, and the target."""

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        bias: bool = True,
        k: int = 20,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
        **head: Any,
    ) -> None:
        super().__init__(
            in_features, num_classes, SparseSoftmaxLoss(k, weight, ignore_index, reduction), bias=bias, **head
        )


class LinearMultilabelASSoftmaxLoss(LinearLoss):
    """A linear layer and multi-label AS-Softmax. Targets are ``(…, C)`` label rows."""

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        bias: bool = True,
        delta: float | DeltaSchedule = DEFAULT_DELTA,
        ignore_index: int = -100,
        reduction: str = "mean",
        **head: Any,
    ) -> None:
        super().__init__(
            in_features,
            num_classes,
            MultilabelASSoftmaxLoss(delta, ignore_index, reduction),
            bias=bias,
            **head,
        )
