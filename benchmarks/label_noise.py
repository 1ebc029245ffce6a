"""Wrong labels on purpose: three kinds of noise, the same ones for the same seed."""

from __future__ import annotations

import torch
from torch import Tensor

NOISES = ("symmetric", "pair", "class")


def with_noise(labels: Tensor, n_classes: int, noise: str, rate: float, seed: int) -> Tensor:
    """Labels of which about a share ``rate`` is wrong.

    Args:
        labels: (N,) class indices.
        n_classes: The number of classes.
        noise: "symmetric": any other class, with equal probability. "pair": the next class. "class": each
            class has a rate of its own, between 0 and twice ``rate``, and three classes that it becomes.
        rate: The share of wrong labels.
        seed: Of the random numbers.
    """
    generator = torch.Generator().manual_seed(seed)
    is_wrong = torch.rand(len(labels), generator=generator) < rate
    offset = torch.randint(1, n_classes, (len(labels),), generator=generator)
    if noise == "pair":
        offset = torch.ones_like(offset)
    elif noise == "class":
        rates = 2 * rate * torch.linspace(0, 1, n_classes)[torch.randperm(n_classes, generator=generator)]
        is_wrong = torch.rand(len(labels), generator=generator) < rates[labels]
        offsets = torch.randint(1, n_classes, (n_classes, 3), generator=generator)
        choice = torch.randint(3, (len(labels),), generator=generator)
        offset = offsets[labels, choice]
    elif noise != "symmetric":
        raise ValueError(f"noise must be one of {', '.join(NOISES)}; got {noise!r}")
    return torch.where(is_wrong, (labels + offset) % n_classes, labels)


def calibration_error(probabilities: Tensor, target: Tensor, n_bins: int = 15) -> float:
    """The expected calibration error of the predicted class (ECE), with bins of equal width."""
    confidence, predicted = probabilities.max(1)
    right = (predicted == target).double()
    bins = (confidence * n_bins).long().clamp(max=n_bins - 1)
    gaps = torch.zeros(n_bins, dtype=torch.float64).index_add_(0, bins, right - confidence.double())
    return float(gaps.abs().sum() / len(target))
