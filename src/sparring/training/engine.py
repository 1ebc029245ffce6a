"""The engine: how the window of one optimizer step runs, for every trainer.

    train(batch) ... ─► close_window() ─► the trainer's optimizer steps ─► follow(n_steps)

The training loop, `SparringTrainer` and the Lightning module drive it. Gradients are summed over the
processes once a window, in ``close_window``, so each process can skip backward passes by itself.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, NamedTuple

import torch
from accelerate.utils import send_to_device
from torch import Tensor, nn

from sparring.backward.skipper import Counts, ForwardResult, Skipper, has_batch_norm
from sparring.heads.linear import LinearLoss
from sparring.heads.parallel.collectives import Collectives
from sparring.losses.delta import delta_value
from sparring.training.accumulation import ConstantAccumulation
from sparring.training.batches import Batch
from sparring.training.history import MarginHistory
from sparring.training.presets import RunParts
from sparring.training.progress import Budget, measure_forward_share, step_schedules
from sparring.training.record import Record
from sparring.training.resting.sampler import RestingLoader

logger = logging.getLogger(__name__)

# of batches, their results, and the sums of losses and of row weights over all processes
OnForward = Callable[[Sequence[Batch], Sequence[ForwardResult], float, float], None]


class WindowResult(NamedTuple):
    """The results of a window."""

    loss: float  # mean over its rows on all processes
    n_forward: float  # samples with a forward pass on this process
    n_backward: float  # samples with a backward pass on this process
    won_share: float  # of the rows it trained on; of an earlier window, where it has none
    accumulation: int  # batches it trained on
    conceded_share: float | None  # of all its rows, those of checks too; None: the loss has no κ

    def counts(self) -> dict[str, float]:
        """The results by name, without those that are None."""
        return {name: value for name, value in self._asdict().items() if value is not None}


@dataclass
class Engine:
    """Runs windows: forward passes, backward passes of active samples, accumulation, scorecard and δ.

    One engine serves one run: it resets the accumulation, the scorecard and the history.
    """

    model: nn.Module  # its parameters get the gradients
    parts: RunParts
    forward: Callable[[nn.Module, Any], tuple[Tensor, Tensor]]  # logits and targets of a model and a batch
    _: KW_ONLY
    device: torch.device
    loader: RestingLoader | None = None  # loads samples that failed a check once more
    backward: Callable[[Tensor], Any] = Tensor.backward
    on_forward: OnForward | None = None  # called before the backward pass
    record: Record = field(default_factory=Record)
    history: MarginHistory | None = None  # records every look at a sample; needs the loader
    budget: Budget | None = None  # counts what the passes cost

    def __post_init__(self) -> None:
        self.net = self.model  # forward is called with it: the model, or a wrapper of it
        self.loss = self.parts.loss.to(self.device)
        self.accumulation = self.parts.accumulation or ConstantAccumulation()
        self.accumulation.reset()
        self.scorecard = self.parts.scorecard
        if self.scorecard is not None:
            self.scorecard.forget()
        if self.history is not None:
            self.history.forget()
        self.skipper = Skipper(self.model, self.parts.skip)
        self.collectives = Collectives(device=self.device)
        self.won_share = 0.0  # of the last window
        self.passes = [0.0, 0.0]  # forward and backward passes that the budget was not charged for yet
        self.say([self.parts.note] if self.parts.note else [])
        self.lost: list[int] = []  # samples that failed a check and have not been trained on yet
        self._has_batch_norm = has_batch_norm(self.model)
        self.collectives.broadcast([*self.model.parameters(), *self.model.buffers()])

    def close(self) -> None:
        """Remove the hooks from the model."""
        self.skipper.close()
        if self.scorecard is not None:
            self.say(self.scorecard.conclusion())

    def say(self, notes: Iterable[str]) -> None:
        """Put what happened, and why, into the record and the log."""
        for note in notes:
            self.record.notes.append(note)
            if self.collectives.rank == 0:
                logger.info(note)

    @property
    def delta(self) -> float | None:
        """The current δ; None for a loss without one."""
        return current_delta(self.loss)

    # ------------------------------------------------------------ batches

    def train_window(self, batches: Iterable[Batch]) -> None:
        """Train on batches, and finish the epoch with its last one."""
        for batch in batches:
            self.train(batch)
            if batch.last:
                self.finish_epoch()

    def train(self, batch: Batch) -> None:
        """Train on a batch, or check it.

        Samples that fail a check are trained on together with the next batch, or as soon as they fill one.
        """
        if self.scorecard is not None:
            self.say(self.scorecard.take_notes())
        if batch.data is None:
            return
        batch = batch._replace(indices=batch.indices.to(self.device))
        if not batch.check:
            self.train_on([batch, *self._take_lost()])
            return
        self.check(batch)
        while self._n_lost() >= self._batch_size * self.collectives.size:
            self.train_on(self._take_lost())

    def finish_epoch(self) -> None:
        """Train on the samples that failed a check, and exchange the scorecard. A collective call."""
        while self._n_lost():
            self.train_on(self._take_lost())
        if self.scorecard is not None:
            self.scorecard.sync()
        self._charge()
        self.sync_history()

    def sync_history(self) -> None:
        """Exchange the looks of this epoch, also where a run stops in the middle of it. A collective call."""
        if self.history is not None:
            self.history.sync(self._epoch)

    def train_on(self, batches: Sequence[Batch]) -> None:
        """Run forward passes, and backward passes where they are needed. All processes call it together."""
        steps = [self.skipper.forward(self._compute, batch, Batch.select) for batch in batches]
        counts = [step.full.counts() for step in steps]
        totals = [sum(column) for column in zip(*counts, strict=True)] or [0.0] * 5
        n_valid, n_won, _, mass, loss = self.collectives.sum_numbers(totals)
        if self.on_forward is not None:
            self.on_forward(batches, [step.full for step in steps], loss, mass)
        scale = self.accumulation.add(n_all=int(n_valid), n_masked=int(n_won), mass=mass)
        for batch, step, batch_counts in zip(batches, steps, counts, strict=True):
            n_backward = self.skipper.backward(step, scale, self.backward)
            self._note(batch, step.full)
            n_forward = step.full.n_samples
            if step.form == "two-pass" and step.active is not None:
                n_forward += step.active.n_samples
            self._add_batch(batch, batch_counts, n_forward, n_backward)

    def _add_batch(self, batch: Batch, counts: Counts, n_forward: int, n_backward: int) -> None:
        self.record.add_batch(counts, n_forward, n_backward)
        cost = 1.0 if self.budget is None else self.budget.sample_cost(batch.indices)
        self.passes = [self.passes[0] + cost * n_forward, self.passes[1] + cost * n_backward]

    def _charge(self) -> None:
        """Charge the budget. A collective call."""
        if self.budget is not None:
            self.budget.add(*self.collectives.sum_numbers(self.passes))
        self.passes = [0.0, 0.0]

    def measure_cost(self) -> None:
        """Measure what a forward pass costs, for a budget that does not know it. A collective call."""
        budget, loader = self.budget, self.loader
        if budget is None or loader is None or budget.forward_share is not None:
            return
        indices = range(min(self._batch_size, budget.n_samples))

        def forward() -> Tensor:
            batch = send_to_device(loader.fetch(indices), self.device)
            logits, target = self.forward(self.net, batch.data)
            is_head = isinstance(self.loss, LinearLoss)  # then logits are features, and its own passes count
            return self.loss.rows(logits, target).value.sum() if is_head else logits

        share = measure_forward_share(self.model, forward, self.device)
        budget.forward_share = self.collectives.broadcast_object(share)
        self.say([f"budget {budget.epochs:g}: a forward pass takes {budget.forward_share:g} of both passes"])

    def check(self, batch: Batch) -> None:
        """Run a forward pass without gradients in eval mode."""
        result = self.skipper.score(self._compute, batch)
        self._note(batch, result)
        self.lost += batch.indices[result.active_samples()].tolist()
        self._add_batch(batch, result.counts(), result.n_samples, 0)

    def _compute(self, batch: Batch) -> ForwardResult:
        logits, target = self.forward(self.net, batch.data)
        rows = self.loss.rows(logits, target)
        if self.scorecard is not None:
            rows = self.scorecard.weigh(batch.indices, rows)
        head = self.loss if isinstance(self.loss, LinearLoss) else None
        return ForwardResult(logits, target, rows, len(batch.indices), head)

    def _note(self, batch: Batch, result: ForwardResult) -> None:
        if self.scorecard is not None:
            self.scorecard.note(batch.indices, result, self.delta or 0.0, self.loss.ignore_index)
        if self.history is not None:
            self.history.note(self._epoch, batch.indices, result, self.loss.ignore_index)

    @property
    def _epoch(self) -> int:
        assert self.loader is not None, "a history needs the loader, which knows samples and epochs"
        return self.loader.sampler.epoch

    @property
    def _batch_size(self) -> int:
        return 1 if self.loader is None else self.loader.sampler.batch_size

    def _n_lost(self) -> float:
        """Samples that failed a check, on all processes."""
        return self.collectives.sum_numbers([len(self.lost)])[0]

    def _take_lost(self) -> list[Batch]:
        """A batch of samples that failed a check, at most two batch sizes; none without any."""
        if not self.lost:
            return []
        assert self.loader is not None
        size = 2 * self._batch_size
        indices = self.lost[:size]
        self.lost = self.lost[size:]
        return [send_to_device(self.loader.fetch(indices), self.device)]

    # ------------------------------------------------------------ windows

    def close_window(self) -> WindowResult:
        """End a window: its gradients become those of the mean over its rows on all processes."""
        accumulation = self.accumulation
        n_micro = accumulation.n_micro
        if accumulation.n_all:
            self.won_share = accumulation.n_masked / accumulation.n_all
        self.collectives.sum_gradients(self.model.parameters())
        accumulation.close(self.model.parameters())
        if self._has_batch_norm:
            self.collectives.broadcast(self.model.buffers())
        window = self.record.close_window(n_updates=int(n_micro > 0))
        names = ("loss", "mass", "n_conceded", "n_rows")
        loss, mass, n_conceded, n_rows = self.collectives.sum_numbers([window[name] for name in names])
        self._charge()
        samples = (window["n_forward"], window["n_backward"])
        concedes = getattr(self.loss, "concede", None) is not None
        conceded_share = n_conceded / (n_rows or 1) if concedes else None
        return WindowResult(loss / (mass or 1), *samples, self.won_share, n_micro, conceded_share)

    def follow(self, n_steps: int) -> None:
        """Advance δ and κ by planned batches, as a learning-rate schedule is advanced."""
        step_schedules(self.loss, n_steps, self.won_share)

    def totals(self) -> dict[str, float]:
        """Counts over all processes since the run began."""
        names = ("n_forward", "n_backward", "n_rows", "n_won", "n_conceded")
        sums = self.collectives.sum_numbers([self.record.totals[name] for name in names])
        return dict(zip(names, sums, strict=True))

    # ------------------------------------------------------------ state

    def _parts(self) -> dict[str, Any]:
        parts: dict[str, Any] = {"loss": self.loss, "accumulation": self.accumulation, "record": self.record}
        parts |= {"scorecard": self.scorecard, "history": self.history, "budget": self.budget}
        return {name: part for name, part in parts.items() if part is not None}

    def state_dict(self) -> dict[str, Any]:
        """The state of this process."""
        parts = {name: part.state_dict() for name, part in self._parts().items()}
        return {**parts, "lost": list(self.lost), "won_share": self.won_share, "passes": list(self.passes)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load a state. Parts that it does not hold stay as they are."""
        for name, part in self._parts().items():
            if name in state:
                part.load_state_dict(state[name])
        self.lost = list(state["lost"])
        self.won_share = float(state["won_share"])
        self.passes = list(state["passes"])


def current_delta(loss: nn.Module) -> float | None:
    """The current δ of a loss; None for a loss without one."""
    delta = getattr(loss, "delta", None)
    return None if delta is None else delta_value(delta)
