"""How much a loop saves, in one word. What a user sets besides goes on top of it.

    off      every sample forwarded and backwarded in every epoch
    skip     no backward for what is won: exact, the weights of "off" to rounding
    all      besides, who wins sits out an epoch, or two if clearly and again, and is then looked at without gradients; and δ gives way
             while little is won

``docs/results/speed`` has what each of them costs and keeps.
"""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

from torch import nn

from sparring.backward.skipper import has_batch_norm
from sparring.losses import Loss, MultilabelASSoftmaxLoss
from sparring.losses.delta import AdaptiveDelta, DeltaSchedule
from sparring.training.scorecard import Scorecard


class Speed(NamedTuple):
    """A preset."""

    skip: str  # see skip.Skipper
    rest: bool = False  # see Scorecard
    narrow: int = 0  # likewise
    check: bool = False  # where the model allows it: BatchNorm does not
    adapt: bool = False  # AdaptiveDelta.below the loss's own δ

    def card(
        self,
        n_samples: int,
        model: nn.Module,
        *,
        rest: bool | None = None,
        check: bool | None = None,
        max_rest: int | None = None,
    ) -> Scorecard | None:
        """The preset's scorecard, with what is given on top of it; None where nobody rests or is checked."""
        rest = self.rest if rest is None else rest
        check = self.check and not has_batch_norm(model) if check is None else check
        if max_rest is not None and not rest:
            raise ValueError(f'max_rest={max_rest}, but nobody rests; use rest=True or speed="all"')
        if not rest and not check:
            return None
        settings: dict[str, Any] = {} if rest and max_rest is None else {"max_rest": max_rest or 0}
        return Scorecard(n_samples, check=check, narrow=self.narrow, **settings)

    def adapted(self, loss: Loss) -> Loss:
        """The loss itself; where the preset lets δ adapt, a copy that does. A schedule of the user's own stays, and so does the δ of
        multi-label losses: giving way cost several points there."""
        delta = getattr(loss, "delta", None)
        if (
            not self.adapt
            or delta is None
            or isinstance(delta, DeltaSchedule)
            or isinstance(loss, MultilabelASSoftmaxLoss)
        ):
            return loss
        made = copy.deepcopy(loss)
        made.delta = AdaptiveDelta.below(delta)
        return made


SPEEDS = {
    "off": Speed("off"),
    "skip": Speed("rows"),
    "all": Speed("rows", rest=True, narrow=1, check=True, adapt=True),
}


def find_speed(name: str) -> Speed:
    """
    >>> find_speed("all")
    Speed(skip='rows', rest=True, narrow=1, check=True, adapt=True)
    """
    if name not in SPEEDS:
        raise ValueError(f"speed must be one of {', '.join(SPEEDS)}; got {name!r}")
    return SPEEDS[name]
