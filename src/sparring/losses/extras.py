"""Further numbers of each row, from the softmax over all classes: computed only where they are asked for."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

EXTRAS = ("nll", "log_prob", "entropy", "margin", "correct")


def check_extras(extras: Sequence[str]) -> tuple[str, ...]:
    """Names of extras, as a tuple."""
    names = (extras,) if isinstance(extras, str) else tuple(extras)
    if unknown := [name for name in names if name not in EXTRAS]:
        raise ValueError(f"extras must be some of {', '.join(EXTRAS)}; got {', '.join(map(repr, unknown))}")
    return names


class RowStatistics(NamedTuple):
    """Numbers of N rows that all extras follow from. Logits are relative to the largest one of their row."""

    logsumexp: Tensor  # log Σ_i exp o_i
    target: Tensor  # o_t
    mean: Tensor  # Σ_i p_i o_i
    rival: Tensor  # max_{i≠t} o_i; -inf without another class

    def extras(self, valid: Tensor, names: Sequence[str]) -> dict[str, Tensor]:
        """The extras of these names, 0 or False for rows that are not valid."""
        log_prob = self.target - self.logsumexp
        values: dict[str, Tensor] = {}
        for name in names:
            if name == "correct":
                values[name] = valid & (self.target >= self.rival)
                continue
            if name == "nll":
                value = -log_prob
            elif name == "log_prob":
                value = log_prob
            elif name == "entropy":
                value = self.logsumexp - self.mean
            else:
                value = log_prob.exp() - (self.rival - self.logsumexp).exp()
            values[name] = torch.where(valid, value, 0)
        return values


def row_statistics(logits: Tensor, target: Tensor, valid: Tensor) -> RowStatistics:
    """The statistics of (N, C) logits in differentiable operations. Rows that are not valid get no gradient.

    logits are in float32 at least, target holds N classes.
    """
    index = target[:, None]
    logits = torch.where(valid[:, None], logits, 0)
    shifted = logits - logits.detach().amax(1, keepdim=True)
    logsumexp = shifted.logsumexp(1)
    finite = torch.where(shifted == -torch.inf, 0, shifted)  # p is 0 there, but 0 times -inf is NaN
    mean = ((shifted - logsumexp[:, None]).exp() * finite).sum(1)
    rival = shifted.scatter(1, index, -torch.inf).amax(1)
    return RowStatistics(logsumexp, shifted.gather(1, index).squeeze(1), mean, rival)


def row_extras(logits: Tensor, target: Tensor, valid: Tensor, extras: Sequence[str]) -> dict[str, Tensor]:
    """The extras of these names, from logits. For the arguments see `row_statistics`."""
    names = check_extras(extras)
    return row_statistics(logits, target, valid).extras(valid, names)
