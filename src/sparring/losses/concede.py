"""κ, which concedes rows: losses take a number, None, or a schedule with a warm-up.

A row whose strongest opponent is ahead by more than κ, max p_i − p_t > κ, has loss and gradient exactly 0.
"""

from __future__ import annotations

from sparring.losses.checks import check_range
from sparring.losses.delta import DeltaSchedule, WarmupDelta

__all__ = ["WarmupConcede"]

DEFAULT_CONCEDE = 0.5  # κ; 0.7 was not better on the noisy dev set of `docs/results/labels`
CONCEDE_WARMUP = 0.2  # share of training in which nothing is conceded


def check_concede(concede: float | DeltaSchedule | None) -> float | DeltaSchedule | None:
    if concede is None or isinstance(concede, DeltaSchedule):
        return concede
    return check_range("concede", concede, 0, 1, note="1 or None concedes nothing")


def concede_value(concede: float | DeltaSchedule | None) -> float:
    """Return the current κ: the value of a schedule, the number itself, or 1, which concedes nothing."""
    concede = check_concede(concede)
    if isinstance(concede, DeltaSchedule):
        return concede.value
    return 1.0 if concede is None else concede


class WarmupConcede(WarmupDelta):
    """κ for ``concede=``: 1, which concedes nothing, for the first `share` of training, then `concede`.

    An untrained classifier is behind on many rows that it will learn. The training loop, `SparringTrainer`
    and `SparringModule` turn ``concede=0.5`` into this schedule, since they know the length of training. In
    other loops, also under a `SparringCallback`, a number concedes from the first step on.

    Args:
        concede: κ in [0, 1] after the warm-up: rows with max p_i − p_t > κ are conceded.
        total_steps: The number of optimizer steps of the whole training.
        share: The part of them in which nothing is conceded, in [0, 1].

    >>> concede = WarmupConcede(0.5, total_steps=4, share=0.5)
    >>> [concede.value] + [concede.step() for _ in range(3)]
    [1.0, 1.0, 0.5, 0.5]
    """

    def __init__(
        self,
        concede: float | DeltaSchedule = DEFAULT_CONCEDE,
        *,
        total_steps: int,
        share: float = CONCEDE_WARMUP,
    ) -> None:
        if not isinstance(concede, DeltaSchedule):
            check_range("concede", concede, 0, 1, note="1 concedes nothing")
        super().__init__(concede, total_steps=total_steps, share=share)


def with_warmup(
    concede: float | DeltaSchedule | None, total_steps: int, share: float = CONCEDE_WARMUP
) -> float | DeltaSchedule | None:
    """Return a κ with the warm-up of `WarmupConcede`. A schedule, and a κ that concedes nothing, stay."""
    if concede is None or isinstance(concede, DeltaSchedule) or concede == 1:
        return concede
    return WarmupConcede(concede, total_steps=total_steps, share=share)
