"""A linear layer and its loss in one: ``loss(F.linear(input, W, b), target)`` without the (N, C) logits.

With many classes the head takes most of the time and memory of a training step. Chunks of rows bound the
memory. AS-Softmax bounds the time: won rows and discarded classes have gradient 0, so the two matrix products
of the backward pass run over the remaining rows and classes only.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from sparring.heads.chunked import chunk_sizes
from sparring.heads.dispatch import check_bias, check_class_weight, resolve_loss
from sparring.heads.fused import linear_loss, linear_rows
from sparring.heads.loss_wrapper import LossWrapper
from sparring.losses.am_softmax import am_softmax_rows
from sparring.losses.base import ClassLoss, Loss, MultilabelLoss
from sparring.losses.checks import check_count
from sparring.losses.delta import DEFAULT_DELTA, DeltaSchedule
from sparring.losses.diagnostics import LabelMargins, label_margins, margins
from sparring.losses.kernels.implementation import IMPLS
from sparring.losses.rows import RowLosses


class LinearLoss(LossWrapper):
    """A linear layer and a loss in one module, which takes features instead of logits.

    Args:
        in_features, num_classes, bias, device, dtype: As in ``nn.Linear``. The attribute ``linear`` is the
            layer; its weight can be tied to an embedding, and the layer can be replaced.
        loss: A loss or its name, any but AM-Softmax. Softmax, AS-Softmax and the logit-margin variant have
            kernels; others are differentiated chunk by chunk.
        impl: "torch", "triton" (CUDA, for losses with kernels) or "auto".
        chunk_rows: Rows whose logits are held at once; None derives it from the shapes. For softmax and
            AS-Softmax in float32 on CPU, memory is chunk_rows × num_classes floats, a part of that (32 rows
            or 4 MB, whichever is larger), and the gradients.
        **settings: Settings of a loss given by name, such as ``delta``, ``weight`` or ``reduction``.

    Raises:
        TypeError: ``bias`` or ``loss`` has the wrong type.
        ValueError: another argument is invalid.

    Shape:
        - input: ``(…, H)`` features
        - target: ``(…)`` class indices, or ``(…, C)`` labels for a multi-label loss
        - output: a scalar, or ``(…)`` with ``reduction="none"``

    >>> head = LinearLoss(8, 1000, loss="as-softmax")
    >>> head(torch.zeros(2, 3, 8), torch.zeros(2, 3, dtype=torch.long)).shape
    torch.Size([])
    """

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        bias: bool = True,
        *,
        loss: Loss | str = "as-softmax",
        impl: str = "auto",
        chunk_rows: int | None = None,
        device: Any = None,
        dtype: torch.dtype | None = None,
        **settings: Any,
    ) -> None:
        super().__init__()
        check_bias(bias)
        loss = resolve_loss(loss, settings)
        if type(loss).row_function is am_softmax_rows:
            raise ValueError("am-softmax takes cosines, not logits: use CosineLinear and then AMSoftmaxLoss")
        if impl not in IMPLS:
            raise ValueError(f"impl must be one of {', '.join(IMPLS)}; got {impl!r}")
        check_class_weight(getattr(loss, "weight", None), num_classes)
        check_class_weight(getattr(loss, "pos_weight", None), num_classes)
        check_count("in_features", in_features)
        check_count("num_classes", num_classes)
        self.linear = nn.Linear(in_features, num_classes, bias, device, dtype)
        self.loss = loss
        self.impl = impl
        self.chunk_rows = None if chunk_rows is None else check_count("chunk_rows", chunk_rows)

    @classmethod
    def on(cls, layer: nn.Linear, loss: Loss, **options: Any) -> "LinearLoss":
        """A head on an existing layer, such as the last one of a model; the layer keeps its parameters."""
        sizes = (layer.in_features, layer.out_features)
        head = LinearLoss(*sizes, bias=False, loss=loss, device="meta", **options)
        head.linear = layer
        return head

    def forward(self, input: Tensor, target: Tensor, *, row_weight: Tensor | None = None) -> Tensor:
        options: dict[str, Any]
        if self.fused:
            tensors = (input, self.linear.weight, target)
            options = {"reduction": self.reduction, "row_weight": row_weight, **self._arguments()}
            return linear_loss(type(self.loss).row_function, *tensors, **options)
        options = {} if row_weight is None else {"row_weight": row_weight.reshape(-1)}
        value: Tensor = self.loss(*self._logits_and_target(input, target), **options)
        return value.reshape(input.shape[:-1]) if self.reduction == "none" else value

    def rows(
        self,
        input: Tensor,
        target: Tensor,
        *,
        row_weight: Tensor | None = None,
        extras: Sequence[str] = (),
    ) -> RowLosses:
        """One loss per row, and which rows are valid, won or active.

        Args:
            input, target: As those of `forward`.
            row_weight, extras: As those of `Loss.rows`. Extras compute the logits once more, and once more
                for their gradients (`docs/linear.md` has times).
        """
        options: dict[str, Any]
        if self.fused:
            tensors = (input, self.linear.weight, target)
            options = {"row_weight": row_weight, "extras": extras, **self._arguments()}
            return linear_rows(type(self.loss).row_function, *tensors, **options)
        options = {"row_weight": row_weight, "extras": extras} if row_weight is not None or extras else {}
        return self.loss.rows(*self._logits_and_target(input, target), **options)

    def logits(self, input: Tensor) -> Tensor:
        """``(…, H)`` features to ``(…, C)`` logits, for inference."""
        return self.linear(input)  # type: ignore[no-any-return]

    @torch.no_grad()
    def margins(self, input: Tensor, target: Tensor) -> Tensor:
        """`sparring.margins` of the logits, computed in chunks; in the shape of the row losses."""
        chunks = [margins(*chunk, self.ignore_index) for chunk in self._chunks(input, target)]
        return torch.cat(chunks).reshape(input.shape[:-1])

    @torch.no_grad()
    def label_margins(self, input: Tensor, target: Tensor) -> LabelMargins:
        """`label_margins` of the logits, computed in chunks; in the shape of the row losses."""
        chunks = [label_margins(*chunk, self.ignore_index) for chunk in self._chunks(input, target)]
        return LabelMargins(*(torch.cat(x).reshape(input.shape[:-1]) for x in zip(*chunks, strict=True)))

    def _chunks(self, input: Tensor, target: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """The logits and targets of some rows at a time."""
        features = input.reshape(-1, input.shape[-1])
        labels = target.reshape(-1, self.linear.out_features) if self.multilabel else target.reshape(-1)
        size, _ = chunk_sizes(
            features.shape, self.linear.out_features, self.chunk_rows, on_cpu=features.is_cpu
        )
        for chunk, chunk_labels in zip(features.split(size), labels.split(size), strict=True):
            yield self.logits(chunk), chunk_labels

    @property
    def multilabel(self) -> bool:
        return isinstance(self.loss, MultilabelLoss)

    @property
    def fused(self) -> bool:
        """Whether the logits are never materialised.

        A layer with hooks or its own ``forward``, and a loss that overrides ``rows`` or ``forward``, are
        called one after the other.
        """
        linear = self.linear
        loss = type(self.loss)
        loss_base = MultilabelLoss if self.multilabel else ClassLoss
        has_hooks = (
            linear._forward_hooks
            or linear._forward_pre_hooks
            or linear._backward_hooks
            or linear._backward_pre_hooks
        )
        plain_layer = type(linear).forward is nn.Linear.forward and not has_hooks
        return plain_layer and loss.rows is loss_base.rows and loss.forward is loss_base.forward

    def _arguments(self) -> dict[str, Any]:
        """What `linear_rows` and `linear_loss` need besides tensors and what a call decides."""
        return {
            "linear_bias": self.linear.bias,
            "weight": getattr(self.loss, "weight", None),
            "ignore_index": self.ignore_index,
            "multilabel": self.multilabel,
            "impl": self.impl,
            "chunk_rows": self.chunk_rows,
            **self.loss.settings(),
        }

    def _logits_and_target(self, input: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        logits = self.logits(input)
        logits = logits.reshape(-1, logits.shape[-1])
        return logits, target.reshape(logits.shape) if self.multilabel else target.reshape(-1)

    def extra_repr(self) -> str:
        return f"impl={self.impl!r}, chunk_rows={self.chunk_rows}"


class LinearSoftmaxLoss(LinearLoss):
    """A linear layer and softmax cross entropy; ``settings`` are those of `SoftmaxLoss` and `LinearLoss`.

    Like torch's ``nn.LinearCrossEntropyLoss``, with `rows`, ``(…, H)`` input and support for ``torch.func``.
    """

    def __init__(self, in_features: int, num_classes: int, bias: bool = True, **settings: Any) -> None:
        super().__init__(in_features, num_classes, bias, loss="softmax", **settings)


class LinearASSoftmaxLoss(LinearLoss):
    """A linear layer and AS-Softmax; ``settings`` are those of `ASSoftmaxLoss` and `LinearLoss`.

    >>> head = LinearASSoftmaxLoss(8, 1000, delta=0.3)
    >>> head.rows(torch.zeros(4, 8), torch.arange(4)).won_share()
    tensor(0.)
    """

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        bias: bool = True,
        *,
        delta: float | DeltaSchedule = DEFAULT_DELTA,
        **settings: Any,
    ) -> None:
        super().__init__(in_features, num_classes, bias, loss="as-softmax", delta=delta, **settings)


class LinearSparseSoftmaxLoss(LinearLoss):
    """A linear layer and Sparse-Softmax; ``settings`` are those of `SparseSoftmaxLoss` and `LinearLoss`."""

    def __init__(
        self, in_features: int, num_classes: int, bias: bool = True, *, k: int = 20, **settings: Any
    ) -> None:
        super().__init__(in_features, num_classes, bias, loss="sparse-softmax", k=k, **settings)


class LinearMultilabelASSoftmaxLoss(LinearLoss):
    """A linear layer and multi-label AS-Softmax on ``(…, C)`` labels.

    ``settings`` are those of `MultilabelASSoftmaxLoss` and `LinearLoss`.
    """

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        bias: bool = True,
        *,
        delta: float | DeltaSchedule = DEFAULT_DELTA,
        **settings: Any,
    ) -> None:
        loss = "multilabel-as-softmax"
        super().__init__(in_features, num_classes, bias, loss=loss, delta=delta, **settings)
