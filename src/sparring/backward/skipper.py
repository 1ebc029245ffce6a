"""Exact backward skipping for training loops: no backward pass for samples whose gradient is zero.

Most users need only ``compact(model)``: after it, ``loss(model(x), y).backward()`` runs on the active samples
alone. ``Skipper`` offers every form of skipping behind one switch.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from sparring.backward.backward_hook import leaves_behind
from sparring.backward.compact import compact
from sparring.backward.costs import Costs
from sparring.backward.stats import SkipStats
from sparring.heads.linear import LinearLoss
from sparring.losses.diagnostics import LabelMargins, label_margins, margins
from sparring.losses.rows import RowLosses

MODES = ("off", "micro", "rows", "two-pass", "auto")
MEASURE_EVERY = 16  # batches between measurements on a device that has to be synchronized for them


class Counts(NamedTuple):
    """Sums over the rows of a batch."""

    n_valid: float
    n_won: float
    n_conceded: float
    mass: float  # the divisor of the mean loss: valid rows, or the sum of their class weights
    loss: float


class ForwardResult(NamedTuple):
    """The output of a model on a batch, and its losses."""

    logits: Tensor  # or features, where the loss contains the last layer
    target: Tensor
    rows: RowLosses
    n_samples: int  # each sample has one row or several (tokens), one after the other
    head: LinearLoss | None = None  # the loss, where it contains the last layer

    def active_samples(self) -> Tensor:
        """(n_samples,) bool: samples that need a backward pass, because at least one of their rows does."""
        active = self.rows.active
        if self.n_samples == 0 or len(active) % self.n_samples:
            raise ValueError(
                f"{self.n_samples} samples gave {len(active)} rows; forward must return the same number of"
                " rows for each sample, in the order of the samples"
            )
        return active.view(self.n_samples, -1).any(1)

    def won_samples(self) -> Tensor:
        """(n_samples,) bool: samples without an active and without a conceded row."""
        won = ~self.active_samples()
        conceded = self.rows.conceded
        return won if conceded is None else won & ~conceded.view(self.n_samples, -1).any(1)

    def margins(self, ignore_index: int = -100) -> Tensor:
        """(n_samples, rows of a sample) margins of the target's probability; NaN for ignored rows."""
        output = self.logits.detach()
        if self.head is None:
            row_margins = margins(output, self.target, ignore_index)
        else:
            row_margins = self.head.margins(output, self.target)
        return row_margins.reshape(self.n_samples, -1)

    @property
    def has_target_per_class(self) -> bool:
        """Whether the target of a row is not a class, but a label or a probability for each class."""
        return self.target.shape == self.logits.shape if self.head is None else self.head.multilabel

    def label_margins(self, ignore_index: int = -100) -> LabelMargins:
        """`label_margins` of all rows, in the shape of the row losses."""
        output = self.logits.detach()
        if self.head is None:
            return label_margins(output, self.target, ignore_index)
        return self.head.label_margins(output, self.target)

    def counts(self) -> Counts:
        """Sums over the rows, with a single device synchronization."""
        rows = self.rows
        n_valid = rows.valid.sum()
        mass = n_valid if rows.weight is None else rows.weight.sum()
        n_conceded = torch.zeros_like(n_valid) if rows.conceded is None else rows.conceded.sum()
        sums = (n_valid, rows.won.sum(), n_conceded, mass, rows.weighted().detach().sum())
        return Counts(*torch.stack([value.double() for value in sums]).tolist())


class StepResult(NamedTuple):
    """The forward pass of a batch, before its backward pass."""

    full: ForwardResult  # of all samples
    active: ForwardResult | None  # what the backward pass starts from; None where it is skipped
    form: str  # the form of skipping that was used
    seconds: float | None  # of the forward pass, where it was measured


Forward = Callable[[Any], ForwardResult]


def has_batch_norm(model: nn.Module) -> bool:
    """Whether BatchNorm mixes the samples of a batch in training.

    Layers that stay in eval mode after ``model.train()`` keep their statistics, and do not mix samples.
    """
    layers = [module for module in model.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]
    if not layers:
        return False
    modes = [(module, module.training) for module in model.modules()]
    model.train()
    try:
        return any(layer.training or layer.running_mean is None for layer in layers)
    finally:
        for module, mode in modes:
            module.training = mode


class Skipper:
    """Runs the forward and backward passes of batches and skips the backward pass of won samples.

    - ``"off"``: every batch has a full backward pass.
    - ``"micro"``: a batch without an active row has no backward pass.
    - ``"rows"``: one forward pass, and a backward pass on the active samples (``compact``).
    - ``"two-pass"``: score the batch without gradients in eval mode, then run forward and backward passes on
      the active samples. For models where ``rows`` does not help. Dropout draws other numbers than in one
      forward pass over the batch. Models with BatchNorm are refused.
    - ``"auto"``: the fastest form, by the measured costs of this model and the recent share of won samples.
      The clock decides, so two runs agree to rounding only.

    Parameters that a full backward pass would have reached get zeros, not None, where it is skipped.

    Args:
        model: The model whose backward passes are skipped.
        mode: One of the forms above.

    Raises:
        ValueError: For an unknown mode, or ``"two-pass"`` with BatchNorm.
    """

    def __init__(self, model: nn.Module, mode: str = "rows") -> None:
        if mode not in MODES:
            raise ValueError(f"skip must be one of {', '.join(MODES)}; got {mode!r}")
        batch_norm = has_batch_norm(model)
        if mode == "two-pass" and batch_norm:
            raise ValueError(
                "two-pass skipping would compute the statistics of BatchNorm from active samples alone;"
                ' use skip="rows" or "micro"'
            )
        self.model = model
        self.mode = mode
        self.compaction = compact(model) if mode in ("rows", "auto") else None
        self.costs = Costs(two_pass=not batch_norm) if mode == "auto" else None
        self.n_batches = 0
        self._reached: list[Tensor] | None = None  # parameters that a backward pass reaches
        self._hooked = False  # the backward pass calls hooks, so it has to run
        # the zeros that stand for a skipped backward pass would be dense
        self._sparse = any(getattr(module, "sparse", False) is True for module in model.modules())
        self._device = next((parameter.device.type for parameter in model.parameters()), "cpu")

    def close(self) -> None:
        """Remove the hooks from the model."""
        if self.compaction is not None:
            self.compaction.remove()

    def forward(self, compute: Forward, batch: Any, select: Callable[[Any, Tensor], Any]) -> StepResult:
        """Run the forward pass: ``compute`` runs model and loss, ``select`` takes samples out of a batch."""
        self.n_batches += 1
        form = self.mode if self.costs is None else self.costs.choose()
        if self.compaction is not None:
            self.compaction.hook.enabled = form == "rows"
        start = self._clock()
        if form == "two-pass":
            full, active = self._two_pass(compute, batch, select)
        else:
            full = active = compute(batch)
            if self.mode != "off" and not self._sparse and not bool(full.rows.active.any()):
                self._find_reached(full)
                active = full if self._hooked else None
        end = self._clock()
        if self.costs is not None:
            self.costs.add_share(_active_share(full))
        return StepResult(full, active, form, end - start if start and end else None)

    def score(self, compute: Forward, batch: Any) -> ForwardResult:
        """Run a forward pass without gradients, in eval mode."""
        with torch.no_grad():
            return self._in_eval_mode(compute, batch)

    def backward(
        self, step: StepResult, scale: float, backward: Callable[[Tensor], Any] = Tensor.backward
    ) -> int:
        """Compute the gradients of ``scale`` times the summed losses. Returns how many samples it covered."""
        if step.active is None:
            for leaf in self._reached or ():
                if leaf.grad is None:
                    leaf.grad = torch.zeros_like(leaf)
            return 0
        if self.costs is not None and self.compaction is not None:
            self.compaction.hook.min_dropped = self.costs.min_dropped()
        stats = SkipStats() if self.compaction is None else self.compaction.stats
        n_walks, n_samples = stats.n_walks, stats.n_samples_backward
        start = self._clock()
        backward(step.active.rows.sum() * scale)
        end = self._clock()
        if self.costs is not None and step.seconds is not None and start and end:
            share = _active_share(step.full)
            self.costs.add(step.form, step.seconds, end - start, share, walked=stats.n_walks > n_walks)
        return stats.n_samples_backward - n_samples or step.active.n_samples

    def _two_pass(
        self, compute: Forward, batch: Any, select: Callable[[Any, Tensor], Any]
    ) -> tuple[ForwardResult, ForwardResult | None]:
        full = self.score(compute, batch)
        samples = full.active_samples().nonzero().squeeze(1)
        if len(samples):
            return full, compute(select(batch, samples))
        if self._sparse:
            return full, compute(batch)
        if self._reached is None or self._hooked:
            self._find_reached(self._in_eval_mode(compute, batch))
        return full, compute(batch) if self._hooked else None

    def _in_eval_mode(self, compute: Forward, batch: Any) -> ForwardResult:
        """In eval mode no random numbers are drawn and no statistics are updated."""
        training = [module for module in self.model.modules() if module.training]
        self.model.eval()
        try:
            return compute(batch)
        finally:
            for module in training:
                module.training = True

    def _find_reached(self, won: ForwardResult) -> None:
        self._reached, self._hooked = leaves_behind(won.rows.value)

    def _clock(self) -> float | None:
        """Seconds after synchronizing the device; None where no measurement is due."""
        if self.costs is None:
            return None
        if self._device != "cpu":
            if self.n_batches > MEASURE_EVERY and self.n_batches % MEASURE_EVERY:
                return None
            torch.get_device_module(self._device).synchronize()
        return time.perf_counter()


def _active_share(result: ForwardResult) -> float:
    return float(result.active_samples().float().mean())
