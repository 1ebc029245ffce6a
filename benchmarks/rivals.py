"""Rivals of the frontier benchmark: scorecards that leave samples out by other rules, for plain softmax.

Small versions of our own, from the papers' descriptions, in the same loop and under the same budget. Each
has a method ``share_done``, which the benchmark sets: how much of the budget is spent.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from sparring.backward.skipper import ForwardResult
from sparring.losses.rows import RowLosses
from sparring.training import CHECK, REST, TRAIN, Scorecard


class RivalCard(Scorecard):
    """A scorecard that chooses samples by their losses.

    Samples that it checks have a forward pass without gradients, and do not train whatever comes out.
    """

    _state: tuple[str, ...] = ("score", "chosen")

    def __init__(self, n_samples: int, seed: int = 0) -> None:
        super().__init__(n_samples)
        self.seed = seed
        self.share_done: Callable[[], float] = lambda: 0.0
        self.score = torch.full((n_samples,), torch.inf)  # the last loss
        self.chosen = torch.full((n_samples,), TRAIN)  # the states of this epoch

    def begin(self, epoch: int) -> None:
        super().begin(epoch)
        generator = torch.Generator().manual_seed(7919 * self.seed + epoch)
        self.chosen = self.choose(torch.rand(self.n_samples, generator=generator))

    def choose(self, draw: Tensor) -> Tensor:
        """TRAIN, CHECK or REST for each sample; ``draw`` holds a random number for each."""
        raise NotImplementedError

    def states(self) -> Tensor:
        return self.chosen

    def weigh(self, index: Tensor, rows: RowLosses) -> RowLosses:
        index = index.cpu()
        self.observe(index, rows.value.detach().reshape(len(index), -1).mean(1).float().cpu())
        if not torch.is_grad_enabled():  # a check
            return rows._replace(active=torch.zeros_like(rows.active))
        return rows

    def observe(self, index: Tensor, loss: Tensor) -> None:
        """Take the losses of samples."""
        self.score[index] = loss

    def note(
        self, index: Tensor, result: ForwardResult, delta: float = 0.0, ignore_index: int = -100
    ) -> None:
        """`weigh` has taken the losses."""

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {name: getattr(self, name).clone() for name in self._state}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        for name in self._state:
            setattr(self, name, state[name].clone())


class RandomSubset(RivalCard):
    """RS2 (Okanovic et al., 2023): a fresh random share of the samples in each epoch.

    >>> card = RandomSubset(1000, ratio=0.3)
    >>> card.begin(0)
    >>> 250 < card.counts()["train"] < 350
    True
    """

    def __init__(self, n_samples: int, seed: int = 0, ratio: float = 0.3) -> None:
        super().__init__(n_samples, seed)
        self.ratio = ratio

    def choose(self, draw: Tensor) -> Tensor:
        return torch.where(draw < self.ratio, TRAIN, REST)


class InfoBatch(RivalCard):
    """InfoBatch (Qin et al., ICLR 2024).

    A sample whose last loss lies below the mean rests with probability ``ratio``. Such a sample that does not
    rest counts 1 / (1 − ratio) times, so the expected gradient stays. In the last eighth no sample rests.

    >>> card = InfoBatch(1000)
    >>> card.observe(torch.arange(1000), torch.arange(1000.0))
    >>> card.begin(3)
    >>> 200 < card.counts()["rest"] < 300
    True
    """

    _state = ("score", "chosen", "scale")

    def __init__(self, n_samples: int, seed: int = 0, ratio: float = 0.5) -> None:
        super().__init__(n_samples, seed)
        self.ratio = ratio
        self.scale = torch.ones(n_samples)

    def choose(self, draw: Tensor) -> Tensor:
        finite = self.score.isfinite()
        easy = self.score < self.score[finite].mean() if finite.any() else torch.zeros_like(finite)
        easy &= torch.tensor(self.share_done() < 7 / 8)
        resting = easy & (draw < self.ratio)
        self.scale = torch.where(easy & ~resting, 1 / (1 - self.ratio), 1.0)
        return torch.where(resting, REST, TRAIN)

    def weigh(self, index: Tensor, rows: RowLosses) -> RowLosses:
        rows = super().weigh(index, rows)
        scale = self.scale[index.cpu()].repeat_interleave(len(rows.value) // len(index)).to(rows.value)
        return rows._replace(value=rows.value * scale)


class Kakurenbo(RivalCard):
    """KAKURENBO (Nguyen et al., NeurIPS 2023).

    In each epoch the share ``ratio`` of the samples with the lowest loss is hidden, unless the network is
    wrong about a sample or its confidence is below ``confidence``. The ratio falls in steps over the
    training. Hidden samples have a forward pass, which updates their loss. The learning rate grows by
    1 / (1 − hidden share): the benchmark reads ``factor``.

    >>> card = Kakurenbo(10, ratio=0.3)
    >>> card.observe(torch.arange(10), torch.tensor([0.1] * 5 + [2.0] * 5))
    >>> card.begin(1)
    >>> card.counts()
    {'train': 7, 'check': 3, 'rest': 0}
    """

    def __init__(self, n_samples: int, seed: int = 0, ratio: float = 0.3, confidence: float = 0.7) -> None:
        super().__init__(n_samples, seed)
        self.ratio = ratio
        self.confidence = confidence

    @property
    def factor(self) -> float:
        """Of the learning rate in this epoch."""
        return 1 / (1 - float((self.chosen == CHECK).float().mean()))

    def choose(self, draw: Tensor) -> Tensor:
        done = self.share_done()
        ratio = self.ratio * (1.0 if done < 0.3 else 0.8 if done < 0.6 else 0.6 if done < 0.8 else 0.4)
        lowest = self.score.argsort()[: int(ratio * self.n_samples)]
        # of one row, p = exp(-loss): above 0.5 the network is right, above `confidence` it is sure
        hidden = lowest[(-self.score[lowest]).exp() >= self.confidence]
        states = torch.full((self.n_samples,), TRAIN)
        states[hidden] = CHECK
        return states


class EarlyStopping(RivalCard):
    """IES (Yuan et al., ICLR 2025): a sample stops when the second difference of its loss is small.

    A stopped sample has a forward pass in each epoch, and trains again when its loss moves.

    >>> card = EarlyStopping(2)
    >>> for loss in ([0.9, 2.0], [0.0002, 1.0], [0.0001, 0.2]):
    ...     card.observe(torch.arange(2), torch.tensor(loss))
    >>> card.begin(3); card.counts()["check"]
    0
    >>> card.observe(torch.arange(2), torch.tensor([0.0001, 0.1]))
    >>> card.begin(4); card.counts()["check"]
    1
    """

    _state = ("score", "chosen", "losses")

    def __init__(self, n_samples: int, seed: int = 0, threshold: float = 1e-3) -> None:
        super().__init__(n_samples, seed)
        self.threshold = threshold
        self.losses = torch.full((3, n_samples), torch.inf)  # the last three

    def observe(self, index: Tensor, loss: Tensor) -> None:
        self.losses[:, index] = torch.cat([self.losses[1:, index], loss[None]])

    def choose(self, draw: Tensor) -> Tensor:
        first, second, third = self.losses
        stopped = (third - 2 * second + first).abs() < self.threshold
        return torch.where(stopped, CHECK, TRAIN)


RIVALS = {
    "RS2": RandomSubset,
    "InfoBatch": InfoBatch,
    "KAKURENBO": Kakurenbo,
    "IES": EarlyStopping,
}
