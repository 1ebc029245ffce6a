"""Exact backward skipping: nobody pays for the backward of a sample whose gradient is zero.

``compact(model)`` is all most people need: after it an ordinary ``loss(model(x), y).backward()`` runs on the surviving
samples only. ``Skipper`` is for training loops: it has all forms of skipping behind one switch.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from sparring.backward.backward_hook import leaves_behind
from sparring.backward.compact import Compaction, compact
from sparring.backward.costs import Costs
from sparring.backward.stats import SkipStats
from sparring.heads.linear import LinearLoss
from sparring.losses.diagnostics import margins
from sparring.losses.rows import RowLosses

__all__ = ["MODES", "Compaction", "Counts", "Look", "Pass", "SkipStats", "Skipper", "compact"]

MODES = ("off", "micro", "rows", "two-pass", "auto")
MEASURED_EVERY = 16  # on a device that has to be waited for


class Counts(NamedTuple):
    """Of a batch's rows: valid and won ones, what their mean divides by, and the sum of their losses."""

    n_valid: float
    n_won: float
    mass: float
    loss: float


class Look(NamedTuple):
    """What a forward showed of a batch."""

    logits: Tensor  # or features, where the loss has the last layer
    target: Tensor
    rows: RowLosses
    n_samples: int  # in the batch; each has one row or several (tokens), one after the other
    head: LinearLoss | None = None  # the loss that has it

    def lost(self) -> Tensor:
        """(n_samples,) bool: which still need a backward. A sample of several rows does while one of them does."""
        active = self.rows.active
        if self.n_samples == 0 or len(active) % self.n_samples:
            raise ValueError(
                f"{self.n_samples} samples gave {len(active)} rows; forward must return as many for each sample, in their order"
            )
        return active.view(self.n_samples, -1).any(1)

    def margins(self, ignore_index: int = -100) -> Tensor:
        """(n_samples, rows of each): p_margin, nan where a row is ignored."""
        given = self.logits.detach()
        found = (
            margins(given, self.target, ignore_index)
            if self.head is None
            else self.head.margins(given, self.target)
        )
        return found.reshape(self.n_samples, -1)

    def counts(self) -> Counts:
        rows = self.rows
        n_valid = rows.valid.sum()
        sums = (
            n_valid,
            rows.won.sum(),
            n_valid if rows.weight is None else rows.weight.sum(),
            rows.weighted().detach().sum(),
        )
        return Counts(*torch.stack([x.double() for x in sums]).tolist())  # one wait for the device


class Pass(NamedTuple):
    """A batch that was looked at, and the part of it that fights (None where nobody does)."""

    seen: Look
    fighting: Look | None
    form: str  # of skipping
    seconds: float | None  # the look took, where it was measured


def has_batch_norm(model: nn.Module) -> bool:
    return any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in model.modules())


class Skipper:
    """Runs batches through a model, skipping the backward of what is won.

    - ``"off"``: every batch has a full backward.
    - ``"micro"``: a batch with nothing active has none.
    - ``"rows"``: one forward, and a backward on the surviving samples only (``compact``).
    - ``"two-pass"``: score the batch without gradients in eval mode, then forward and backward the survivors only. For models
      that ``rows`` cannot help. Dropout draws differ from those of one forward over the whole batch, so it is exact for what
      it keeps, but not the same random run; with BatchNorm in training mode it is refused.
    - ``"auto"``: whichever is quickest by the costs measured on this model and the share won of late; a full backward where none
      pays. The clock decides, so two runs agree to rounding, not to the bit.

    Parameters that an ordinary backward would have reached get zeros, not None, where everything was won.
    """

    def __init__(self, model: nn.Module, mode: str = "rows") -> None:
        if mode not in MODES:
            raise ValueError(f"skip must be one of {', '.join(MODES)}; got {mode!r}")
        coupled = has_batch_norm(model)
        if mode == "two-pass" and coupled:
            raise ValueError(
                'two-pass skipping would normalise the survivors by themselves in BatchNorm; use skip="rows" or "micro"'
            )
        self.model, self.mode = model, mode
        self.compaction = compact(model) if mode in ("rows", "auto") else None
        self.costs = Costs(two_pass=not coupled) if mode == "auto" else None
        self.n_passes = 0
        self._reached: list[Tensor] | None = None
        self._hooked = False
        self._sparse = any(
            getattr(module, "sparse", False) is True for module in model.modules()
        )  # zeros would be dense ones
        self._device = next((parameter.device.type for parameter in model.parameters()), "cpu")

    def close(self) -> None:
        """Give the model back as it was."""
        if self.compaction is not None:
            self.compaction.remove()

    def look(self, look: Callable[[Any], Look], batch: Any, cut: Callable[[Any, Tensor], Any]) -> Pass:
        """The forward. ``look`` runs model and loss on a batch; ``cut`` takes the samples of the given indices out of one."""
        self.n_passes += 1
        form = self.mode if self.costs is None else self.costs.choose()
        if self.compaction is not None:
            self.compaction.gate.open = form == "rows"
        started = self._clock()
        if form == "two-pass":
            seen = self.score(look, batch)
            lost = seen.lost().nonzero().squeeze(1)
            fighting = look(cut(batch, lost)) if len(lost) else look(batch) if self._sparse else None
            if fighting is None and (self._reached is None or self._hooked):
                self._look_behind(self._quietly(look, batch))
                fighting = look(batch) if self._hooked else None
        else:
            seen = look(batch)
            won = self.mode != "off" and not self._sparse and not bool(seen.rows.active.any())
            if won:
                self._look_behind(seen)
            fighting = None if won and not self._hooked else seen
        finished = self._clock()
        done = Pass(seen, fighting, form, finished - started if started and finished else None)
        if self.costs is not None:
            self.costs.saw(float(seen.lost().float().mean()))
        return done

    def score(self, look: Callable[[Any], Look], batch: Any) -> Look:
        """A look without gradients, dropout off."""
        with torch.no_grad():
            return self._quietly(look, batch)

    def _quietly(self, look: Callable[[Any], Look], batch: Any) -> Look:
        """A look in eval mode: no random numbers are drawn, no statistics kept."""
        training = [module for module in self.model.modules() if module.training]
        self.model.eval()
        try:
            return look(batch)
        finally:
            for module in training:
                module.training = True

    def backward(self, done: Pass, scale: float, backward: Callable[[Tensor], Any] = Tensor.backward) -> int:
        """Gradients of ``scale`` times the sum of the batch's losses. Returns how many samples it was run for."""
        if done.fighting is None:
            self._zeros()
            return 0
        if self.costs is not None and self.compaction is not None:
            self.compaction.gate.min_dropped = self.costs.min_dropped()
        stats = SkipStats() if self.compaction is None else self.compaction.stats
        n_walks, n_samples = stats.n_walks, stats.n_samples_backward
        started = self._clock()
        backward(done.fighting.rows.sum() * scale)
        finished = self._clock()
        if self.costs is not None and done.seconds is not None and started and finished:
            self._learn(done, finished - started, stats.n_walks > n_walks)
        return stats.n_samples_backward - n_samples or done.fighting.n_samples

    def _learn(self, done: Pass, seconds: float, walked: bool) -> None:
        assert self.costs is not None
        assert done.seconds is not None
        kept = float(done.seen.lost().float().mean())
        if done.form == "two-pass":
            self.costs.two(done.seconds + seconds, kept)
            return
        self.costs.forward(done.seconds)
        if walked:
            self.costs.walk(seconds, kept)
        else:
            self.costs.backward(seconds)

    def _look_behind(self, won: Look) -> None:
        """Find the parameters that the backward of a won batch reaches, and whether it calls hooks: then it has to run."""
        self._reached, self._hooked = leaves_behind(won.rows.value)

    def _zeros(self) -> None:
        """What the backward of a won batch leaves behind."""
        for leaf in self._reached or ():
            if leaf.grad is None:
                leaf.grad = torch.zeros_like(leaf)

    def _clock(self) -> float | None:
        """Seconds, once the device is done; None where asking would cost and it is not the time to."""
        if self.costs is None:
            return None
        if self._device != "cpu":
            if self.n_passes > MEASURED_EVERY and self.n_passes % MEASURED_EVERY:
                return None
            torch.get_device_module(self._device).synchronize()
        return time.perf_counter()
