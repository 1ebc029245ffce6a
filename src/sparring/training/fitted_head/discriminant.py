"""Linear discriminant analysis from one pass over the rows: a linear classifier in closed form.

With classes of mean μ_c, prior π_c and a common covariance Σ, the posterior is a softmax of

    o_c = (μ_c − m)ᵀ Σ⁻¹ (x − ½ (μ_c + m)) + log π_c,

where m is the mean of all rows. Σ is shrunk to (1 − a) Σ + a tr(Σ)/d I, and all but log π_c is divided by a
temperature. With several labels per row, each label is such a problem of two classes: m is then the mean of
the rows without the label, and log π_c the log odds.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

SHRINKAGES = (0.003, 0.01, 0.03, 0.1, 0.3, 0.6, 1.0)
TEMPERATURES = tuple(2 ** (i / 2) for i in range(13))  # the posterior is rather too sure than not enough


@dataclass
class Moments:
    """Counts, sums and squares of rows, to which batches are added. In double precision.

    Args:
        n_features, n_classes: The shape.
        multilabel: Whether targets are 0 and 1 for each label, instead of class indices.
        origin: Is subtracted from all rows, so that squares keep their digits.
    """

    n_features: int
    n_classes: int
    multilabel: bool
    origin: Tensor

    def __post_init__(self) -> None:
        zeros = torch.zeros(self.n_classes, self.n_features, dtype=torch.float64, device=self.origin.device)
        self.n_rows = zeros.new_zeros(())
        self.counts = zeros.new_zeros(self.n_classes)
        self.total = zeros.new_zeros(self.n_features)
        self.sums = zeros
        self.squares = zeros.new_zeros(self.n_features, self.n_features)

    def add(self, rows: Tensor, target: Tensor) -> None:
        """Add rows (n, d) with their targets, (n,) or (n, labels)."""
        rows = (rows - self.origin).double()
        self.n_rows += len(rows)
        self.total += rows.sum(0)
        self.squares += rows.T @ rows
        if self.multilabel:
            labels = target.double()
            self.counts += labels.sum(0)
            self.sums += labels.T @ rows
        else:
            self.counts += torch.bincount(target, minlength=self.n_classes)
            self.sums.index_add_(0, target, rows)

    def tensors(self) -> list[Tensor]:
        """The sums, so that those of several processes can be added."""
        return [self.n_rows, self.counts, self.total, self.sums, self.squares]

    @property
    def size(self) -> float:
        """The root mean square of the norms of the rows."""
        origin = self.origin.double()
        total = self.squares.trace() + 2 * origin @ self.total
        return float((total / self.n_rows.clamp(min=1) + origin @ origin).clamp(min=0).sqrt())

    def copy(self) -> Moments:
        """The same sums in other tensors."""
        other = copy.copy(self)
        for name in ("n_rows", "counts", "total", "sums", "squares"):
            setattr(other, name, getattr(self, name).clone())
        return other

    def discriminant(self) -> Discriminant:
        """The statistics of the classes."""
        n = self.n_rows.clamp(min=1)
        mean = self.total / n
        seen = (self.counts > 0)[:, None]
        means = torch.where(seen, self.sums / self.counts.clamp(min=1)[:, None], mean)
        if self.multilabel:
            covariance = self.squares / n - torch.outer(mean, mean)
            others = (self.total - self.sums) / (n - self.counts).clamp(min=1)[:, None]
            differences = torch.where(seen, means - others, 0)
        else:
            within = self.squares - (means * self.counts[:, None]).T @ means
            covariance = within / (n - seen.sum()).clamp(min=1)
            differences = means - mean
        values, vectors = torch.linalg.eigh(covariance)
        priors = (self.counts + 1) / (n + (2 if self.multilabel else self.n_classes))
        means = means + self.origin
        shares = self.counts / n if self.multilabel else None
        return Discriminant(means, differences, priors, values.clamp(min=0), vectors, shares)


class Layer(NamedTuple):
    """A linear layer without its temperature."""

    weight: Tensor
    bias: Tensor
    prior: Tensor

    def at(self, temperature: float) -> tuple[Tensor, Tensor]:
        """Weight and bias at a temperature."""
        return self.weight / temperature, self.bias / temperature + self.prior


@dataclass
class Discriminant:
    """The classes as normal distributions with one covariance."""

    means: Tensor  # of the rows of each class
    differences: Tensor  # of these, minus the mean of all rows, or with several labels, of the other rows
    priors: Tensor
    values: Tensor  # of the covariance: eigenvalues and eigenvectors
    vectors: Tensor
    shares: Tensor | None  # with several labels per row, of the rows that have each

    def layer(self, shrinkage: float) -> Layer:
        """The linear layer for a covariance that is shrunk."""
        average = self.values.mean()
        values = ((1 - shrinkage) * self.values + shrinkage * average).clamp(
            min=float(1e-9 * average) + 1e-30
        )
        weight = ((self.differences @ self.vectors) / values) @ self.vectors.T
        prior = self.priors.log()
        if self.shares is not None:
            prior = torch.logit(self.priors)
            # the covariance of all rows is that within the two classes of a label, and p (1 - p) times the
            # square of their difference; this takes it out (Sherman-Morrison)
            spread = self.shares * (1 - self.shares) * (weight * self.differences).sum(1)
            weight = weight / (1 - spread).clamp(min=0.05)[:, None]
        middle = self.means - 0.5 * self.differences  # between the two means
        bias = -(weight * middle).sum(1)
        return Layer(weight, bias, prior)
