"""Losses, active rows and gradients from the logits of some rows.

Gradients come in blocks of rows that span as few classes as possible.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from sparring.heads.dispatch import HeadSpec
from sparring.losses.base import valid_targets
from sparring.losses.kernels import margin_softmax_chunks, margin_softmax_cpu
from sparring.losses.kernels.rule import MarginRule


class RowBlock(NamedTuple):
    """∂value/∂logits of some rows, restricted to the classes where it is not 0."""

    rows: Tensor | None  # (m,) indices within the chunk; None: all rows
    columns: Tensor | None  # (u,) classes; None: all classes
    grad: Tensor  # (m, u)


class ChunkResult(NamedTuple):
    value: Tensor  # (n,)
    active: Tensor  # (n,)
    conceded: Tensor | None  # (n,); None: no row
    blocks: list[RowBlock]  # each active row is in one of them; empty where no gradient is needed


def solve_chunk(logits: Tensor, target: Tensor, spec: HeadSpec, work: Tensor, with_grad: bool) -> ChunkResult:
    """Losses and gradients of some rows.

    ``logits`` are (n, C) in float32 at least, and are overwritten. For a loss with a rule they may have
    further columns, all -inf. ``work`` is a second such buffer. Blocks may share memory with either.
    """
    rule = spec.rule()
    if rule is None:
        return _by_autograd(logits, target, spec, with_grad)
    target, valid = valid_targets(target, spec.ignore_index)
    if spec.impl == "triton":
        from sparring.losses.kernels import margin_softmax_triton  # Triton is an optional dependency

        return _on_device(logits, target, valid, rule, work, with_grad, margin_softmax_triton.chunk)
    if logits.is_cpu:
        return _on_cpu(logits, target, valid, rule, work, with_grad)
    return _on_device(logits, target, valid, rule, work, with_grad, margin_softmax_chunks.chunk)


def _on_cpu(
    logits: Tensor, target: Tensor, valid: Tensor, rule: MarginRule, work: Tensor, with_grad: bool
) -> ChunkResult:
    result = margin_softmax_cpu.active_rows(
        logits, target, valid, rule, logp=work, out=logits, with_grad=with_grad
    )
    if not with_grad:
        blocks = []
    elif result.rows is None:
        blocks = [RowBlock(None, None, result.grad)]
    else:
        plain_rows, margin_rows = result.rows.tensor_split([result.n_plain])
        margin_block = narrow(margin_rows, result.grad[result.n_plain :])
        if margin_block.columns is None:
            blocks = [RowBlock(result.rows, None, result.grad)]
        else:
            blocks = [RowBlock(plain_rows, None, result.grad[: result.n_plain]), margin_block]
    return ChunkResult(result.value, result.active, result.conceded, blocks)


def _on_device(
    logits: Tensor,
    target: Tensor,
    valid: Tensor,
    rule: MarginRule,
    work: Tensor,
    with_grad: bool,
    chunk: Callable[..., tuple[Tensor, Tensor, Tensor]],
) -> ChunkResult:
    results = chunk(logits, target, valid, rule, work if with_grad else None)
    if not with_grad:
        return ChunkResult(*results, [])
    rows = results[1].nonzero().squeeze(1)  # synchronises with the device once per chunk
    return ChunkResult(*results, [RowBlock(rows, None, select_rows(work, rows))])


def _by_autograd(logits: Tensor, target: Tensor, spec: HeadSpec, with_grad: bool) -> ChunkResult:
    """Any row function."""
    with torch.set_grad_enabled(with_grad):
        leaf = logits.detach().requires_grad_(with_grad)
        losses = spec.rows(leaf, target)
    if not with_grad:
        return ChunkResult(losses.value, losses.active, losses.conceded, [])
    (grad,) = torch.autograd.grad(losses.value, leaf, torch.ones_like(losses.value))
    rows = losses.active.nonzero().squeeze(1)
    blocks = [narrow(rows, select_rows(grad, rows))]
    return ChunkResult(losses.value.detach(), losses.active, losses.conceded, blocks)


def select_rows(grad: Tensor, rows: Tensor) -> Tensor:
    """The active rows of a gradient; without a copy where all rows are active."""
    return grad if len(rows) == len(grad) else grad.index_select(0, rows)


def narrow(rows: Tensor, grad: Tensor) -> RowBlock:
    """Drop the classes without a gradient in any of the rows, where at least three quarters have none."""
    if not len(rows):
        return RowBlock(rows, rows, grad[:, :0])
    columns = torch.linalg.vector_norm(grad, ord=torch.inf, dim=0).nonzero().squeeze(1)
    if 4 * len(columns) > grad.shape[1]:
        return RowBlock(rows, None, grad)
    return RowBlock(rows, columns, grad.index_select(1, columns))
