"""The sampler drawn from a scorecard, and samples that know their index."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils.data import Dataset, Sampler

from sparring.losses.checks import check_count
from sparring.training.scorecard import CHECK, FIGHT, Scorecard

INDEX = "index"
CHECKED = 4  # times as many samples in a batch that needs no gradients
POOL = 50  # batches whose samples are sorted by length together


class Indexed(Dataset[Any]):
    """A data set whose samples carry their index: a last element of a tuple, or ``"index"`` in a dict.

    >>> Indexed([("a", 0), ("b", 1)])[1], Indexed([{"text": "a"}])[0]
    (('b', 1, 1), {'text': 'a', 'index': 0})
    """

    def __init__(self, dataset: Any) -> None:
        if not (hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")):
            raise ValueError(
                f"samples need an index, so the data set must have a length and items; {type(dataset).__name__} has not"
            )
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> Any:
        sample = self.dataset[index]
        if isinstance(sample, Mapping):
            return {**sample, INDEX: index}
        return (*sample, index) if isinstance(sample, (tuple, list)) else (sample, index)


class RevisitSampler(Sampler[list[int]]):
    """Batches of the samples that do not rest, for ``DataLoader(Indexed(dataset), batch_sampler=RevisitSampler(…))``.

    Each epoch is planned when it begins, from the scorecard and the seed alone: all processes make the same plan and take their
    part of it, and with workers the order is the same as without. A batch holds either fighters or samples to be
    checked (``kind``; four times as many of these, since no gradients are kept). With ``lengths`` samples of similar length go together.

    Progress counts those who rest as consumed (``progress``), so a learning-rate schedule made for ``n_planned`` batches an epoch
    ends where it should.

    >>> card = Scorecard(10, max_rest=1, earn=1)
    >>> sampler = RevisitSampler(card, batch_size=4)
    >>> sorted(len(batch) for batch in sampler)
    [2, 4, 4]
    >>> card.update(torch.arange(6), won=torch.ones(6, dtype=torch.bool), margin=torch.ones(6))
    >>> sorted(index for batch in sampler for index in batch), sampler.epoch, sampler.progress(0), sampler.n_planned
    ([6, 7, 8, 9], 1, 6, 3)
    """

    def __init__(
        self,
        scorecard: Scorecard,
        batch_size: int,
        *,
        lengths: Sequence[int] | Tensor | None = None,
        shuffle: bool = True,
        seed: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
    ) -> None:
        here = dist.is_available() and dist.is_initialized()
        self.scorecard, self.shuffle, self.seed = scorecard, shuffle, seed
        self.batch_size = check_count("batch_size", batch_size)
        self.rank = rank if rank is not None else dist.get_rank() if here else 0
        self.world_size = world_size if world_size is not None else dist.get_world_size() if here else 1
        self.lengths = None if lengths is None else torch.as_tensor(lengths)
        if self.lengths is not None and self.lengths.shape != (scorecard.n_samples,):
            raise ValueError(
                f"lengths has shape {tuple(self.lengths.shape)}, expected one number for each of {scorecard.n_samples} samples"
            )
        if not 0 <= self.rank < self.world_size:
            raise ValueError(f"rank must lie in [0, {self.world_size}), got {self.rank}")
        self.epoch = -1
        self.position = 0  # batches given out in this epoch
        self._plan: list[tuple[int, list[int]]] = []

    @property
    def n_planned(self) -> int:
        """Batches an epoch has when nobody rests."""
        return -(-self.scorecard.n_samples // (self.batch_size * self.world_size))

    def set_epoch(self, epoch: int) -> None:
        """Plan an epoch. Iterating does so by itself: the next one after each that was finished."""
        self.epoch, self.position = epoch, 0
        self.scorecard.begin(epoch)
        states = self.scorecard.states()
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + epoch)
        fight, check = ((states == kind).nonzero().squeeze(1) for kind in (FIGHT, CHECK))
        batches = [(FIGHT, batch) for batch in self._batches(fight, self.batch_size, generator)]
        batches += [(CHECK, batch) for batch in self._batches(check, CHECKED * self.batch_size, generator)]
        order = (
            torch.randperm(len(batches), generator=generator).tolist()
            if self.shuffle
            else range(len(batches))
        )
        self._plan = [(batches[i][0], self._part(batches[i][1])) for i in order]

    def _batches(self, samples: Tensor, size: int, generator: torch.Generator) -> list[Tensor]:
        """For all processes together."""
        if self.shuffle:
            samples = samples[torch.randperm(len(samples), generator=generator)]
        size *= self.world_size
        if self.lengths is not None:
            pools = samples.split(size * POOL)
            samples = torch.cat(
                [pool[self.lengths[pool].argsort(descending=True, stable=True)] for pool in pools]
            )
        batches = list(samples.split(size)) if len(samples) else []
        if (
            len(batches) > 1 and len(batches[-1]) <= self.world_size
        ):  # one sample a process: BatchNorm could do nothing with it
            batches[-2:] = [torch.cat(batches[-2:])]
        return batches

    def _part(self, batch: Tensor) -> list[int]:
        """This process's; filled up from the front so that nobody goes without."""
        short = -len(batch) % self.world_size
        return torch.cat([batch, *[batch] * short])[: len(batch) + short][
            self.rank :: self.world_size
        ].tolist()

    def kind(self, position: int) -> int:
        """FIGHT or CHECK: what the batch at this position of the epoch is for."""
        return self._plan[position][0]

    def progress(self, position: int) -> int:
        """Planned batches consumed since training began once the batch at this position is done, rested samples included."""
        return self.epoch * self.n_planned + round((position + 1) / len(self) * self.n_planned)

    def __iter__(self) -> Iterator[list[int]]:
        if self.position == len(self._plan):
            self.set_epoch(self.epoch + 1)
        while self.position < len(self._plan):
            self.position += 1
            yield self._plan[self.position - 1][1]

    def __len__(self) -> int:
        """Batches in this epoch."""
        return len(self._plan) if self.epoch >= 0 else self.n_planned

    def state_dict(self, position: int | None = None) -> dict[str, Any]:
        """Give ``position``, the batches trained on in this epoch, where workers fetch ahead."""
        return {
            "epoch": self.epoch,
            "position": self.position if position is None else position,
            "plan": list(self._plan),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.epoch, self.position = state["epoch"], state["position"]
        self._plan = [(kind, list(batch)) for kind, batch in state["plan"]]
