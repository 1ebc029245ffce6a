"""Some rows' logits become losses, verdicts, and gradients of the rows that still fight: in blocks, as few classes wide as they can be."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from sparring.heads.dispatch import Head
from sparring.losses.base import valid_targets
from sparring.losses.kernels import margin_softmax as strong
from sparring.losses.kernels import margin_softmax_cpu as strong_cpu
from sparring.losses.kernels.rule import Rule


class Block(NamedTuple):
    """∂value/∂logits of some rows, and of the classes outside of which it is 0."""

    rows: Tensor | None  # (m,) indices within the chunk; None: all of them
    columns: Tensor | None  # (u,) classes; None: all of them
    grad: Tensor  # (m, u)


class Outcome(NamedTuple):
    value: Tensor  # (n,)
    active: Tensor  # (n,)
    blocks: list[Block]  # of the active rows, each in one block; empty where no gradient was asked for


def outcome(logits: Tensor, target: Tensor, head: Head, work: Tensor, with_grad: bool) -> Outcome:
    """Of some rows' logits, (n, C) in float32 at least, which are used up; `work` is another such buffer. Blocks may lie in either.

    There may be columns after those of the classes, where the loss has a rule: they are -inf.
    """
    rule = head.rule()
    if rule is None:
        return _by_autograd(logits, target, head, with_grad)
    safe, valid = valid_targets(target, head.ignore_index)
    if head.impl == "triton":
        from sparring.losses.kernels import (
            margin_softmax_triton as strong_triton,  # Triton is there only for those who chose it
        )

        return _on_device(logits, safe, valid, rule, work, with_grad, strong_triton.chunk)
    if logits.is_cpu:
        return _on_cpu(logits, safe, valid, rule, work, with_grad)
    return _on_device(logits, safe, valid, rule, work, with_grad, strong.chunk)


def _on_cpu(
    logits: Tensor, target: Tensor, valid: Tensor, rule: Rule, work: Tensor, with_grad: bool
) -> Outcome:
    fought = strong_cpu.fight(logits, target, valid, rule, logp=work, out=logits, with_grad=with_grad)
    if not with_grad:
        blocks = []
    elif fought.rows is None:
        blocks = [Block(None, None, fought.grad)]
    else:
        plain, scanned = fought.rows.tensor_split([fought.n_plain])
        narrow = _narrowed(scanned, fought.grad[fought.n_plain :])
        if narrow.columns is None:
            blocks = [Block(fought.rows, None, fought.grad)]
        else:
            blocks = [Block(plain, None, fought.grad[: fought.n_plain]), narrow]
    return Outcome(fought.value, fought.active, blocks)


def _on_device(
    logits: Tensor,
    target: Tensor,
    valid: Tensor,
    rule: Rule,
    work: Tensor,
    with_grad: bool,
    chunk: Callable[..., tuple[Tensor, Tensor]],
) -> Outcome:
    value, active = chunk(logits, target, valid, rule, work if with_grad else None)
    if not with_grad:
        return Outcome(value, active, [])
    rows = active.nonzero().squeeze(1)  # waits for the device, once a chunk
    return Outcome(
        value, active, [Block(rows, None, work if len(rows) == len(work) else work.index_select(0, rows))]
    )


def _by_autograd(logits: Tensor, target: Tensor, head: Head, with_grad: bool) -> Outcome:
    """Any row function."""
    with torch.enable_grad() if with_grad else torch.no_grad():
        leaf = logits.detach().requires_grad_(with_grad)
        value, _, active, _ = head.rows(leaf, target)
    if not with_grad:
        return Outcome(value, active, [])
    (grad,) = torch.autograd.grad(value, leaf, torch.ones_like(value))
    rows = active.nonzero().squeeze(1)
    return Outcome(
        value.detach(),
        active,
        [_narrowed(rows, grad if len(rows) == len(grad) else grad.index_select(0, rows))],
    )


def _narrowed(rows: Tensor, grad: Tensor) -> Block:
    """Without the classes that have no gradient in any of the rows, where most have none."""
    if not len(rows):
        return Block(rows, rows, grad[:, :0])
    columns = torch.linalg.vector_norm(grad, ord=torch.inf, dim=0).nonzero().squeeze(1)
    if 4 * len(columns) > grad.shape[1]:
        return Block(rows, None, grad)
    return Block(rows, columns, grad.index_select(1, columns))
