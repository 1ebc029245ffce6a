"""Blocks of ∂value/∂logits become gradients of input, weight and bias: two matrix products each, over surviving rows and classes only."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from sparring.fused.kernels import Block
from sparring.losses.base import at_least_float32


class Needs(NamedTuple):
    """Which gradients are wanted."""

    input: bool
    weight: bool
    bias: bool


class Gradients:
    """Of Σ coefficient·value, summed up in float32 at least; empty tensors where none is wanted.

    Every pass over the (C, H) weight gradient costs as much as some thirteen rows' worth of products, so small blocks wait until they
    fill a buffer of `n_waiting` rows.
    """

    def __init__(self, x: Tensor, weight: Tensor, coefficient: Tensor | None, needs: Needs, n_waiting: int) -> None:
        self.x, self.head, self.coefficient, self.needs = x, weight, coefficient, needs
        dtype = at_least_float32(x.dtype)
        self.input = x.new_zeros(x.shape if needs.input else (0,), dtype=dtype)
        self.weight = x.new_zeros(weight.shape if needs.weight else (0,), dtype=dtype)
        self.bias = x.new_zeros(len(weight) if needs.bias else 0, dtype=dtype)
        self._buffer = x.new_empty(0, len(weight), dtype=dtype)
        self._n_waiting = n_waiting
        self._rows: list[Tensor] = []

    def add(self, start: int, block: Block) -> None:
        """A block of the chunk that begins at row `start`."""
        n_rows = len(block.grad)
        if n_rows == 0:
            return
        rows = torch.arange(n_rows, device=self.x.device) if block.rows is None else block.rows
        rows = rows + start
        if block.columns is not None or n_rows > self._n_waiting:
            self._multiply(rows, block.columns, block.grad)
            return
        taken = sum(map(len, self._rows))
        if taken + n_rows > self._n_waiting:
            self.finish()
            taken = 0
        if not len(self._buffer):
            self._buffer = self._buffer.new_empty(self._n_waiting, len(self.head))
        self._buffer[taken : taken + n_rows].copy_(block.grad)
        self._rows.append(rows)

    def finish(self) -> None:
        """What waits is multiplied."""
        if self._rows:
            rows = torch.cat(self._rows)
            self._multiply(rows, None, self._buffer[: len(rows)])
            self._rows = []

    def _multiply(self, rows: Tensor, columns: Tensor | None, grad: Tensor) -> None:
        x, coefficient = self.x.index_select(0, rows), None
        if self.coefficient is not None:
            coefficient = self.coefficient.index_select(0, rows)
            x = x * coefficient[:, None].to(x.dtype)
        if self.needs.bias:
            _add(self.bias, columns, grad.sum(0) if coefficient is None else coefficient.to(grad.dtype) @ grad)
        grad = grad.to(x.dtype)
        if self.needs.input:
            of_rows = (grad @ (self.head if columns is None else self.head.index_select(0, columns))).to(self.input.dtype)
            self.input.index_add_(0, rows, of_rows if coefficient is None else of_rows.mul_(coefficient[:, None]))
        if self.needs.weight and columns is None and x.dtype == self.weight.dtype:
            self.weight.addmm_(grad.T, x)  # no (C, H) temporary
        elif self.needs.weight:
            _add(self.weight, columns, (grad.T @ x).to(self.weight.dtype))


def _add(total: Tensor, columns: Tensor | None, part: Tensor) -> None:
    if columns is None:
        total.add_(part)
    else:
        total.index_add_(0, columns, part)  # no class twice: the order does not matter
