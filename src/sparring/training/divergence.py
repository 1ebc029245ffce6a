"""Divergence: a loss, a gradient or a weight that is NaN or infinite is reported at the step where it appears.

Nothing waits for the device on its own account. The loss of a batch is a number that the loop reads anyway; the gradient norm and the
weights of an update are read together, after the next batch's loss, or before the next evaluation or checkpoint.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from sparring.backward.skipper import Look
    from sparring.training.batches import Part
    from sparring.training.loop import Loop

MODES = ("raise", "warn", "ignore")
MOST_NAMED = 8  # samples in a message
MOST_SKIPPED = 40  # updates that a gradient scaler skips in a row: by then its scale is 2**-24 of what it was, and not the reason


class DivergenceError(RuntimeError):
    """Training produced NaN or an infinite number. The last checkpoint is still that of a finite state.

    Attributes:
        reason: what happened and what to try.
        step: the step (planned batches, as in the logs) at which it appeared.
        epoch: its epoch.
        last_loss: the mean loss of the last batch that had a finite one; None where there was none.
        lr: the learning rate of that step.
        samples: indices in the data set of the samples it came from, where that is known.
    """

    reason: str
    step: int
    epoch: int
    last_loss: float | None
    lr: float
    samples: tuple[int, ...]

    def __init__(self, message: str, **facts: Any) -> None:
        super().__init__(message)
        vars(self).update(facts)


class DivergenceMonitor:
    """Looks at the numbers of a loop.

    Args:
        loop: the loop.
        mode: ``"raise"`` a DivergenceError; ``"warn"`` once and go on; ``"ignore"``: do not look.
    """

    def __init__(self, loop: Loop, mode: str) -> None:
        self.loop = loop
        if mode not in MODES:
            raise ValueError(f"on_divergence must be one of {', '.join(MODES)}; got {mode!r}")
        self.mode = mode
        self.reset()

    def reset(self) -> None:
        """Before a run."""
        self.last_loss: float | None = None
        self.warned = False
        self._told_unsaved = False
        self.n_skipped = 0  # updates that a gradient scaler left out
        self._n_skipped_in_a_row = 0
        self._scale: float | None = None  # of the gradient scaler, before the update that was looked at last
        self._pending: tuple[int, float | Tensor, Tensor] | None = (
            None  # step, learning rate; gradient norm and sum of the weights
        )

    # ------------------------------------------------------------ what the loop tells

    def batch(self, parts: Sequence[Part], looks: Sequence[Look], loss: float, mass: float) -> None:
        """After a forward. ``loss`` is the sum over all processes, so all of them come to the same verdict."""
        if self.mode == "ignore":
            return
        self.settle()
        if self._scale is None:
            self._was_skipped()  # takes the scale that the run begins with
        if math.isfinite(loss):
            self.last_loss = loss / mass if mass else self.last_loss
        elif not self.warned:
            culprits = self.loop.replicas.gather(_culprits(parts, looks))
            step = self.loop.n_done + self.loop.windows.n_micro + 1
            self._report(step, self._lr(), f"the loss of a batch is {loss}", culprits)

    def update(self, step: int, norm: Tensor | None) -> None:
        """After an optimizer step; ``norm`` is the gradients', where they are clipped. Reads nothing from the device."""
        if self.mode == "ignore":
            return
        weights = _sum(self.loop.model.parameters())
        norm = weights.new_zeros(()) if norm is None else norm.detach().to(weights)
        self._pending = (step, self._lr(), torch.stack([norm, weights]))

    def settle(self) -> None:
        """Look at the last update. Every process holds the same gradients and weights, so all of them come to the same verdict."""
        if self._pending is None:
            return
        (step, lr, numbers), self._pending = self._pending, None
        norm, weights = numbers.tolist()
        skipped = self._was_skipped()
        self.n_skipped += skipped
        self._n_skipped_in_a_row = self._n_skipped_in_a_row + 1 if skipped else 0
        if not math.isfinite(weights):
            norm_too = "" if math.isfinite(norm) else f", the norm of the gradients is {norm}"
            self._report(step, lr, f"{_broken_weights(self.loop.model)}{norm_too}")
        elif not math.isfinite(norm) and not skipped:
            self._report(step, lr, f"the norm of the gradients is {norm}")
        elif self._n_skipped_in_a_row >= MOST_SKIPPED:
            what = f"{MOST_SKIPPED} updates in a row were skipped: the gradients are not finite at any loss scale"
            self._report(step, lr, what)

    def _was_skipped(self) -> bool:
        """Whether a gradient scaler left the update out and lowered its scale, which does no harm. Its scale tells: an optimizer whose
        fused kernel leaves the update out looks as if it had stepped."""
        if (scaler := self.loop.engine.scaler) is None:
            return False
        before, self._scale = self._scale, scaler.get_scale()
        return before is not None and self._scale < before

    def evaluation(self, figures: Mapping[str, float], metric: str) -> None:
        """After an evaluation. A metric may be undefined, which is worth a warning; a loss may not."""
        if self.mode == "ignore":
            return
        step = self.loop.n_done
        if not math.isfinite(figures.get("loss", 0.0)):
            self._report(step, self._lr(), f"the loss of the evaluation is {figures['loss']}")
        elif math.isnan(figures[metric]) and self.loop.replicas.rank == 0:
            message = f"the evaluation after step {step} gave {metric} nan, which cannot be the best"
            warnings.warn(message, stacklevel=2)

    def can_save(self) -> bool:
        """Whether the weights are finite. Others must not take a good checkpoint's place; the first time, a warning says so."""
        self.settle()
        finite = math.isfinite(_sum(self.loop.model.parameters()).item())
        if (
            not finite
            and not self._told_unsaved
            and self.loop.folder is not None
            and self.loop.replicas.rank == 0
        ):
            self._told_unsaved = True
            message = f"weights are not finite after step {self.loop.n_done}: no checkpoint is written, the last good one stays"
            warnings.warn(message, stacklevel=2)
        return finite

    # ------------------------------------------------------------ the report

    def _lr(self) -> float | Tensor:
        return self.loop.lr_schedule.get_last_lr()[0]

    def _report(
        self, step: int, lr: float | Tensor, what: str, culprits: Sequence[Mapping[str, Any]] = ()
    ) -> None:
        if self.warned:
            return
        loop = self.loop
        lr = float(lr)
        known = "none yet" if self.last_loss is None else f"{self.last_loss:.6g}"
        where = f"training diverged at step {step} of {loop.total_steps} (epoch {loop.sampler.epoch})"
        cause, samples = _cause(culprits)
        clipping = (
            "max_grad_norm=1"
            if loop.max_grad_norm is None
            else f"max_grad_norm is {loop.max_grad_norm:g} now"
        )
        advice = f"try a lower learning rate or gradient clipping ({clipping}), and look at the input data"
        if any(process["inputs"] for process in culprits):
            advice = "correct the data, or leave such samples out"
        reason = f"{where}: {what}; last good loss {known}, learning rate {lr:g}{cause}; {advice}"
        if self.mode == "raise":
            facts = {
                "step": step,
                "epoch": loop.sampler.epoch,
                "last_loss": self.last_loss,
                "lr": lr,
                "samples": tuple(samples),
            }
            raise DivergenceError(
                f'{reason}. on_divergence="warn" or "ignore" goes on regardless', reason=reason, **facts
            )
        self.warned = True
        if loop.replicas.rank == 0:
            warnings.warn(reason, stacklevel=2)


def _sum(parameters: Iterable[nn.Parameter]) -> Tensor:
    """The sum of all trained weights: NaN or infinite as soon as one of them is. A norm would take several times as long."""
    sums = []
    for parameter in parameters:
        if parameter.requires_grad:
            weights = torch.view_as_real(parameter.detach()) if parameter.is_complex() else parameter.detach()
            sums.append(weights.sum(dtype=torch.promote_types(weights.dtype, torch.float32)).double())
    return torch.stack(sums).sum() if sums else torch.zeros((), dtype=torch.float64)


def _broken_weights(model: nn.Module) -> str:
    trained = ((name, p) for name, p in model.named_parameters() if p.requires_grad)
    name = next((name for name, p in trained if not bool(p.isfinite().all())), None)
    return (
        "the sum of the weights overflows"
        if name is None
        else f"the update made weights NaN or infinite (the first is {name})"
    )


def _culprits(parts: Sequence[Part], looks: Sequence[Look]) -> dict[str, Any]:
    """Of this process's batches: samples whose input holds NaN or +inf (-inf is what masks are made of), and samples with such a loss."""
    inputs: dict[int, str] = {}
    losses: list[int] = []
    n_samples = 0
    for (batch, index), look in zip(parts, looks, strict=True):
        n = len(index)
        n_samples += n
        for name, tensor in _named_tensors(batch, ""):
            if tensor.is_floating_point() and len(tensor) == n:
                broken = (tensor.isnan() | tensor.isposinf()).reshape(n, -1).any(1)
                inputs |= dict.fromkeys(index[broken.to(index.device)].tolist(), name)
        values = look.rows.value.detach()
        if len(values) and len(values) % n == 0:
            broken = ~values.isfinite().view(n, -1).all(1)
            losses += index[broken.to(index.device)].tolist()
    return {"inputs": inputs, "losses": losses, "n_samples": n_samples}


def _named_tensors(batch: Any, name: str) -> Iterable[tuple[str, Tensor]]:
    """The tensors in a batch, however deep, with the key they stand under."""
    if isinstance(batch, Tensor):
        if batch.ndim:
            yield name, batch
    elif isinstance(batch, Mapping):
        for key, value in batch.items():
            yield from _named_tensors(value, str(key))
    elif isinstance(batch, (list, tuple)):
        for value in batch:
            yield from _named_tensors(value, name)


def _cause(culprits: Sequence[Mapping[str, Any]]) -> tuple[str, list[int]]:
    """What is known of the samples, over all processes, in words and as indices."""
    inputs = {index: name for process in culprits for index, name in process["inputs"].items()}
    if inputs:
        samples = sorted(inputs)
        field = f' "{inputs[samples[0]]}"' if inputs[samples[0]] else ""
        return f"; NaN or inf in the input{field} of {_listed(samples)} of the data set", samples
    samples = sorted({index for process in culprits for index in process["losses"]})
    if samples and len(samples) < sum(process["n_samples"] for process in culprits):
        return f"; it comes from {_listed(samples)} of the data set", samples
    return "", []


def _listed(samples: Sequence[int]) -> str:
    shown = ", ".join(map(str, samples[:MOST_NAMED])) + (", …" if len(samples) > MOST_NAMED else "")
    return f"sample {shown}" if len(samples) == 1 else f"samples {shown}"
