"""Resting samples in a training loop of one's own: `resting` takes the place of a DataLoader."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from sparring.backward.skipper import ForwardResult
from sparring.losses.delta import DeltaSchedule
from sparring.losses.rows import RowLosses
from sparring.training.resting.sampler import Indexed, RestingLoader
from sparring.training.resting.scorecard import DEFAULT_REST, Scorecard
from sparring.training.resting.weighted import WeightedScorecard

REFUSED = ("batch_sampler", "drop_last", "sampler")


def resting(
    dataset: Any,
    batch_size: int,
    *,
    max_rest: int = DEFAULT_REST,
    awake_from: int | None = None,
    scorecard: Scorecard | None = None,
    collate_fn: Callable[[list[Any]], Any] | None = None,
    lengths: Sequence[int] | None = None,
    shuffle: bool = True,
    seed: int = 0,
    **loading: Any,
) -> RestingData:
    """Load batches like a DataLoader, and leave out samples that were won: three lines of a training loop.

    A sample that is won rests in the next epoch; one that is won again rests two epochs, and so on up to
    ``max_rest``. A loss ends all rest. No sample rests in an epoch in which fewer than 5 % of all would, and
    rests become shorter where samples come back lost (`Scorecard`). A larger δ, such as 0.6, makes wins
    clearer and rests safer. Do not use it with BatchNorm, which would see hard samples alone.

    With ``torch.distributed`` each process loads its part of every batch, and all processes iterate together.

    Args:
        dataset: A map-style data set.
        batch_size: Samples of a batch on each process.
        max_rest: Most epochs of rest in a row; 0 is no rest.
        awake_from: The epoch, counted from 0, from which every sample trains. The last quarter is a good
            choice. None: no such epoch.
        scorecard: Another rule of rest, instead of ``max_rest``; without ``check``. With a
            `WeightedScorecard` samples of any loss rest, also of plain softmax; ``update`` needs margins
            then: ``loss.rows(logits, target, extras=("margin",))``.
        collate_fn: Makes a batch of a list of samples.
        lengths: Lengths of the samples. Samples of similar length are batched together.
        shuffle, seed: Of the samples and the batches.
        loading: Further arguments of the DataLoader, such as ``num_workers``.

    Returns:
        An iterable whose length is that of an epoch in which no sample rests.

    Raises:
        TypeError: The data set has no length or no items.
        ValueError: An argument that leaves out samples or orders them, or a scorecard that checks samples.

    Example:
        >>> import sparring
        >>> from torch import nn
        >>> from torch.utils.data import TensorDataset
        >>> _ = torch.manual_seed(0)
        >>> x = torch.randn(64, 4)
        >>> model, loss = nn.Linear(4, 2), sparring.ASSoftmaxLoss(delta=0.3)
        >>> optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
        >>> data = resting(TensorDataset(x, (x[:, 0] > 0).long()), batch_size=16)
        >>> scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1, 0, total_iters=5 * len(data))
        >>> for epoch in range(5):
        ...     for inputs, target in data:
        ...         data.update(loss.rows(model(inputs), target)).backward()
        ...         optimizer.step()
        ...         optimizer.zero_grad()
        ...         data.step(scheduler)  # as often as batches are planned: also for those that rest
        >>> data.n_samples < 5 * 64, scheduler.get_last_lr()
        (True, [0.0])
    """
    if names := [name for name in REFUSED if loading.get(name)]:
        raise ValueError(
            f"{', '.join(names)}: the scorecard decides which samples an epoch has, and in which order; use"
            " shuffle=, seed= or lengths="
        )
    n_samples = len(Indexed(dataset))
    scorecard = scorecard or Scorecard(n_samples, max_rest=max_rest, watch=True)
    if scorecard.check:
        raise ValueError("a scorecard with check=True needs forward passes in eval mode; use sparring.train")
    if scorecard.n_samples != n_samples:
        raise ValueError(f"the scorecard is for {scorecard.n_samples} samples, the data set has {n_samples}")
    if awake_from is not None:
        scorecard.awake_from = awake_from
    options = {name: value for name, value in loading.items() if name not in REFUSED}
    samples = (dataset, scorecard, batch_size, collate_fn, lengths)
    return RestingData(RestingLoader(*samples, shuffle=shuffle, seed=seed, loading=options))


class RestingData:
    """The batches of the samples that do not rest; see `resting`."""

    def __init__(self, loader: RestingLoader) -> None:
        self.loader = loader
        self.scorecard = loader.scorecard
        self.n_samples = 0  # samples that this process has loaded
        self._indices: Tensor | None = None  # of the batch that waits for its update
        self._n_done = 0  # planned batches since training began
        self._n_stepped = 0  # planned batches that schedules know of
        self._counts = [0, 0]  # valid and won rows since the last step
        self._continues = False  # the next iteration continues an epoch that a state has restored

    def __len__(self) -> int:
        """Batches of an epoch in which no sample rests."""
        return len(self.loader)

    @property
    def epoch(self) -> int:
        """The number of the epoch, counted from 0; -1 before the first one."""
        return self.loader.sampler.epoch

    def __iter__(self) -> Iterator[Any]:
        """The batches of the next epoch. A collective call."""
        loader = self.loader
        if not self._continues:
            self.scorecard.sync()
            if self.epoch >= 0:
                loader.skip_rest_of_epoch()  # where the loop was left early
            loader.set_epoch(self.epoch + 1)
        self._continues = False
        for batch in loader:
            self._n_done = self.epoch * len(self) + batch.n_done
            loader.position += 1
            if batch.data is None:
                continue
            self._indices = batch.indices
            self.n_samples += len(batch.indices)
            yield batch.data

    def update(self, rows: RowLosses) -> Tensor:
        """Note which samples of the last batch are won, and return the mean loss, for the backward pass.

        Args:
            rows: Of the last batch, from ``loss.rows``: one row for each sample, or several (tokens).

        Raises:
            RuntimeError: No batch is waiting.
            ValueError: The number of rows is no multiple of the number of samples, or margins are missing.
        """
        indices, self._indices = self._indices, None
        if indices is None:
            raise RuntimeError("update needs a batch: call it once for each batch of `for batch in data`")
        won = ForwardResult(rows.value, rows.value, rows, len(indices)).won_samples()
        margin = self._margin(rows, won)
        rows = self.scorecard.weigh(indices, rows)
        self.scorecard.update(indices, won, margin)
        counts = torch.stack([rows.valid.sum(), rows.won.sum()]).tolist()
        self._counts = [total + new for total, new in zip(self._counts, counts, strict=True)]
        return rows.mean()

    def _margin(self, rows: RowLosses, won: Tensor) -> Tensor:
        """(samples,) margins: the smallest of the rows of a sample."""
        if not isinstance(self.scorecard, WeightedScorecard):
            return torch.where(won, 1.0, torch.nan)  # a win is a win: the loss has decided with its δ
        if "margin" not in (rows.extras or {}):
            raise ValueError(
                "a WeightedScorecard needs margins:"
                ' data.update(loss.rows(logits, target, extras=("margin",))); with several labels per row,'
                " sparring.train has it, or use a loss that wins samples and the default scorecard"
            )
        assert rows.extras is not None
        row_margins = rows.extras["margin"].detach().masked_fill(~rows.valid, torch.inf)
        smallest = row_margins.view(len(won), -1).amin(1)
        return smallest.masked_fill(smallest.isinf(), torch.nan)

    @property
    def n_steps(self) -> int:
        """Planned batches since the last `step`: one, and more where samples rest."""
        return self._n_done - self._n_stepped

    def step(self, *schedules: Any) -> None:
        """Advance learning-rate schedules, and schedules of δ and κ, by planned batches.

        Args:
            schedules: Objects with a ``step``, such as a learning-rate scheduler or ``loss.delta``. Numbers
                are left alone, so ``loss.delta`` need not be a schedule.
        """
        n_steps, self._n_stepped = self.n_steps, self._n_done
        n_valid, n_won = self._counts
        self._counts = [0, 0]
        for schedule in schedules:
            arguments = [n_won / (n_valid or 1)] if isinstance(schedule, DeltaSchedule) else []
            for _ in range(n_steps if hasattr(schedule, "step") else 0):
                schedule.step(*arguments)

    def state_dict(self) -> dict[str, Any]:
        """The state of this process, for a checkpoint between two batches."""
        numbers = {"n_samples": self.n_samples, "n_done": self._n_done, "n_stepped": self._n_stepped}
        return {**numbers, "scorecard": self.scorecard.state_dict(), "loader": self.loader.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where the state was taken, also in the middle of an epoch."""
        self.scorecard.load_state_dict(state["scorecard"])
        self.loader.load_state_dict(state["loader"])
        self.n_samples, self._n_done, self._n_stepped = (
            state[name] for name in ("n_samples", "n_done", "n_stepped")
        )
        self._continues = not self.loader.finished
