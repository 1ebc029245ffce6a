"""Sampling and loading: the batches of an epoch, drawn from a scorecard."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler, default_collate

from sparring.losses.checks import check_count
from sparring.training.batches import Batch
from sparring.training.resting.scorecard import CHECK, TRAIN, Scorecard

INDEX = "index"
CHECK_FACTOR = 4  # a batch to check is this many times as large: no activations are kept for a backward pass
POOL = 50  # batches whose samples are sorted by length together


class Indexed(Dataset[Any]):
    """A data set whose samples carry their index: as last element of a tuple, or as ``"index"`` of a dict.

    >>> Indexed([("a", 0), ("b", 1)])[1], Indexed([{"text": "a"}])[0]
    (('b', 1, 1), {'text': 'a', 'index': 0})
    """

    def __init__(self, dataset: Any) -> None:
        if not (hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")):
            raise TypeError(
                f"the data set must have a length and items, so that samples have an index; got"
                f" {type(dataset).__name__}"
            )
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> Any:
        sample = self.dataset[index]
        if isinstance(sample, Mapping):
            return {**sample, INDEX: index}
        return (*sample, index) if isinstance(sample, (tuple, list)) else (sample, index)


class _Pairs(Indexed):
    """Pairs of a sample and its index."""

    def __getitem__(self, index: int) -> tuple[Any, int]:
        return self.dataset[index], index


class _PairCollate:
    """Collate the samples of pairs with any collate function, and keep the indices apart."""

    def __init__(self, collate: Callable[[list[Any]], Any] | None) -> None:
        self.collate = collate or default_collate

    def __call__(self, pairs: list[tuple[Any, int]]) -> tuple[Any, Tensor]:
        samples, indices = zip(*pairs, strict=True)
        return self.collate(list(samples)), torch.tensor(indices)


class RevisitSampler(Sampler[list[int]]):
    """Batches of the samples that do not rest, for ``DataLoader(Indexed(dataset), batch_sampler=sampler)``.

    Each epoch is planned when it begins, from the scorecard and the seed alone. All processes make the same
    plan and each takes its part of it. A batch holds either samples to train on or samples to check (see
    ``kind``).

    Args:
        scorecard: Which samples train, are checked or rest.
        batch_size: Samples of a batch on each process. A batch to check has four times as many.
        lengths: Lengths of the samples. Samples of similar length are batched together.
        shuffle: Whether to shuffle the samples and the batches.
        seed: Seed of the plans.
        rank, world_size: Of this process; by default those of ``torch.distributed``.

    Example:
        >>> card = Scorecard(10, max_rest=1, earn=1)
        >>> sampler = RevisitSampler(card, batch_size=4)
        >>> sorted(len(batch) for batch in sampler)
        [2, 4, 4]
        >>> card.update(torch.arange(6), won=torch.ones(6, dtype=torch.bool), margin=torch.ones(6))
        >>> sorted(index for batch in sampler for index in batch), sampler.epoch, sampler.n_planned
        ([6, 7, 8, 9], 1, 3)
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
        distributed = dist.is_available() and dist.is_initialized()
        if rank is None:
            rank = dist.get_rank() if distributed else 0
        if world_size is None:
            world_size = dist.get_world_size() if distributed else 1
        if not 0 <= rank < world_size:
            raise ValueError(f"rank must lie in [0, {world_size}), got {rank}")
        self.scorecard = scorecard
        self.batch_size = check_count("batch_size", batch_size)
        self.shuffle = shuffle
        self.seed = seed
        self.rank = rank
        self.world_size = world_size
        self.all_train = True  # whether no sample rests or is checked in this epoch
        self.lengths = None if lengths is None else torch.as_tensor(lengths)
        if self.lengths is not None and self.lengths.shape != (scorecard.n_samples,):
            raise ValueError(
                f"lengths has shape {tuple(self.lengths.shape)}, expected one number for each of"
                f" {scorecard.n_samples} samples"
            )
        self.epoch = -1
        self.position = 0  # batches that were yielded in this epoch
        self._plan: list[tuple[int, list[int]]] = []  # kind and indices of each batch

    @property
    def n_planned(self) -> int:
        """Batches of an epoch in which no sample rests."""
        return -(-self.scorecard.n_samples // (self.batch_size * self.world_size))

    def set_epoch(self, epoch: int) -> None:
        """Plan an epoch. Iterating plans the next epoch after a finished one by itself."""
        self.epoch = epoch
        self.position = 0
        self.scorecard.begin(epoch)
        states = self.scorecard.states()
        self.all_train = bool((states == TRAIN).all())
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + epoch)
        batches: list[tuple[int, Tensor]] = []
        for kind, size in ((TRAIN, self.batch_size), (CHECK, CHECK_FACTOR * self.batch_size)):
            samples = (states == kind).nonzero().squeeze(1)
            batches += [(kind, batch) for batch in self._batches(samples, size * self.world_size, generator)]
        order = list(range(len(batches)))
        if self.shuffle:
            order = torch.randperm(len(batches), generator=generator).tolist()
        self._plan = [(batches[i][0], self._part(batches[i][1])) for i in order]

    def _batches(self, samples: Tensor, size: int, generator: torch.Generator) -> list[Tensor]:
        """Batches of all processes together."""
        if self.shuffle:
            samples = samples[torch.randperm(len(samples), generator=generator)]
        if self.lengths is not None:
            pools = samples.split(size * POOL)
            by_length = [self.lengths[pool].argsort(descending=True, stable=True) for pool in pools]
            samples = torch.cat([pool[order] for pool, order in zip(pools, by_length, strict=True)])
        batches = list(samples.split(size)) if len(samples) else []
        if len(batches) > 1 and len(batches[-1]) <= self.world_size:
            batches[-2:] = [torch.cat(batches[-2:])]  # BatchNorm cannot train on one sample for a process
        return batches

    def _part(self, batch: Tensor) -> list[int]:
        """The samples of this process; the first samples fill up a batch that cannot be divided."""
        n_missing = -len(batch) % self.world_size
        filled = torch.cat([batch, *[batch] * n_missing])[: len(batch) + n_missing]
        return filled[self.rank :: self.world_size].tolist()

    def kind(self, position: int) -> int:
        """TRAIN or CHECK, for the batch at this position of the epoch."""
        return self._plan[position][0]

    def progress(self, position: int) -> int:
        """Planned batches since training began, once the batch at this position is done, rest included."""
        return self.epoch * self.n_planned + self.n_consumed(position + 1)

    def n_consumed(self, n_batches: int) -> int:
        """Planned batches of this epoch, once its first ``n_batches`` are done."""
        return round(n_batches / max(len(self), 1) * self.n_planned)

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
        """The plan. Pass ``position``, the batches trained on in this epoch, where workers fetch ahead."""
        position = self.position if position is None else position
        plan = {"plan": list(self._plan), "all_train": self.all_train}
        return {"epoch": self.epoch, "position": position, **plan}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.epoch = self.scorecard.epoch = state["epoch"]
        self.position = state["position"]
        self.all_train = state["all_train"]
        self._plan = [(kind, list(batch)) for kind, batch in state["plan"]]


@dataclass
class RestingLoader:
    """Loads the samples of an epoch that do not rest, as `Batch` objects.

    Its length is that of an epoch in which no sample rests, so that a trainer's count of steps holds:
    ``Batch.n_done`` says how much of the epoch is consumed. An epoch in which all samples rest is one batch
    without data. The driver adds to ``position`` after each batch that it has trained on.
    """

    dataset: Any
    scorecard: Scorecard
    batch_size: int
    collate: Callable[[list[Any]], Any] | None = None
    lengths: Sequence[int] | None = None
    shuffle: bool = True
    seed: int = 0
    loading: dict[str, Any] = field(default_factory=dict)  # further arguments of the DataLoader

    def __post_init__(self) -> None:
        self.samples = _Pairs(self.dataset)
        self.sampler = RevisitSampler(
            self.scorecard, self.batch_size, lengths=self.lengths, shuffle=self.shuffle, seed=self.seed
        )
        self.pair_collate = _PairCollate(self.collate)
        self.position = 0  # batches of this epoch that were trained on

    def __len__(self) -> int:
        return self.sampler.n_planned

    @property
    def finished(self) -> bool:
        """Whether nothing is left of this epoch, or none has begun."""
        return self.sampler.epoch < 0 or self.position >= max(len(self.sampler), 1)

    @property
    def n_done(self) -> int:
        """Planned batches of this epoch that are consumed."""
        return self.sampler.n_consumed(self.position)

    def set_epoch(self, epoch: int) -> None:
        """Plan an epoch, unless a checkpoint has restored it."""
        if self.sampler.epoch != epoch:
            self.sampler.set_epoch(epoch)
            self.position = 0

    def skip_rest_of_epoch(self) -> None:
        """End this epoch before its last batch."""
        self.position = max(len(self.sampler), 1)

    def fetch(self, indices: Sequence[int]) -> Batch:
        """Load the samples with these indices."""
        return Batch(*self.pair_collate([self.samples[index] for index in indices]))

    def __iter__(self) -> Iterator[Batch]:
        sampler = self.sampler
        if self.finished:
            self.set_epoch(sampler.epoch + 1)
        n_batches = len(sampler)
        if n_batches == 0:
            yield Batch(None, torch.empty(0, dtype=torch.long), n_done=len(self), last=True)
            return
        sampler.position = self.position
        generator = torch.Generator().manual_seed(self.seed + sampler.epoch)  # of the workers' seeds
        settings = {"collate_fn": self.pair_collate, "generator": generator, **self.loading}
        loader = DataLoader(self.samples, batch_sampler=sampler, **settings)
        for position, (data, indices) in enumerate(loader, self.position):
            n_done = sampler.n_consumed(position + 1)
            is_check = sampler.kind(position) == CHECK
            yield Batch(data, indices, is_check, n_done, last=position + 1 == n_batches)

    def state_dict(self) -> dict[str, Any]:
        return self.sampler.state_dict(self.position)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.sampler.load_state_dict(state)
        self.position = self.sampler.position
