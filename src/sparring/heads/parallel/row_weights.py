"""The weights of rows in a class-parallel head: those of their target classes, and those a user gives."""

import torch
from torch import Tensor

from sparring.heads.parallel.collectives import Collectives
from sparring.heads.parallel.dtensor import ClassShard, full_tensor


def class_row_weights(
    class_weight: Tensor | None,
    target: Tensor,
    shard: ClassShard,
    collectives: Collectives,
    dtype: torch.dtype,
) -> Tensor | None:
    """The class weights of the targets; each rank contributes those of its classes."""
    if class_weight is None:
        return None
    columns = shard.local(target)
    held = columns >= 0
    row_weights = torch.zeros(len(target), dtype=dtype, device=target.device)
    row_weights[held] = class_weight.to(dtype)[columns[held]]
    return collectives.sum(row_weights)


def gather_row_weight(
    row_weight: Tensor, n_rows: int, sizes: list[int] | None, collectives: Collectives
) -> Tensor:
    """The given weights of the rows of all ranks, without a gradient.

    Args:
        row_weight: Those of this rank.
        n_rows: Rows of this rank.
        sizes: Rows of each rank where inputs are gathered; None: all ranks have the same rows.
        collectives: Of the class shards.

    Raises:
        ValueError: Another number of weights than of rows.
    """
    if row_weight.numel() != n_rows:
        raise ValueError(
            f"row_weight has shape {tuple(row_weight.shape)}, expected one weight for each of {n_rows} rows"
        )
    row_weight = full_tensor(row_weight).detach().reshape(-1)
    return row_weight if sizes is None else collectives.gather_rows(row_weight, sizes)


def combine(
    class_weights: Tensor | None, row_weight: Tensor | None, rows: Tensor, dtype: torch.dtype
) -> Tensor | None:
    """The coefficients of some rows in the sum of losses; None: all 1."""
    if row_weight is None:
        return class_weights
    scale = row_weight[rows].to(dtype)
    return scale if class_weights is None else class_weights * scale
