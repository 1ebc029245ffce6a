"""Which opponents are strong: one threshold per row, computed from the target's probability alone.

And which rows are conceded, because an opponent is too far ahead of the target.
"""

import math
from collections.abc import Callable
from functools import lru_cache, partial
from typing import NamedTuple

import torch
from torch import Tensor

_TINY = 1e-37  # about the smallest normal float32
_ULPS = {dtype: 4 * torch.finfo(dtype).eps for dtype in (torch.float32, torch.float64)}
_ONE = {dtype: torch.ones((), dtype=dtype) for dtype in (torch.float32, torch.float64)}
_SLACK = 1e-6  # rows this close to a bound are scanned


class MarginRule(NamedTuple):
    """An opponent stays in the softmax while log p_i ≥ τ = threshold(log p_t) ≤ log p_t; τ = −inf keeps all.

    No opponent has a probability above 1 − p_t. So rows with log p_t above the upper bound are won whatever
    their opponents are, and up to the lower bound nothing is discarded. Only rows in between are scanned.

    Margins are strict: an opponent that meets the margin exactly stays. Therefore each τ is a few units in
    the last place lower than the margin.
    """

    threshold: Callable[[Tensor], Tensor]  # log p_t -> τ, elementwise
    floor: Callable[[Tensor], Tensor]  # 1 / p_t -> exp(τ) / p_t, elementwise; anything up to 0 keeps all
    bounds: Callable[[], tuple[float, float]]  # lower and upper bound; torch.compile does not need them
    concede: float = 1.0  # κ: a row is conceded if max p_i − p_t > κ; 1 concedes nothing
    family: str = "softmax"  # `make_rule` of family and number is this rule, but for κ
    number: float = 1.0
    least_ratio: Callable[[torch.dtype], float] | None = None  # exp(τ) / p_t where p_t does not matter

    def keeps_all(self) -> bool:
        """Whether nothing is ever discarded, as in plain softmax."""
        return self.bounds()[0] >= 0

    @property
    def concedes(self) -> bool:
        """Whether a row can be conceded."""
        return self.concede < 1

    def conceded(self, logp_t: Tensor, largest_logp: Tensor) -> Tensor:
        """Whether the most probable class is ahead of the target by more than κ. False for NaN."""
        return self.is_ahead(largest_logp.exp() - logp_t.exp())

    def is_ahead(self, lead: Tensor) -> Tensor:
        """Whether max p − p_t is more than κ."""
        return lead > self.concede + _ulps(lead)

    def concede_bound(self) -> float:
        """The smallest log p_t of rows that are never conceded: no opponent is more probable than 1 − p_t."""
        return math.log((1 - self.concede) / 2 + _SLACK)


def probability_rule(delta: float) -> MarginRule:
    """AS-Softmax: p_t − p_i > δ discards (Eq. 6)."""
    # torch.compile warns about caches
    return _probability_rule(delta) if torch.compiler.is_compiling() else _cached_probability_rule(delta)


def _probability_rule(delta: float) -> MarginRule:
    return MarginRule(
        partial(_probability_threshold, delta=delta),
        partial(_probability_floor, delta=delta),
        partial(_probability_bounds, delta),
        family="probability",
        number=delta,
    )


def logit_rule(margin: float) -> MarginRule:
    """AS-variant: o_t − o_i = log p_t − log p_i > margin discards (Eq. 8)."""
    return _logit_rule(margin) if torch.compiler.is_compiling() else _cached_logit_rule(margin)


def _logit_rule(margin: float) -> MarginRule:
    return MarginRule(
        partial(_logit_threshold, margin=margin),
        partial(_logit_floor, margin=margin),
        partial(_logit_bounds, margin),
        family="logit",
        number=margin,
        least_ratio=partial(_least_logit_ratio, margin),
    )


# making a rule takes as long as three operations on a small batch
_cached_probability_rule = lru_cache(_probability_rule)
_cached_logit_rule = lru_cache(_logit_rule)


def _probability_threshold(logp_t: Tensor, delta: float) -> Tensor:
    # log p_i < log(p_t − δ); nothing is discarded if p_t ≤ δ
    return (logp_t.exp() - (delta + _ulps(logp_t))).clamp(min=0).log()


def _probability_floor(inverse: Tensor, delta: float) -> Tensor:
    # (p_t − δ) / p_t; from a tensor, since torch.sub takes twice as long from a number
    return torch.sub(_ONE[inverse.dtype], inverse, alpha=delta + _ULPS[inverse.dtype])


@lru_cache
def _probability_bounds(delta: float) -> tuple[float, float]:
    # p_t ≤ δ: nothing is discarded. p_t − (1 − p_t) > δ: won
    return math.log(max(delta, _TINY)), math.log((1 + delta) / 2 + _SLACK)


def _logit_threshold(logp_t: Tensor, margin: float) -> Tensor:
    return logp_t - (margin + _ulps(logp_t) * (1 + margin - logp_t))


def _logit_floor(inverse: Tensor, margin: float) -> Tensor:
    return torch.full_like(inverse, _least_logit_ratio(margin, inverse.dtype))


@lru_cache
def _least_logit_ratio(margin: float, dtype: torch.dtype) -> float:
    return math.exp(-margin - _ULPS[dtype] * (1 + margin))


@lru_cache
def _logit_bounds(margin: float) -> tuple[float, float]:
    # log p_t − log(1 − p_t) > margin: won
    return -math.inf, _SLACK * (1 + margin) - math.log1p(math.exp(-margin))


def _ulps(x: Tensor) -> float:
    return _ULPS[x.dtype]


def _keep_all(logp_t: Tensor) -> Tensor:
    return torch.full_like(logp_t, -torch.inf)


def _no_floor(inverse: Tensor) -> Tensor:
    return torch.zeros_like(inverse)


def _always_plain() -> tuple[float, float]:
    return math.inf, math.inf


SOFTMAX_RULE = MarginRule(_keep_all, _no_floor, _always_plain)


def make_rule(family: str, number: float, concede: float) -> MarginRule:
    """The rule of a `family`, with a δ or a margin, and κ."""
    makers = {"probability": probability_rule, "logit": logit_rule}
    rule = makers[family](number) if family in makers else SOFTMAX_RULE
    return rule._replace(concede=concede)
