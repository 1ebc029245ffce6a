"""The heads as functions. `sparring.functional` has them too."""

from typing import Any

from torch import Tensor

from sparring.heads.fused import linear_loss
from sparring.losses.as_softmax import as_softmax_rows
from sparring.losses.delta import DEFAULT_DELTA, DeltaSchedule
from sparring.losses.multilabel import multilabel_as_softmax_rows
from sparring.losses.softmax import softmax_rows
from sparring.losses.sparse_softmax import sparse_softmax_rows


def linear_softmax_loss(
    input: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    *,
    linear_bias: Tensor | None = None,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    concede: float | DeltaSchedule | None = None,
    impl: str = "auto",
    chunk_rows: int | None = None,
) -> Tensor:
    """`softmax_loss` of F.linear(input, linear_weight, linear_bias), without storing logits."""
    parameters: dict[str, Any] = {"linear_bias": linear_bias, "weight": weight, "ignore_index": ignore_index}
    options: dict[str, Any] = {"reduction": reduction, "impl": impl, "chunk_rows": chunk_rows}
    return linear_loss(softmax_rows, input, linear_weight, target, concede=concede, **parameters, **options)


def linear_as_softmax_loss(
    input: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    *,
    linear_bias: Tensor | None = None,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    delta: float | DeltaSchedule = DEFAULT_DELTA,
    concede: float | DeltaSchedule | None = None,
    impl: str = "auto",
    chunk_rows: int | None = None,
) -> Tensor:
    """`as_softmax_loss` of F.linear(input, linear_weight, linear_bias), without storing logits."""
    parameters: dict[str, Any] = {"linear_bias": linear_bias, "weight": weight, "ignore_index": ignore_index}
    settings: dict[str, Any] = {"delta": delta, "concede": concede}
    settings |= {"reduction": reduction, "impl": impl, "chunk_rows": chunk_rows}
    return linear_loss(as_softmax_rows, input, linear_weight, target, **parameters, **settings)


def linear_sparse_softmax_loss(
    input: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    *,
    linear_bias: Tensor | None = None,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    k: int = 20,
    impl: str = "auto",
    chunk_rows: int | None = None,
) -> Tensor:
    """`sparse_softmax_loss` of F.linear(input, linear_weight, linear_bias), without storing logits."""
    parameters: dict[str, Any] = {"linear_bias": linear_bias, "weight": weight, "ignore_index": ignore_index}
    options: dict[str, Any] = {"reduction": reduction, "impl": impl, "chunk_rows": chunk_rows}
    return linear_loss(sparse_softmax_rows, input, linear_weight, target, k=k, **parameters, **options)


def linear_multilabel_as_softmax_loss(
    input: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    *,
    linear_bias: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    delta: float | DeltaSchedule = DEFAULT_DELTA,
    concede: float | DeltaSchedule | None = None,
    pos_weight: Tensor | None = None,
    impl: str = "auto",
    chunk_rows: int | None = None,
) -> Tensor:
    """`multilabel_as_softmax_loss` of F.linear(input, linear_weight, linear_bias), without storing logits."""
    parameters: dict[str, Any] = {"linear_bias": linear_bias, "ignore_index": ignore_index, "delta": delta}
    options: dict[str, Any] = {"reduction": reduction, "impl": impl, "chunk_rows": chunk_rows}
    options |= {"concede": concede, "pos_weight": pos_weight}
    rows = multilabel_as_softmax_rows
    return linear_loss(rows, input, linear_weight, target, multilabel=True, **parameters, **options)
