"""∂value/∂logits becomes gradients of input, weight and bias: two matrix products, over surviving rows and classes only."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from sparring.losses.base import at_least_float32


class Needs(NamedTuple):
    """Which gradients are wanted."""

    input: bool
    weight: bool
    bias: bool


class Gradients:
    """Of Σ coefficient·value, summed up in float32 at least; empty tensors where none is wanted."""

    def __init__(self, x: Tensor, weight: Tensor, coefficient: Tensor | None, needs: Needs) -> None:
        self.x, self.head, self.coefficient, self.needs = x, weight, coefficient, needs
        dtype = at_least_float32(x.dtype)
        self.input = x.new_zeros(x.shape if needs.input else (0,), dtype=dtype)
        self.weight = x.new_empty(weight.shape if needs.weight else (0,), dtype=dtype)
        self._fresh = needs.weight  # nothing written yet: zeros would cost a pass of their own
        self.bias = x.new_zeros(len(weight) if needs.bias else 0, dtype=dtype)

    def add(self, rows: Tensor, columns: Tensor | None, grad: Tensor) -> None:
        """∂value/∂logits of some rows, and of some classes outside of which it is 0; None: of all classes. A row comes once."""
        x, coefficient = self.x.index_select(0, rows), None
        if self.coefficient is not None:
            coefficient = self.coefficient.index_select(0, rows)
            x = x * coefficient[:, None].to(x.dtype)
        if self.needs.bias:
            _add(
                self.bias, columns, grad.sum(0) if coefficient is None else coefficient.to(grad.dtype) @ grad
            )
        grad = grad.to(x.dtype)
        if self.needs.input:
            of_rows = (grad @ (self.head if columns is None else self.head.index_select(0, columns))).to(
                self.input.dtype
            )
            self.input.index_add_(
                0, rows, of_rows if coefficient is None else of_rows.mul_(coefficient[:, None])
            )
        if self.needs.weight and columns is None and x.dtype == self.weight.dtype:  # no (C, H) temporary
            torch.mm(grad.T, x, out=self.weight) if self._fresh else self.weight.addmm_(grad.T, x)
            self._fresh = False
        elif self.needs.weight:
            _add(self._begun(), columns, (grad.T @ x).to(self.weight.dtype))

    def _begun(self) -> Tensor:
        if self._fresh:
            self.weight.zero_()
            self._fresh = False
        return self.weight

    def all(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.input, self._begun(), self.bias


def _add(total: Tensor, columns: Tensor | None, part: Tensor) -> None:
    if columns is None:
        total.add_(part)
    else:
        total.index_add_(0, columns, part)  # no class twice: the order does not matter
