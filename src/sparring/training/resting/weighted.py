"""Rest for the samples of any loss: a sample that comes back counts for the epochs that it rested."""

from __future__ import annotations

import torch
from torch import Tensor

from sparring.backward.skipper import ForwardResult
from sparring.losses.checks import check_range
from sparring.losses.rows import RowLosses
from sparring.training.resting.scorecard import NEVER, Scorecard

WEIGHTED_REST = 4  # epochs
# With fewer planned batches no sample rests, unless the head is fitted: such a training lacks updates, not
# time. A network from scratch lost a point in 500 batches (digits), and half a point in 1,500 (languages).
MIN_BATCHES = 1000
LEAST_LOOKS = 4  # a rest lasts at most this part of a training, so that no sample is seen only once or twice


class WeightedScorecard(Scorecard):
    """Lets samples rest whose gradient is small but not 0, as under plain softmax.

    The gradient of a row shrinks with its margin m = p_t − max_{i≠t} p_i: its size is at most √2 (1 − m).
    With several labels per row, or class probabilities as targets, m = exp(−loss) has the same bound (the
    margin between labels has not: it does not know the threshold that each of them has to pass). A sample
    with margin m trains in one of

        k = (1 − ``margin_from``) / (1 − m), at least 1 and at most ``max_rest`` + 1,

    epochs, and counts k times when it does. So every sample counts as often as without rest, once for each
    epoch, while samples with large gradients train most often. k is rounded up or down at random.

    A batch is as large as without rest, and all its samples have both passes. So a run costs what its number
    of samples says, for small networks too.

    Args:
        n_samples: Size of the data set.
        max_rest: Most epochs of rest in a row; 0 is no rest. By default four, but in a training of known
            length at most a quarter of its epochs, and none if it has fewer than 1,000 batches and its head
            is not fitted.
        margin_from: The margin from which samples rest.
        seed: Of the rounding.

    Example:
        >>> card = WeightedScorecard(3, max_rest=3, margin_from=0.6)
        >>> won = torch.zeros(3, dtype=torch.bool)
        >>> card.update(torch.arange(3), won, margin=torch.tensor([1.0, 0.8, 0.5]))
        >>> card.due.tolist()  # the epoch in which each of them trains again
        [4, 2, 1]
        >>> card.begin(4)
        >>> flags = torch.ones(3, dtype=torch.bool)
        >>> rows = card.weigh(torch.arange(3), RowLosses(torch.ones(3), valid=flags, active=flags))
        >>> rows.weight.tolist()
        [4.0, 4.0, 4.0]
    """

    rules = ("max_rest", "margin_from", "seed")
    reason = "have a large margin"

    def __init__(
        self,
        n_samples: int,
        *,
        max_rest: int | None = None,
        margin_from: float = 0.6,
        seed: int = 0,
    ) -> None:
        super().__init__(n_samples, max_rest=WEIGHTED_REST if max_rest is None else max_rest, watch=True)
        self.follows_length = max_rest is None
        self._length: tuple[float | None, float | None] = (None, None)  # of the training: epochs, batches
        self.margin_from = check_range(
            "margin_from", margin_from, -1, 1, note="margin from which samples rest"
        )
        self.seed = seed
        self._draws: tuple[int, Tensor] = (NEVER, torch.empty(0))  # an epoch and its random numbers

    @property
    def rest_limit(self) -> int:
        n_epochs, n_batches = self._length
        if not self.follows_length or n_epochs is None:
            return self.max_rest
        if n_batches is not None and n_batches < MIN_BATCHES and not self.head_is_fitted:
            return 0
        return min(self.max_rest, max(1, int(n_epochs // LEAST_LOOKS)))

    def plan_rests(self, n_epochs: float | None = None, n_batches: float | None = None) -> None:
        self._length = n_epochs, n_batches
        super().plan_rests(n_epochs, n_batches)

    def begin_with_fitted_head(self) -> None:
        super().begin_with_fitted_head()
        self.longest_rest = self.rest_limit

    def conclusion(self) -> list[str]:
        if self.max_rest and not self.rest_limit:
            return [
                f"no sample rested: with fewer than {MIN_BATCHES:,} batches, updates matter more than time"
            ]
        return super().conclusion()

    def note(
        self, index: Tensor, result: ForwardResult, delta: float = 0.0, ignore_index: int = -100
    ) -> None:
        if not self.rest_limit:  # nobody needs the margins
            return
        if result.has_target_per_class:
            margin = _margins_from_losses(result.rows).view(result.n_samples, -1).amin(1)
            self.update(index, result.won_samples(), margin.masked_fill(margin.isinf(), torch.nan), delta)
        else:
            super().note(index, result, delta, ignore_index)

    def shorten_rests(self) -> None:
        """Nothing: a sample that comes back counts for the epochs that it rested, however it comes back."""

    def rests(self, index: Tensor, won: Tensor, margin: Tensor, eased: Tensor) -> Tensor:
        epochs = ((1 - self.margin_from) / (1 - margin)).nan_to_num(nan=1.0).clamp(1, self.max_rest + 1)
        return (epochs + self._draw()[index]).floor().int() - 1

    def _draw(self) -> Tensor:
        """A random number for each sample, the same for all processes and after a checkpoint."""
        if self._draws[0] != self.epoch:
            generator = torch.Generator().manual_seed(self.seed * 1_000_003 + self.epoch)
            self._draws = self.epoch, torch.rand(self.n_samples, generator=generator)
        return self._draws[1]

    def weigh(self, index: Tensor, rows: RowLosses) -> RowLosses:
        """Weigh the rows of each sample by the epochs since it was last seen."""
        seen = self.seen[index.cpu()]
        weight = (self.epoch - seen).masked_fill(seen == NEVER, 1).clamp(min=1)
        if bool((weight == 1).all()):
            return rows
        row_weight = weight.repeat_interleave(len(rows.value) // len(weight)).to(rows.value)
        row_weight = torch.where(rows.valid, row_weight, 0)
        return rows._replace(weight=row_weight if rows.weight is None else rows.weight * row_weight)


def _margins_from_losses(rows: RowLosses) -> Tensor:
    """exp(−loss) of each row; infinite for an ignored row, 0 for a conceded one."""
    margin = (-rows.value.detach().float()).exp()
    if rows.conceded is not None:
        margin = margin.masked_fill(rows.conceded, 0)
    return margin.masked_fill(~rows.valid, torch.inf)
