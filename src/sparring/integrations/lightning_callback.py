"""A callback for Lightning modules with automatic optimization."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import ReduceLROnPlateau

from sparring.backward.compact import Compaction, compact
from sparring.heads.parallel.collectives import Collectives
from sparring.integrations.lightning_imports import Callback, LightningModule, Trainer, rank_zero_warn
from sparring.losses import Loss
from sparring.losses.base import MultilabelLoss, reduce
from sparring.training.accumulation import AdaptiveAccumulation
from sparring.training.engine import current_delta
from sparring.training.progress import step_schedules

REFUSED = ("DeepSpeedStrategy", "FSDPStrategy", "ModelParallelStrategy")


class SparringCallback(Callback):
    """Skips the backward pass of won samples, moves δ and κ, and logs the shares of won and conceded rows.

    For a module that optimizes automatically and has one of our losses. To concede, give the loss a
    `WarmupConcede`: the callback adds no warm-up to a number.

    Args:
        loss: The loss of the module; not needed where it has only one. skip: Whether to skip backward
        passes. model: The part of the module that its training step calls: by default the module itself
        where it has a
            ``forward``, otherwise all of its children.
        accumulation: AS-Speed: the most batches of a step. Lightning can change it only between windows that
            end together, so it grows later than the rule says. For rows of uneven number (tokens) a window
            is a mean of means. `SparringModule` has neither limit.
    """

    def __init__(
        self,
        loss: Loss | None = None,
        *,
        skip: bool = True,
        model: nn.Module | None = None,
        accumulation: AdaptiveAccumulation | int | None = None,
    ) -> None:
        if not isinstance(accumulation, AdaptiveAccumulation):
            accumulation = AdaptiveAccumulation(max_steps=accumulation or 1)
        self.accumulation = accumulation
        self.accumulates = accumulation.max_steps > 1  # otherwise the Trainer's own accumulation holds
        self.skip = skip
        self.model = model
        self.loss = loss
        self._module_loss: Loss | None = None  # of the module that is fitted
        self._compactions: list[Compaction] = []
        self._counts: list[Tensor] = []  # valid, won and conceded rows of this window
        self._n_updates = 0
        self._n_micro = 0  # batches of this window
        self._saved: dict[str, Any] | None = None

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if not pl_module.automatic_optimization:
            raise ValueError(
                "SparringCallback is for automatic optimization; a module with manual optimization can be a"
                " SparringModule"
            )
        sharded = type(trainer.strategy).__name__ in REFUSED
        if self.accumulates and (trainer.accumulate_grad_batches != 1 or sharded):
            raise ValueError("AS-Speed needs accumulate_grad_batches=1, and DDP or one device")
        loss = self._module_loss = self.loss or _only_loss(pl_module)
        self.accumulation.reset()
        if self._saved is not None:
            self.accumulation.load_state_dict(self._saved["accumulation"])
            loss.load_state_dict(self._saved["loss"])
            self._saved = None
        self._count_rows(loss)
        self._collectives = Collectives(device=pl_module.device)
        if self.skip:
            called = [self.model or pl_module]
            if self.model is None and type(pl_module).forward is LightningModule.forward:
                called = list(pl_module.children())
            self._compactions = [compact(part) for part in called if any(True for _ in part.parameters())]

    def _count_rows(self, loss: Loss) -> None:
        """Wrap the loss so that it counts the rows of each forward pass in training."""

        def forward(input: Tensor, target: Tensor, **options: Any) -> Tensor:
            rows = loss.rows(input, target, **options)
            if torch.is_grad_enabled():
                masks = (rows.valid, rows.won, rows.valid & ~rows.active & ~rows.won)
                self._counts.append(torch.stack([mask.sum() for mask in masks]))
            shape = target.shape[:-1] if isinstance(loss, MultilabelLoss) else target.shape
            return reduce(rows, loss.reduction, input, shape)

        loss.forward = forward  # type: ignore[method-assign]

    # ------------------------------------------------------------ windows

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._n_updates = trainer.global_step
        self._n_micro = 0
        self._counts.clear()
        if self.accumulates:
            trainer.accumulate_grad_batches = self.accumulation.steps

    def on_before_optimizer_step(self, trainer: Trainer, pl_module: LightningModule, optimizer: Any) -> None:
        """Correct the gradients of a short window: Lightning divides by the length it should have."""
        if self.accumulates and self._n_micro < trainer.accumulate_grad_batches:
            for parameter in pl_module.parameters():
                if parameter.grad is not None:
                    parameter.grad.mul_(trainer.accumulate_grad_batches / self._n_micro)

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        self._n_micro += 1

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if trainer.global_step == self._n_updates:
            return
        assert self._module_loss is not None
        self._n_updates = trainer.global_step
        n_micro, self._n_micro = self._n_micro, 0
        counts = torch.stack(self._counts).sum(0).tolist() if self._counts else [0, 0, 0]
        self._counts.clear()
        n_all, n_won, n_conceded = (int(count) for count in self._collectives.sum_numbers(counts))
        won_share = n_won / n_all if n_all else 0.0
        n_steps = n_micro if self.accumulates else 1
        step_schedules(self._module_loss, n_steps, won_share)
        _step_schedules(trainer, n_steps - 1)  # Lightning has taken the first step
        if self.accumulates:
            self._grow(trainer, n_all, n_won, position=0 if trainer.is_last_batch else batch_idx + 1)
        entry = {"won_share": won_share, "accumulation": float(n_micro)}
        if (delta := current_delta(self._module_loss)) is not None:
            entry["delta"] = delta
        if getattr(self._module_loss, "concede", None) is not None:
            entry["conceded_share"] = n_conceded / n_all if n_all else 0.0
        if self._compactions:
            entry["samples_backward"] = float(self._compactions[0].stats.n_samples_backward)
        pl_module.log_dict(entry, on_step=True, on_epoch=False)

    def _grow(self, trainer: Trainer, n_all: int, n_won: int, position: int) -> None:
        """Change the window length where a window of the new one can begin: Lightning counts from 0."""
        steps = self.accumulation.grown(n_all, n_won)
        if position % steps == 0 and position % self.accumulation.steps == 0:
            self.accumulation.steps = trainer.accumulate_grad_batches = steps

    # ------------------------------------------------------------ state

    def state_dict(self) -> dict[str, Any]:
        loss = {} if self._module_loss is None else self._module_loss.state_dict()
        return {"accumulation": self.accumulation.state_dict(), "loss": loss}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._saved = state_dict  # until the fit begins

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self.skip and not any(compaction.stats.n_backward for compaction in self._compactions):
            reasons = {reason for compaction in self._compactions for reason in compaction.stats.reasons}
            not_called = "training_step calls neither the module itself nor SparringCallback(model=…)"
            rank_zero_warn(f"nothing was skipped: {', '.join(sorted(reasons)) or not_called}")
        self._undo(trainer)

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        self._undo(trainer)

    def _undo(self, trainer: Trainer) -> None:
        """Restore the module and the Trainer."""
        for compaction in self._compactions:
            compaction.remove()
        self._compactions = []
        if self._module_loss is not None:
            vars(self._module_loss).pop("forward", None)
        if self.accumulates:
            trainer.accumulate_grad_batches = 1


def _step_schedules(trainer: Trainer, n_steps: int) -> None:
    for config in trainer.lr_scheduler_configs:
        if isinstance(config.scheduler, ReduceLROnPlateau):
            continue
        if config.interval == "step" and config.frequency == 1:
            for _ in range(n_steps):
                config.scheduler.step()


def _only_loss(module: nn.Module) -> Loss:
    losses = [part for part in module.modules() if isinstance(part, Loss)]
    if len(losses) != 1:
        raise ValueError(
            f"{type(module).__name__} has {len(losses)} of our losses; name one with SparringCallback(loss=…)"
        )
    return losses[0]
