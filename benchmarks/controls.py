"""Controls of the speed benchmark: scorecards that leave samples out by other rules, for plain softmax."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from sparring.backward.skipper import ForwardResult
from sparring.losses.rows import RowLosses
from sparring.training import REST, TRAIN, Scorecard


class RandomCard(Scorecard):
    """``sizes[epoch]`` samples in each epoch, drawn at random.

    >>> card = RandomCard(6, sizes=[6, 2], seed=0)
    >>> for epoch in range(2):
    ...     card.begin(epoch)
    ...     print(card.counts())
    {'train': 6, 'check': 0, 'rest': 0}
    {'train': 2, 'check': 0, 'rest': 4}
    """

    def __init__(self, n_samples: int, sizes: Sequence[int], seed: int) -> None:
        super().__init__(n_samples)
        self.sizes, self.seed = list(sizes), seed

    def states(self) -> Tensor:
        generator = torch.Generator().manual_seed(7919 * self.seed + self.epoch)
        states = torch.full((self.n_samples,), REST)
        states[torch.randperm(self.n_samples, generator=generator)[: self.sizes[self.epoch]]] = TRAIN
        return states

    def note(
        self, index: Tensor, result: ForwardResult, delta: float = 0.0, ignore_index: int = -100
    ) -> None:
        """Results do not matter."""


class InfoBatchCard(Scorecard):
    """The rule of InfoBatch (Qin et al., ICLR 2024), in a small version.

    A sample whose last loss lies below the mean rests with probability ``ratio``. Such a sample that does not
    rest counts 1 / (1 − ratio) times, so the expected gradient stays. In the last eighth of the epochs no
    sample rests.

    >>> card = InfoBatchCard(1000, n_epochs=8, seed=0)
    >>> card.score[:500] = 0.1
    >>> card.score[500:] = 1.0
    >>> card.begin(3)
    >>> 200 < card.counts()["rest"] < 300
    True
    >>> card.begin(7)
    >>> card.counts()["rest"]
    0
    """

    def __init__(self, n_samples: int, n_epochs: int, seed: int, ratio: float = 0.5) -> None:
        super().__init__(n_samples)
        self.n_epochs, self.seed, self.ratio = n_epochs, seed, ratio
        self.score = torch.ones(n_samples)  # the last loss

    def begin(self, epoch: int) -> None:
        super().begin(epoch)
        generator = torch.Generator().manual_seed(7919 * self.seed + epoch)
        last = epoch >= self.n_epochs * 7 / 8
        easy = self.score < self.score.mean()
        self.resting = easy & (torch.rand(self.n_samples, generator=generator) < self.ratio) & (not last)
        self.scale = torch.where(easy & ~self.resting & (not last), 1 / (1 - self.ratio), 1.0)

    def states(self) -> Tensor:
        return torch.where(self.resting, REST, TRAIN)

    def weigh(self, index: Tensor, rows: RowLosses) -> RowLosses:
        index = index.cpu()
        self.score[index] = rows.value.detach().reshape(len(index), -1).mean(1).cpu()
        scale = self.scale[index].repeat_interleave(len(rows.value) // len(index)).to(rows.value)
        return rows._replace(value=rows.value * scale)

    def note(
        self, index: Tensor, result: ForwardResult, delta: float = 0.0, ignore_index: int = -100
    ) -> None:
        """`weigh` has taken the losses."""

    def state_dict(self) -> dict[str, Any]:
        return {
            **super().state_dict(),
            "score": self.score.clone(),
            "resting": self.resting.clone(),
            "scale": self.scale.clone(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        for name in ("score", "resting", "scale"):
            setattr(self, name, state[name].clone())
