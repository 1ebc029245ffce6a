"""Lightning: a module that takes its own steps, or a callback beside an automatic one.

``SparringModule`` optimizes by hand, so AS-Speed, skipping and resting are exact: a window's gradient is that of the mean over its rows.

    class Classifier(SparringModule, lightning.LightningModule):
        def __init__(self):
            super().__init__(loss="as-softmax", delta=0.3, accumulation=4)
            self.net = …
        def forward(self, x): return self.net(x)
        def configure_optimizers(self): …

``SparringCallback`` is for a module that stays as it is: it skips the backward of what is won, moves δ and logs; accumulation grows only
where Lightning's windows end anyway.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn
from torch.optim.lr_scheduler import ReduceLROnPlateau

from sparring.integrations.corner import Corner, part_of
from sparring.integrations.lightning_callback import REFUSED, SparringCallback
from sparring.integrations.loaders import Rounds, Slots
from sparring.integrations.settings import Settings
from sparring.losses import Loss
from sparring.training import batches, checkpoint
from sparring.training.accumulation import ConstantAccumulation

if TYPE_CHECKING:
    from lightning.pytorch import LightningModule

__all__ = ["SparringCallback", "SparringModule"]


class SparringModule(LightningModule if TYPE_CHECKING else object):  # type: ignore[misc]
    """A mixin for a LightningModule: it has the ``training_step``. Settings are those of ``SparringTrainer`` (``loss``, ``delta``,
    ``delta_warmup``, ``speed``, ``skip``, ``rest``, ``accumulation``, ``lam``) and ``max_grad_norm``, since Lightning leaves clipping to
    modules that optimize by hand.

    Learning-rate schedules with ``interval="step"`` go by batches, whatever the accumulation, so they end where
    ``trainer.estimated_stepping_batches`` says; ``trainer.global_step`` counts updates. To let samples rest, return
    ``self.resting(dataset, batch_size)`` from ``train_dataloader``.
    """

    objective: Loss

    def __init__(self, *args: Any, max_grad_norm: float | None = None, **keywords: Any) -> None:
        settings, rest = Settings.split(keywords)
        super().__init__(*args, **rest)
        self.automatic_optimization = False
        self.settings, self.max_grad_norm = settings, max_grad_norm
        self.__dict__["objective"] = settings.objective(
            self
        )  # no submodule: its state goes with ours, once δ's schedule is known
        self._corner: Corner | None = None
        self._slots: Slots | None = None
        self._left_off: Any = None  # of a checkpoint
        self._n_waiting = 0  # batches since the last step

    def logits_and_targets(self, model: nn.Module, batch: Any) -> tuple[Tensor, Tensor]:
        """Of a batch, as our losses take them. Override it for batches other than dicts with labels and tuples that end in targets."""
        return batches.forward(model, batch)

    def resting(
        self,
        dataset: Any,
        batch_size: int,
        *,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        **loading: Any,
    ) -> Slots:
        """The loader of an epoch's samples without those who rest. Calling it is enough: ``rest=True`` goes without saying.

        Raises:
            ValueError: with ``rest=False``, which says the opposite.
        """
        settings = self.settings
        if settings.rest is None:
            settings = replace(settings, rest=True)
        card = settings.card(len(dataset), self)
        if card is None:
            raise ValueError(
                "rest=False says that nobody rests; leave it out, or return a DataLoader from train_dataloader"
            )
        card.check_for(len(dataset), self)
        card.forget()
        self._card = card
        self._slots = Slots(Rounds(dataset, card, batch_size, collate=collate_fn, **loading))
        return self._slots

    # ------------------------------------------------------------ a run

    def on_fit_start(self) -> None:
        if (name := type(self.trainer.strategy).__name__) in REFUSED:
            raise ValueError(
                f"{name} keeps gradients where skipping and AS-Speed cannot reach them; use strategy='ddp', or one device"
            )
        super().on_fit_start()

    def on_train_start(self) -> None:
        slots = self._slots
        if self.settings.rests(self) and slots is None:
            raise ValueError(
                "to let samples rest, return self.resting(dataset, batch_size) from train_dataloader"
            )
        if self._corner is not None:
            self._corner.remove()  # of a fit that ended with an error
        self.__dict__["objective"] = self.settings.objective(self)
        windows = self.settings.windows() or ConstantAccumulation()
        if self.settings.delta_warmup:
            self.settings.warm(self.objective, int(self.trainer.estimated_stepping_batches))
        windows.reset()
        corner = self._corner = Corner(
            self, self.objective, self.logits_and_targets, engine=_Backward(self), device=self.device, windows=windows,
            skip=self.settings.skipping(), scorecard=None if slots is None else self._card,
            collate=None if slots is None else slots.rounds.collate.collate,
        )  # fmt: skip
        if slots is not None:
            corner.samples, corner.batch_size = slots.rounds.samples, slots.rounds.sampler.batch_size
        left_off, self._left_off, self._n_waiting = self._left_off, None, 0
        if left_off is not None and self.trainer.ckpt_path:  # not where only the weights were loaded
            self._go_on(corner, left_off)
        super().on_train_start()

    def on_train_end(self) -> None:
        if self._corner is not None:
            self._corner.remove()
        super().on_train_end()

    def training_step(self, batch: Any, batch_idx: int) -> None:
        corner, trainer = self._corner, self.trainer
        if corner is None:
            raise ValueError(
                "SparringModule prepares a run in on_train_start; one of your own must call super().on_train_start()"
            )
        if self._slots is None:
            corner.fight([part_of(batch)])
        else:
            corner.fight(batch)
            self._slots.trained(batch)
        self._n_waiting += 1
        if corner.windows.should_step or trainer.is_last_batch:
            self._step(corner, batch_idx)

    def on_before_optimizer_step(self, optimizer: Any) -> None:
        """Gradients are unscaled by now."""
        if self.max_grad_norm is not None:
            self.clip_gradients(
                optimizer, gradient_clip_val=self.max_grad_norm, gradient_clip_algorithm="norm"
            )
        super().on_before_optimizer_step(optimizer)

    def _step(self, corner: Corner, batch_idx: int) -> None:
        optimizer: Any = self.optimizers()
        if isinstance(optimizer, list):
            raise ValueError(
                f"SparringModule steps one optimizer; configure_optimizers returned {len(optimizer)}"
            )
        loss = corner.close()
        if any(parameter.grad is not None for parameter in self.parameters()):  # somebody fought
            optimizer.step()
        optimizer.zero_grad()
        waiting, self._n_waiting = self._n_waiting, 0
        corner.follow(waiting)
        for config in self.trainer.lr_scheduler_configs:
            if config.interval == "step" and not isinstance(config.scheduler, ReduceLROnPlateau):
                for n_done in range(batch_idx + 2 - waiting, batch_idx + 2):
                    if n_done % config.frequency == 0:
                        config.scheduler.step()
        delta = corner.delta()
        found = {"train_loss": loss, "won_share": corner.won_share, "accumulation": float(corner.n_micro)}
        found |= {"samples_backward": float(corner.counts()["n_backward"])} | (
            {} if delta is None else {"delta": delta}
        )
        self.log_dict(found, on_step=True, on_epoch=False)

    def on_train_epoch_end(self) -> None:
        for config in self.trainer.lr_scheduler_configs:
            if config.interval != "epoch" or (self.current_epoch + 1) % config.frequency:
                continue
            if isinstance(config.scheduler, ReduceLROnPlateau):
                config.scheduler.step(self.trainer.callback_metrics[config.monitor])
            else:
                config.scheduler.step()
        super().on_train_epoch_end()

    # ------------------------------------------------------------ checkpoints

    def on_save_checkpoint(self, checkpoint_: dict[str, Any]) -> None:
        super().on_save_checkpoint(checkpoint_)
        if (corner := self._corner) is None:
            return
        own = {"corner": corner.state_dict(), "random": checkpoint.random_state(), "waiting": self._n_waiting}
        own["slots"] = None if self._slots is None else self._slots.state_dict()
        if self._n_waiting:  # in the middle of a window
            own["gradients"] = {name: p.grad for name, p in self.named_parameters() if p.grad is not None}
        checkpoint_["sparring"] = corner.replicas.gather(own)

    def on_load_checkpoint(self, checkpoint_: dict[str, Any]) -> None:
        super().on_load_checkpoint(checkpoint_)
        self._left_off = checkpoint_.get("sparring")

    def _go_on(self, corner: Corner, everybody: Any) -> None:
        if len(everybody) != corner.replicas.size:
            raise ValueError(
                f"the checkpoint is of {len(everybody)} process(es), this run has {corner.replicas.size}"
            )
        own = everybody[corner.replicas.rank]
        corner.load_state_dict(own["corner"])
        self._n_waiting = own["waiting"]
        for name, parameter in self.named_parameters():
            if name in own.get("gradients", {}):
                parameter.grad = own["gradients"][name].to(parameter.device)
        checkpoint.set_random_state(own["random"])
        if self._slots is not None:
            self._slots.load_state_dict(own["slots"])
        elif (fetcher := getattr(self.trainer.fit_loop, "_data_fetcher", None)) is not None:
            iter(fetcher)  # a loader draws a seed when it begins: from the random numbers there were


class _Backward:
    """What a Corner needs of an Accelerator, for a module: nothing is summed over processes until the window is over."""

    def __init__(self, module: Any) -> None:
        self.module = module

    def backward(self, loss: Tensor) -> None:
        strategy = self.module.trainer.strategy
        if hasattr(strategy, "block_backward_sync"):
            with strategy.block_backward_sync():
                self.module.manual_backward(loss)
        else:
            self.module.manual_backward(loss)
