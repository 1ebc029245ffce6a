"""Epochs of the samples that do not rest, for trainers that have a loop of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.utils.data import DataLoader

from sparring.integrations.corner import Part
from sparring.training import batches
from sparring.training.sampler import RevisitSampler
from sparring.training.scorecard import Scorecard


class Rounds:
    """A loader of parts, as long as an epoch in which nobody rests, so that the trainer's arithmetic of steps holds. Those who rest count
    as consumed: ``Part.done`` says how far the epoch is.

    An epoch in which everybody rests is one part without a batch.
    """

    def __init__(
        self,
        dataset: Any,
        card: Scorecard,
        batch_size: int,
        *,
        collate: Callable[[list[Any]], Any] | None = None,
        lengths: Sequence[int] | None = None,
        shuffle: bool = True,
        seed: int = 0,
        **loading: Any,
    ) -> None:
        self.dataset = dataset
        self.samples = batches.Paired(dataset)
        self.sampler = RevisitSampler(card, batch_size, lengths=lengths, shuffle=shuffle, seed=seed)
        self.collate, self.seed, self.loading = batches.Collate(collate), seed, loading
        self.position = 0  # of the batch that is to be trained on next

    def __len__(self) -> int:
        return self.sampler.n_planned

    @property
    def finished(self) -> bool:
        """Nothing is left of this epoch, or none has begun."""
        return self.sampler.epoch < 0 or self.position >= max(len(self.sampler), 1)

    @property
    def n_done(self) -> int:
        """Planned batches of this epoch that are consumed."""
        return self.position * len(self) // max(len(self.sampler), 1)

    def set_epoch(self, epoch: int) -> None:
        """Plan it, unless it is the one a checkpoint has left off in."""
        if self.sampler.epoch != epoch:
            self.sampler.set_epoch(epoch)
            self.position = 0

    def __iter__(self) -> Iterator[Part]:
        sampler = self.sampler
        if self.finished:
            self.set_epoch(sampler.epoch + 1)
        if not len(sampler):
            yield Part(None, torch.empty(0, dtype=torch.long), done=sampler.n_planned, last=True)
            return
        sampler.position = self.position
        generator = torch.Generator().manual_seed(
            self.seed + sampler.epoch
        )  # workers' seeds; leaves the global one alone
        loader = DataLoader(
            self.samples, batch_sampler=sampler, collate_fn=self.collate, generator=generator, **self.loading
        )
        n, planned = len(sampler), sampler.n_planned
        for position, (batch, index) in enumerate(loader, self.position):
            yield Part(batch, index, sampler.kind(position), (position + 1) * planned // n, position + 1 == n)

    def state_dict(self) -> dict[str, Any]:
        return self.sampler.state_dict(self.position)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.sampler.load_state_dict(state)
        self.position = self.sampler.position


class Slots:
    """The same epochs in as many items as an epoch has planned batches: lists of no, one or two parts. For trainers that count items."""

    def __init__(self, rounds: Rounds) -> None:
        self.rounds = rounds
        self.n_done = 0  # items trained on in this epoch

    def __len__(self) -> int:
        return len(self.rounds)

    def __iter__(self) -> Iterator[list[Part]]:
        n_given = self.n_done = self.n_done % len(self)
        held: list[Part] = []
        if n_given and self.rounds.finished:  # left off behind its last part
            yield from ([] for _ in range(n_given, len(self)))
            return
        for part in self.rounds:
            held.append(part)
            while n_given < part.done:
                yield held
                held, n_given = [], n_given + 1

    def trained(self, slot: list[Part]) -> None:
        """An item that was given is done with."""
        self.n_done += 1
        self.rounds.position += len(slot)

    def state_dict(self) -> dict[str, Any]:
        return {**self.rounds.state_dict(), "n_done": self.n_done}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.rounds.load_state_dict(state)
        self.n_done = state["n_done"]
