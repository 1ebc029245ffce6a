"""Gradients of features, weight and bias from gradients with respect to the logits.

These are two matrix products. They run over active rows only, and over the classes that were not discarded.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from sparring.heads.dispatch import HeadInputs
from sparring.losses.kernels.modes import at_least_float32


class NeedsGrad(NamedTuple):
    """Which gradients are needed."""

    features: bool
    weight: bool
    bias: bool

    @classmethod
    def of(cls, *tensors: Tensor | None, enabled: bool = True) -> "NeedsGrad":
        return cls(*(enabled and tensor is not None and tensor.requires_grad for tensor in tensors))


class HeadGradients(NamedTuple):
    """Gradients of Σ coefficient·value in float32 at least; empty tensors where they are not needed."""

    features: Tensor  # (N, H)
    weight: Tensor  # (C, H)
    bias: Tensor  # (C,)


class GradientAccumulator:
    """Sums up the gradients of all chunks."""

    def __init__(self, inputs: HeadInputs, needs: NeedsGrad) -> None:
        self.inputs = inputs
        self.needs = needs
        features, weight = inputs.features, inputs.weight
        dtype = at_least_float32(features.dtype)
        self.features = features.new_zeros(features.shape if needs.features else (0,), dtype=dtype)
        self.weight = features.new_empty(weight.shape if needs.weight else (0,), dtype=dtype)
        self._uninitialised = needs.weight  # zeroing the weight gradient first would cost a pass over it
        self.bias = features.new_zeros(len(weight) if needs.bias else 0, dtype=dtype)

    def add(self, rows: Tensor, columns: Tensor | None, grad: Tensor) -> None:
        """Add ∂value/∂logits, (m, u), of m rows and u classes; columns None: all classes.

        Each row may be added once.
        """
        features = self.inputs.features.index_select(0, rows)
        coefficient = None
        if self.inputs.coefficient is not None:
            coefficient = self.inputs.coefficient.index_select(0, rows)
            features = features * coefficient[:, None].to(features.dtype)
        if self.needs.bias:
            bias = grad.sum(0) if coefficient is None else coefficient.to(grad.dtype) @ grad
            _add(self.bias, columns, bias)
        grad = grad.to(features.dtype)
        if self.needs.features:
            weight = self.inputs.weight
            product = grad @ (weight if columns is None else weight.index_select(0, columns))
            product = product.to(self.features.dtype)
            if coefficient is not None:
                product.mul_(coefficient[:, None])
            self.features.index_add_(0, rows, product)
        if not self.needs.weight:
            return
        if columns is None and features.dtype == self.weight.dtype:  # without a (C, H) temporary
            if self._uninitialised:
                torch.mm(grad.T, features, out=self.weight)
            else:
                self.weight.addmm_(grad.T, features)
            self._uninitialised = False
        else:
            _add(self._initialised_weight(), columns, (grad.T @ features).to(self.weight.dtype))

    def _initialised_weight(self) -> Tensor:
        if self._uninitialised:
            self.weight.zero_()
            self._uninitialised = False
        return self.weight

    def result(self) -> HeadGradients:
        return HeadGradients(self.features, self._initialised_weight(), self.bias)


def _add(total: Tensor, columns: Tensor | None, part: Tensor) -> None:
    if columns is None:
        total.add_(part)
    else:
        total.index_add_(0, columns, part)  # columns are unique, so the result is deterministic
