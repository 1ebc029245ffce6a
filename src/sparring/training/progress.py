"""How far a run is, in planned batches; what it may spend; and when it settles.

Steps are counted in planned batches: those of an epoch in which no sample rests. Without a budget, the
position in the epoch says how many are done, and resting samples count as done. With a budget, what was
spent says it, so learning rate, δ and settling follow the budget.

The unit of a budget is a sample with a forward and a backward pass, as plain softmax trains it. Where lengths
are known, a sample costs in proportion to its length: those that rest are often the short ones. A forward
pass alone costs ``forward_share`` of that, a backward pass the rest. The share is measured when a run begins,
rounded, and kept with the state of the run, so a resumed run ends bit-equal. Give it to repeat a run exactly.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from sparring.heads.linear import LinearLoss
from sparring.losses import Loss
from sparring.losses.checks import check_positive, check_range
from sparring.losses.delta import DeltaSchedule
from sparring.training.checkpoint import random_state, set_random_state
from sparring.training.resting.sampler import RestingLoader

N_MEASURED = 5  # batches in turn, after one to warm up
ROUNDED_TO = 0.05  # coarse, so that repeated runs hardly ever measure another share
MAX_IDLE_EPOCHS = 100  # epochs without a single pass before a run gives up


class Budget:
    """What a run may spend, and has spent.

    Args:
        epochs: The budget: the cost of that many epochs in which every sample has both passes.
        n_samples: Size of the data set.
        forward_share: The cost of a forward pass, as a share of both passes; None until it is measured.
        lengths: Of the samples; None: they all cost the same.

    Example:
        >>> budget = Budget(2.0, n_samples=10, forward_share=0.4)
        >>> budget.add(n_forward=10, n_backward=10)
        >>> budget.add(n_forward=10, n_backward=0)
        >>> budget.epochs_spent, budget.is_spent
        (1.4, False)
    """

    def __init__(
        self,
        epochs: float,
        n_samples: int,
        forward_share: float | None = None,
        lengths: Tensor | None = None,
    ) -> None:
        self.epochs = check_positive("budget", epochs, note="in epochs of plain softmax")
        self.n_samples = n_samples
        if forward_share is not None:
            check_range("forward_share", forward_share, 0, 1, note="of the cost of both passes")
        self.forward_share = forward_share
        self.costs = None if lengths is None else lengths / lengths.float().mean().clamp(min=1e-9)
        self.spent = 0.0  # in samples with both passes
        self.spent_before = 0.0  # of that, before training, to fit the head
        self._idle = 0  # epochs in a row without a pass
        self._last_spent = 0.0  # at the end of the epoch before

    def sample_cost(self, indices: Tensor) -> float:
        """The mean cost of these samples; that of all samples is 1."""
        return 1.0 if self.costs is None else float(self.costs[indices.cpu()].mean())

    def add(self, n_forward: float, n_backward: float) -> None:
        """Add passes, counted in samples of mean cost over all processes."""
        assert self.forward_share is not None, "measure it first"
        self.spent += self.forward_share * n_forward + (1 - self.forward_share) * n_backward

    @property
    def epochs_spent(self) -> float:
        return self.spent / self.n_samples

    @property
    def share_done(self) -> float:
        """How much is spent of what the budget leaves for training."""
        total = self.epochs * self.n_samples
        return (self.spent - self.spent_before) / max(total - self.spent_before, 1e-9)

    @property
    def is_spent(self) -> bool:
        return self.epochs_spent >= self.epochs - 1e-9

    def end_epoch(self) -> None:
        """Raise RuntimeError after many epochs in which every sample rested: such a run would never end."""
        self._idle = self._idle + 1 if self.spent == self._last_spent else 0
        self._last_spent = self.spent
        if self._idle >= MAX_IDLE_EPOCHS:
            raise RuntimeError(
                f"every sample rested for {self._idle} epochs, so the budget is never spent; a scorecard must"
                " let samples train again"
            )

    def state_dict(self) -> dict[str, Any]:
        names = ("spent", "spent_before", "forward_share")
        return {name: getattr(self, name) for name in names}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.spent = self._last_spent = float(state["spent"])
        self.spent_before = float(state.get("spent_before", 0.0))
        if self.forward_share is None:
            self.forward_share = state["forward_share"]


def measure_forward_share(model: nn.Module, forward: Callable[[], Tensor], device: torch.device) -> float:
    """The share of the forward pass in the time of both passes. Model and random generators stay as they are.

    Args:
        model: The model.
        forward: Loads a batch, runs the model on it, and returns its logits, or a loss.
        device: Of the model. On the CPU, processor time is measured, which other programs disturb less.

    Returns:
        The share, rounded to ``ROUNDED_TO``; 1 for a model without trained parameters.
    """
    state = random_state()
    buffers = {name: buffer.detach().clone() for name, buffer in model.named_buffers()}
    seconds: list[tuple[float, float]] = []
    try:
        for _ in range(N_MEASURED + 1):
            start = _now(device)
            logits = forward()
            middle = _now(device)
            if not logits.requires_grad:
                return 1.0
            torch.autograd.backward(logits.float().sum())
            seconds.append((middle - start, _now(device) - middle))
    finally:
        for name, buffer in model.named_buffers():
            if name in buffers and buffer.shape == buffers[name].shape:  # forward may make or resize others
                buffer.data.copy_(buffers[name])
        model.zero_grad()
        set_random_state(state)
    forward_seconds, backward_seconds = (
        statistics.median(column) for column in zip(*seconds[1:], strict=True)
    )
    share = forward_seconds / max(forward_seconds + backward_seconds, 1e-9)
    return float(round(round(share / ROUNDED_TO) * ROUNDED_TO, 2))


def _now(device: torch.device) -> float:
    if device.type == "cpu":
        return time.process_time()
    torch.accelerator.synchronize(device)
    return time.perf_counter()


def settle_step(total_steps: int, n_planned: int, share: float) -> int:
    """The step at which settling begins: whole epochs at the end, or less than one in a short run.

    >>> [settle_step(10 * n, 10, 0.15) for n in (2, 4, 8, 10)]
    [17, 30, 70, 80]
    """
    epochs = share * total_steps / n_planned
    n_settle = math.floor(epochs + 0.5) * n_planned if epochs >= 0.5 else round(epochs * n_planned)
    return max(0, total_steps - n_settle)


def settles_at(loss: Loss | LinearLoss, total_steps: int, n_planned: int, share: float = 0.0) -> int | None:
    """The step from which every sample trains; None: there is none.

    The δ of a loss says when it settles. With a loss that has no δ, the last ``share`` of training settles.
    """
    delta = getattr(loss, "delta", None)
    if isinstance(delta, DeltaSchedule):
        return delta.settles_at()
    if delta is not None or not share:
        return None
    return settle_step(total_steps, n_planned, share)


def step_schedules(loss: Loss | LinearLoss, n_steps: int, won_share: float) -> None:
    """Advance the schedules of δ and κ, if the loss has some."""
    for schedule in loss.settings().values():
        if isinstance(schedule, DeltaSchedule):
            for _ in range(n_steps):
                schedule.step(won_share)


class Progress:
    """The steps of a loop.

    Args:
        loader: The samples of an epoch.
        epochs: Epochs to train, without a budget.
        budget: What to spend instead, in epochs of plain softmax.
        forward_share: Cost of a forward pass, as a share of both passes; None: it is measured.
    """

    def __init__(
        self,
        loader: RestingLoader,
        epochs: int,
        budget: float | None = None,
        forward_share: float | None = None,
    ) -> None:
        if forward_share is not None and budget is None:
            raise ValueError(f"forward_share={forward_share} is for a budget, but there is none; use budget=")
        self.loader = loader
        self.epochs = epochs
        n_samples = loader.scorecard.n_samples
        lengths = loader.sampler.lengths
        self.budget = None if budget is None else Budget(budget, n_samples, forward_share, lengths)
        length = epochs if budget is None else budget
        self.total_steps = max(1, round(length * self.n_planned))
        self.settle_from: int | None = None  # the first step that settles

    @property
    def n_planned(self) -> int:
        return self.loader.sampler.n_planned

    def begin(self, loss: Loss | LinearLoss, settle: float = 0.0) -> None:
        """Prepare for a run: plan the length of rests, and wake every sample when the run settles.

        Args:
            loss: Its δ says when.
            settle: The share of training that settles, for a loss without a δ.
        """
        self.settle_from = settles_at(loss, self.total_steps, self.n_planned, settle)
        scorecard = self.loader.scorecard
        scorecard.awake_from = None
        if self.budget is not None:  # it decides how many epochs there are
            scorecard.plan_rests()
            return
        if self.settle_from is not None:
            scorecard.awake_from = self.settle_from // self.n_planned
        scorecard.plan_rests(self.epochs, self.total_steps)

    def end_epoch(self) -> int:
        """The planned batches that are done at the end of an epoch. Resting samples count as done."""
        if self.budget is None:
            return (self.loader.sampler.epoch + 1) * self.n_planned
        self.budget.end_epoch()
        self._wake()
        return self.n_done

    def _wake(self) -> bool:
        """Wake every sample from the next epoch on, once the budget comes to settling: then return True."""
        scorecard = self.loader.scorecard
        settles = self.settle_from is not None and self.n_done >= self.settle_from
        if not settles or scorecard.awake_from is not None:
            return False
        scorecard.awake_from = self.loader.sampler.epoch + 1
        return True

    @property
    def n_done(self) -> int:
        """Planned batches since training began, with the batches of this epoch that were trained on."""
        if self.budget is None:
            return self.loader.sampler.progress(self.loader.position - 1)
        return min(self.total_steps, math.floor(self.budget.share_done * self.total_steps + 0.5))

    @property
    def is_finished(self) -> bool:
        """Whether the run ends with this epoch."""
        if self.budget is None:
            return self.loader.sampler.epoch + 1 >= self.epochs
        return self.budget.is_spent or self.n_done >= self.total_steps

    def cuts_epoch(self) -> bool:
        """Whether this epoch ends here: the budget is spent, or settling begins and wakes every sample."""
        if self.budget is None:
            return False
        cuts = (self._wake() and not self.loader.sampler.all_train) or self.is_finished
        if self.loader.finished or not cuts:
            return False
        self.loader.skip_rest_of_epoch()
        return True
