"""A callback for Lightning modules that optimize automatically."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import ReduceLROnPlateau

from sparring.backward.skipper import compact
from sparring.losses import Loss
from sparring.losses.base import MultilabelLoss, reduce
from sparring.losses.delta import DeltaSchedule, delta_value
from sparring.training.accumulation import AdaptiveAccumulation
from sparring.training.replicas import Replicas

try:
    from lightning.pytorch import Callback, LightningModule, Trainer
    from lightning.pytorch.utilities import rank_zero_warn
except ImportError as error:
    raise ImportError("this needs Lightning: pip install 'sparring[lightning]'") from error

REFUSED = ("DeepSpeedStrategy", "FSDPStrategy", "ModelParallelStrategy")


class SparringCallback(Callback):
    """Beside a module that optimizes automatically and has one of our losses: no backward for what is won, δ that moves, and the won
    share in the logs.

    Args:
        loss: the module's loss; found by itself where there is one.
        skip: no backward for samples that are won. ``model`` says which part of the module is called in its training step: the module
            itself where it has a ``forward``, else all its children.
        accumulation: AS-Speed, the most batches a step may gather. Lightning can change over only between windows that end together, so it
            grows later than the rule says; for rows of uneven number (tokens) a window is a mean of means. ``SparringModule`` has neither
            limit.
    """

    def __init__(
        self,
        loss: Loss | None = None,
        *,
        skip: bool = True,
        model: nn.Module | None = None,
        accumulation: AdaptiveAccumulation | int | None = None,
    ) -> None:
        self.given, self.skip, self.model = loss, skip, model
        self.loss: Loss | None = None  # of the module that is fitted
        self.windows = (
            accumulation
            if isinstance(accumulation, AdaptiveAccumulation)
            else AdaptiveAccumulation(max_steps=accumulation or 1)
        )
        self._compactions: list[Any] = []
        self._counts: list[Tensor] = []  # of the window: valid and won rows
        self._n_stepped = 0  # updates so far
        self._n_micro = 0  # batches of this window
        self._loaded: dict[str, Any] | None = None

    @property
    def gathers(self) -> bool:
        """Whether accumulation is ours: else it is the Trainer's."""
        return self.windows.max_steps > 1

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if not pl_module.automatic_optimization:
            raise ValueError(
                "SparringCallback is for automatic optimization; a module that optimizes by hand can be a SparringModule"
            )
        if self.gathers and (
            trainer.accumulate_grad_batches != 1 or type(trainer.strategy).__name__ in REFUSED
        ):
            raise ValueError("AS-Speed needs accumulate_grad_batches=1 to begin with, and DDP or one device")
        self.loss = self.given or _only_loss(pl_module)
        self.windows.reset()
        if self._loaded is not None:
            self.windows.load_state_dict(self._loaded["windows"])
            self.loss.load_state_dict(self._loaded["loss"])
        self._loaded = None
        self._watch(self.loss)
        self._replicas = Replicas(pl_module.device)
        if self.skip:
            has_forward = type(pl_module).forward is not LightningModule.forward
            called = (
                [self.model]
                if self.model is not None
                else [pl_module]
                if has_forward
                else list(pl_module.children())
            )
            self._compactions = [compact(part) for part in called if any(True for _ in part.parameters())]

    def _watch(self, loss: Loss) -> None:
        """Keep the rows of each loss that is computed in training."""

        def forward(input: Tensor, target: Tensor) -> Tensor:
            rows = loss.rows(input, target)
            if torch.is_grad_enabled():
                self._counts.append(torch.stack([rows.valid.sum(), rows.won.sum()]))
            return reduce(
                rows,
                loss.reduction,
                input,
                target.shape[:-1] if isinstance(loss, MultilabelLoss) else target.shape,
            )

        loss.forward = forward

    # ------------------------------------------------------------ windows

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._n_stepped = trainer.global_step
        self._n_micro = 0
        self._counts.clear()
        if self.gathers:
            trainer.accumulate_grad_batches = self.windows.steps

    def on_before_optimizer_step(self, trainer: Trainer, pl_module: LightningModule, optimizer: Any) -> None:
        """Lightning divides by the length a window should have; a short one at the end of an epoch has fewer."""
        if self.gathers and self._n_micro < trainer.accumulate_grad_batches:
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
        if trainer.global_step == self._n_stepped:
            return
        self._n_stepped = trainer.global_step
        n_micro, self._n_micro = self._n_micro, 0
        counts = torch.stack(self._counts).sum(0).tolist() if self._counts else [0, 0]
        n_all, n_won = (int(count) for count in self._replicas.sum(counts))
        self._counts.clear()
        won_share = n_won / n_all if n_all else 0.0
        self._follow(trainer, n_micro if self.gathers else 1, won_share)
        if self.gathers:
            self._grow(trainer, n_all, n_won, aligned=0 if trainer.is_last_batch else batch_idx + 1)
        assert self.loss is not None
        delta = getattr(self.loss, "delta", None)
        found = {"won_share": won_share, "accumulation": float(n_micro)} | (
            {} if delta is None else {"delta": delta_value(delta)}
        )
        if self._compactions:
            found["samples_backward"] = float(self._compactions[0].stats.n_samples_backward)
        pl_module.log_dict(found, on_step=True, on_epoch=False)

    def _follow(self, trainer: Trainer, n_micro: int, won_share: float) -> None:
        """δ and a rate that goes by every step go by batches; Lightning has taken the rate's first step."""
        delta = getattr(self.loss, "delta", None)
        for i in range(n_micro):
            if isinstance(delta, DeltaSchedule):
                delta.step(won_share)
            for config in trainer.lr_scheduler_configs if i else ():
                if (
                    config.interval == "step"
                    and config.frequency == 1
                    and not isinstance(config.scheduler, ReduceLROnPlateau)
                ):
                    config.scheduler.step()

    def _grow(self, trainer: Trainer, n_all: int, n_won: int, aligned: int) -> None:
        """The next window's length, where one of that length can begin: Lightning counts from the beginning of an epoch."""
        now = self.windows.steps
        wanted = self.windows.grown(n_all, n_won)
        if aligned % wanted == 0 and aligned % now == 0:
            self.windows.steps = trainer.accumulate_grad_batches = wanted

    # ------------------------------------------------------------ what is kept

    def state_dict(self) -> dict[str, Any]:
        return {
            "windows": self.windows.state_dict(),
            "loss": {} if self.loss is None else self.loss.state_dict(),
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._loaded = state_dict  # for the fit that begins

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self.skip and not any(compaction.stats.n_backward for compaction in self._compactions):
            reasons = {reason for compaction in self._compactions for reason in compaction.stats.reasons}
            uncalled = (
                "training_step does not call what SparringCallback(model=…) was told, or the module itself"
            )
            rank_zero_warn(f"nothing was skipped: {', '.join(sorted(reasons)) or uncalled}")
        self._undo(trainer)

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        self._undo(trainer)

    def _undo(self, trainer: Trainer) -> None:
        """Give module and Trainer back as they were."""
        for compaction in self._compactions:
            compaction.remove()
        self._compactions = []
        if self.loss is not None:
            vars(self.loss).pop("forward", None)
        if self.gathers:
            trainer.accumulate_grad_batches = 1


def _only_loss(module: nn.Module) -> Loss:
    """The one of ours that a module has."""
    found = [part for part in module.modules() if isinstance(part, Loss)]
    if len(found) != 1:
        raise ValueError(
            f"{type(module).__name__} has {len(found)} of our losses; SparringCallback(loss=…) says which is meant"
        )
    return found[0]
