"""Divergence: NaN or infinite losses, gradients and weights are reported at the step where they appear.

No extra device synchronization for each batch: the loss of a batch is read by the loop anyway. The gradient
norm and the weights of an update are read together, after the next batch's loss, or before an evaluation or
a checkpoint.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from sparring.backward.skipper import ForwardResult
from sparring.training.batches import Batch, named_tensors

if TYPE_CHECKING:
    from sparring.training.loop import Loop

MODES = ("raise", "warn", "ignore")
MAX_NAMED = 8  # samples in a message
MAX_SKIPPED = (
    40  # updates in a row that a gradient scaler may skip; its scale is 2**-40 of the first one then
)


class DivergenceError(RuntimeError):
    """Training produced NaN or an infinite number. The last checkpoint still holds finite weights.

    Attributes:
        reason: What happened and what to try.
        step: The step (planned batches, as in the logs) at which it appeared.
        epoch: Its epoch.
        last_loss: The mean loss of the last batch with a finite one; None where there was none.
        lr: The learning rate of the step.
        samples: Indices in the data set of the samples it comes from, where they are known.
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
    """Checks the numbers of a loop.

    Args:
        loop: The loop.
        mode: ``"raise"`` a DivergenceError, ``"warn"`` once and continue, or ``"ignore"``.
    """

    def __init__(self, loop: Loop, mode: str) -> None:
        if mode not in MODES:
            raise ValueError(f"on_divergence must be one of {', '.join(MODES)}; got {mode!r}")
        self.loop = loop
        self.mode = mode
        self.reset()

    def reset(self) -> None:
        """Prepare for a run."""
        self.last_loss: float | None = None
        self.n_skipped = 0  # updates that a gradient scaler skipped
        self._warned = False
        self._warned_unsaved = False
        self._n_skipped_in_a_row = 0
        self._scale: float | None = None  # of the gradient scaler before the last update
        self._update: tuple[int, float | Tensor, Tensor] | None = (
            None  # step, learning rate, norm and weights
        )

    def check_batch(
        self, batches: Sequence[Batch], results: Sequence[ForwardResult], loss: float, mass: float
    ) -> None:
        """Check a forward pass. ``loss`` is a sum over all processes, so all of them decide alike."""
        if self.mode == "ignore":
            return
        self.settle()
        if self._scale is None:
            self._scaler_skipped()  # reads the first scale
        if math.isfinite(loss):
            self.last_loss = loss / mass if mass else self.last_loss
        elif not self._warned:
            causes = self.loop.collectives.gather_objects(_find_causes(batches, results))
            step = self.loop.n_done + self.loop.engine.accumulation.n_micro + 1
            self._report(step, self._lr(), f"the loss of a batch is {loss}", causes)

    def add_update(self, step: int, norm: Tensor | None) -> None:
        """Remember the numbers of an update without reading them from the device.

        ``norm`` is the gradient norm, where gradients are clipped.
        """
        if self.mode == "ignore":
            return
        weights = _sum(self.loop.model.parameters())
        norm = weights.new_zeros(()) if norm is None else norm.detach().to(weights)
        self._update = (step, self._lr(), torch.stack([norm, weights]))

    def settle(self) -> None:
        """Check the last update. Gradients and weights are the same on all processes, so all decide alike."""
        if self._update is None:
            return
        step, lr, numbers = self._update
        self._update = None
        norm, weights = numbers.tolist()
        skipped = self._scaler_skipped()
        self.n_skipped += skipped
        self._n_skipped_in_a_row = self._n_skipped_in_a_row + 1 if skipped else 0
        if not math.isfinite(weights):
            and_norm = "" if math.isfinite(norm) else f", the norm of the gradients is {norm}"
            self._report(step, lr, f"{_describe_weights(self.loop.model)}{and_norm}")
        elif not math.isfinite(norm) and not skipped:
            self._report(step, lr, f"the norm of the gradients is {norm}")
        elif self._n_skipped_in_a_row >= MAX_SKIPPED:
            event = f"{MAX_SKIPPED} updates in a row were skipped: no loss scale makes the gradients finite"
            self._report(step, lr, event)

    def _scaler_skipped(self) -> bool:
        """Whether a gradient scaler skipped the update and lowered its scale, which is no divergence.

        Only the scale tells: an optimizer whose fused kernel skips the update seems to have stepped.
        """
        scaler = self.loop.accelerator.scaler
        if scaler is None:
            return False
        before = self._scale
        self._scale = scaler.get_scale()
        return before is not None and self._scale < before

    def check_evaluation(self, metrics: Mapping[str, float], metric: str) -> None:
        """Check an evaluation: a loss of NaN is divergence, another metric may be undefined."""
        if self.mode == "ignore":
            return
        step = self.loop.n_done
        if not math.isfinite(metrics.get("loss", 0.0)):
            self._report(step, self._lr(), f"the loss of the evaluation is {metrics['loss']}")
        elif math.isnan(metrics[metric]):
            self._warn(f"the evaluation after step {step} gave {metric} nan, which cannot be the best")

    def can_save(self) -> bool:
        """Whether the weights are finite. Otherwise they must not replace a good checkpoint."""
        self.settle()
        finite = math.isfinite(_sum(self.loop.model.parameters()).item())
        if not finite and not self._warned_unsaved and self.loop.folder is not None:
            self._warned_unsaved = True
            self._warn(
                f"weights are not finite after step {self.loop.n_done}: no checkpoint is written, the last"
                " good one stays"
            )
        return finite

    def _lr(self) -> float | Tensor:
        return self.loop.lr_schedule.get_last_lr()[0]

    def _warn(self, message: str) -> None:
        if self.loop.collectives.rank == 0:
            warnings.warn(message, stacklevel=3)

    def _report(
        self, step: int, lr: float | Tensor, event: str, causes: Sequence[Mapping[str, Any]] = ()
    ) -> None:
        if self._warned:
            return
        loop = self.loop
        lr = float(lr)
        epoch = loop.sampler.epoch
        place = f"training diverged at step {step} of {loop.total_steps} (epoch {epoch})"
        last_loss = "none yet" if self.last_loss is None else f"{self.last_loss:.6g}"
        description, samples = _describe_causes(causes)
        norm = loop.max_grad_norm
        clipping = "max_grad_norm=1" if norm is None else f"max_grad_norm is {norm:g} now"
        advice = f"try a lower learning rate or gradient clipping ({clipping}), and look at the input data"
        if any(process["inputs"] for process in causes):
            advice = "correct the data, or leave these samples out"
        reason = f"{place}: {event}; last good loss {last_loss}, learning rate {lr:g}{description}; {advice}"
        if self.mode == "raise":
            raise DivergenceError(
                f'{reason}. on_divergence="warn" or "ignore" continues',
                reason=reason,
                step=step,
                epoch=epoch,
                last_loss=self.last_loss,
                lr=lr,
                samples=tuple(samples),
            )
        self._warned = True
        self._warn(reason)


def _sum(parameters: Iterable[nn.Parameter]) -> Tensor:
    """The sum of all trained weights: not finite if one of them is not. A norm would take far longer."""
    sums = [torch.zeros((), dtype=torch.float64)]
    for parameter in parameters:
        if parameter.requires_grad:
            weights = torch.view_as_real(parameter.detach()) if parameter.is_complex() else parameter.detach()
            sums.append(weights.sum(dtype=torch.promote_types(weights.dtype, torch.float32)).double())
    return torch.stack(sums[1:] or sums).sum()


def _describe_weights(model: nn.Module) -> str:
    for name, parameter in model.named_parameters():
        if parameter.requires_grad and not bool(parameter.isfinite().all()):
            return f"the update made weights NaN or infinite (the first is {name})"
    return "the sum of the weights overflows"


def _find_causes(batches: Sequence[Batch], results: Sequence[ForwardResult]) -> dict[str, Any]:
    """Samples here with NaN or +inf in their input (masks are made of -inf), and those with such a loss."""
    inputs: dict[int, str] = {}
    losses: list[int] = []
    for batch, result in zip(batches, results, strict=True):
        n = result.n_samples
        for name, tensor in named_tensors(batch.data):
            if tensor.is_floating_point() and len(tensor) == n:
                broken = (tensor.isnan() | tensor.isposinf()).reshape(n, -1).any(1)
                inputs |= dict.fromkeys(batch.indices[broken.to(batch.indices.device)].tolist(), name)
        values = result.rows.value.detach()
        if len(values) and len(values) % n == 0:
            broken = ~values.isfinite().view(n, -1).all(1)
            losses += batch.indices[broken.to(batch.indices.device)].tolist()
    n_samples = sum(result.n_samples for result in results)
    return {"inputs": inputs, "losses": losses, "n_samples": n_samples}


def _describe_causes(causes: Sequence[Mapping[str, Any]]) -> tuple[str, list[int]]:
    """What is known of the samples, over all processes: a text and their indices."""
    inputs = {index: name for process in causes for index, name in process["inputs"].items()}
    if inputs:
        samples = sorted(inputs)
        name = inputs[samples[0]]
        field = f' "{name}"' if name else ""
        return f"; NaN or inf in the input{field} of {_list_samples(samples)} of the data set", samples
    samples = sorted({index for process in causes for index in process["losses"]})
    if samples and len(samples) < sum(process["n_samples"] for process in causes):
        return f"; it comes from {_list_samples(samples)} of the data set", samples
    return "", []


def _list_samples(samples: Sequence[int]) -> str:
    numbers = ", ".join(map(str, samples[:MAX_NAMED])) + (", …" if len(samples) > MAX_NAMED else "")
    return f"sample {numbers}" if len(samples) == 1 else f"samples {numbers}"
