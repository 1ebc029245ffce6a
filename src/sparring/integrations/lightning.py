"""Lightning: a module with manual optimization, or a callback for a module with automatic optimization.

`SparringModule` optimizes manually, so AS-Speed, skipping and resting are exact:

    class Classifier(SparringModule, lightning.LightningModule):
        def __init__(self):
            super().__init__(loss="as-softmax", delta=0.3, accumulation=4)
            self.net = …
        def forward(self, x): return self.net(x)
        def configure_optimizers(self): …

`SparringCallback` leaves the module as it is: it skips the backward pass of won samples, moves δ and logs.
Accumulation grows only where Lightning's windows end anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn
from torch.optim.lr_scheduler import ReduceLROnPlateau

from sparring.integrations.lightning_callback import REFUSED, SparringCallback
from sparring.integrations.settings import Settings
from sparring.losses import Loss
from sparring.losses.delta import DeltaSchedule
from sparring.training import batches, checkpoint
from sparring.training.batches import Batch
from sparring.training.engine import Engine
from sparring.training.fitted_head.fit_first import fit_first
from sparring.training.resting.sampler import RestingLoader

if TYPE_CHECKING:
    from lightning.pytorch import LightningModule

__all__ = ["SparringCallback", "SparringModule"]


class FixedLengthLoader:
    """The epochs of a `RestingLoader` in as many items as an epoch has planned batches: lists of batches.

    For trainers that count items. A list may be empty.
    """

    def __init__(self, loader: RestingLoader) -> None:
        self.loader = loader
        self.n_done = 0  # items of this epoch that were trained on

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Iterator[list[Batch]]:
        n_items = self.n_done = self.n_done % len(self)
        if n_items:  # restored inside of an epoch: its last batch may count for items that are still to come
            for _ in range(n_items, self.loader.n_done):
                yield []
            n_items = max(n_items, self.loader.n_done)
            if self.loader.finished:
                return
        item: list[Batch] = []
        for batch in self.loader:
            item.append(batch)
            while n_items < batch.n_done:
                yield item
                item = []
                n_items += 1

    def add_done(self, item: list[Batch]) -> None:
        """Count an item that was trained on."""
        self.n_done += 1
        self.loader.position += len(item)

    def state_dict(self) -> dict[str, Any]:
        return {**self.loader.state_dict(), "n_done": self.n_done}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.loader.load_state_dict(state)
        self.n_done = state["n_done"]


class SparringModule(LightningModule if TYPE_CHECKING else object):  # type: ignore[misc]
    """A mixin for a LightningModule that brings the ``training_step``.

    Learning-rate schedules with ``interval="step"`` count batches, whatever the accumulation, so they end
    where ``trainer.estimated_stepping_batches`` says. ``trainer.global_step`` counts updates. To let
    samples rest, return ``self.resting(dataset, batch_size)`` from ``train_dataloader``.

    Args:
        loss, delta, delta_warmup, concede, concede_warmup, speed, fit_head, settle, skip, rest,
            accumulation, lam: As those of `SparringTrainer`.
        max_grad_norm: Clips gradients, which Lightning does not do under manual optimization.
        args, keywords: Of the LightningModule.

    Raises:
        ValueError: For settings out of their range.
        TypeError: For a loss of another library.
    """

    objective: Loss

    def __init__(self, *args: Any, max_grad_norm: float | None = None, **keywords: Any) -> None:
        settings, others = Settings.split(keywords)
        super().__init__(*args, **others)
        self.automatic_optimization = False
        self.settings = settings
        self.max_grad_norm = max_grad_norm
        self._resolve()
        self.engine: Engine | None = None
        self._loader: FixedLengthLoader | None = None
        self._saved: Any = None  # the states of all processes in a checkpoint
        self._n_waiting = 0  # batches since the last step

    def _resolve(self) -> None:
        self._parts = self.settings.resolve(self)
        # not as a submodule: its state is saved with the engine's
        self.__dict__["objective"] = self._parts.loss

    def logits_and_targets(self, model: nn.Module, batch: Any) -> tuple[Tensor, Tensor]:
        """Logits and targets of a batch. Override it for batches that `batches.forward` does not accept."""
        return batches.forward(model, batch)

    def resting(
        self,
        dataset: Any,
        batch_size: int,
        *,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        **loading: Any,
    ) -> FixedLengthLoader:
        """A loader that leaves out the samples that rest. It implies ``rest=True``.

        Args:
            dataset: A map-style data set.
            batch_size: Samples of a batch on each process.
            collate_fn: Makes a batch of a list of samples.
            loading: Further arguments: ``lengths``, ``shuffle``, ``seed``, and those of a ``DataLoader``.

        Raises:
            ValueError: With ``rest=False``.
        """
        settings = replace(self.settings, rest=True) if self.settings.rest is None else self.settings
        card = settings.resolve(self, len(dataset), loading.get("seed", 0)).scorecard
        if card is None:
            raise ValueError(
                "rest=False excludes resting; leave it out, or return a DataLoader from train_dataloader"
            )
        order = {name: loading.pop(name) for name in ("lengths", "shuffle", "seed") if name in loading}
        loader = RestingLoader(dataset, card, batch_size, collate_fn, loading=loading, **order)
        self._loader = FixedLengthLoader(loader)
        return self._loader

    # ------------------------------------------------------------ a run

    def on_fit_start(self) -> None:
        if (name := type(self.trainer.strategy).__name__) in REFUSED:
            raise ValueError(
                f"{name} keeps gradients where skipping and AS-Speed cannot reach them; use"
                " strategy='ddp', or one device"
            )
        super().on_fit_start()

    def on_train_start(self) -> None:
        if self.engine is not None:
            self.engine.close()  # after a fit that ended with an error
        self._resolve()
        loader = None if self._loader is None else self._loader.loader
        if self._parts.scorecard is not None and loader is None:
            raise ValueError(
                "to let samples rest, return self.resting(dataset, batch_size) from train_dataloader"
            )
        parts = self._parts._replace(scorecard=None if loader is None else loader.scorecard)
        schedules = (getattr(self.objective, name, None) for name in ("delta", "concede"))
        scheduled = any(isinstance(value, DeltaSchedule) for value in schedules)
        concedes = getattr(self.objective, "concede", None) is not None
        rests = parts.scorecard is not None
        if self.settings.delta_warmup or parts.settle or concedes or scheduled or rests:
            n_planned = None if loader is None else len(loader)
            self.settings.set_length(parts, self.trainer.estimated_stepping_batches, n_planned)
        forward = self.logits_and_targets
        self.engine = Engine(self, parts, forward, device=self.device, loader=loader, backward=self._backward)
        self._n_waiting = 0
        if self._saved is not None and self.trainer.ckpt_path:  # not where only the weights were loaded
            self._restore(self.engine, self._saved)
        self._saved = None
        fit_first(self.engine, self.trainer.global_step, required=self.settings.fit_head is True)
        super().on_train_start()

    def on_train_end(self) -> None:
        if self.engine is not None:
            self.engine.close()
        super().on_train_end()

    def _backward(self, loss: Tensor) -> None:
        """The engine sums gradients over processes at the end of a window, so DDP must not."""
        strategy: Any = self.trainer.strategy
        blocks = hasattr(strategy, "block_backward_sync")
        with strategy.block_backward_sync() if blocks else nullcontext():
            self.manual_backward(loss)

    def training_step(self, batch: Any, batch_idx: int) -> None:
        engine = self.engine
        if engine is None:
            raise ValueError(
                "SparringModule prepares a run in on_train_start; an override must call super()'s"
            )
        engine.train_window([Batch.of(batch)] if self._loader is None else batch)
        if self._loader is not None:
            self._loader.add_done(batch)
        self._n_waiting += 1
        if engine.accumulation.should_step or self.trainer.is_last_batch:
            self._step(engine, batch_idx)

    def on_before_optimizer_step(self, optimizer: Any) -> None:
        """Clip the gradients, which are unscaled by now."""
        if self.max_grad_norm is not None:
            self.clip_gradients(
                optimizer, gradient_clip_val=self.max_grad_norm, gradient_clip_algorithm="norm"
            )
        super().on_before_optimizer_step(optimizer)

    def _step(self, engine: Engine, batch_idx: int) -> None:
        optimizer: Any = self.optimizers()
        if isinstance(optimizer, list):
            raise ValueError(
                f"SparringModule steps one optimizer; configure_optimizers returned {len(optimizer)}"
            )
        window = engine.close_window()
        if any(parameter.grad is not None for parameter in self.parameters()):
            optimizer.step()
        optimizer.zero_grad()
        n_waiting, self._n_waiting = self._n_waiting, 0
        engine.follow(n_waiting)
        for config in self.trainer.lr_scheduler_configs:
            if config.interval == "step" and not isinstance(config.scheduler, ReduceLROnPlateau):
                for n_done in range(batch_idx + 2 - n_waiting, batch_idx + 2):
                    if n_done % config.frequency == 0:
                        config.scheduler.step()
        entry = {
            "train_loss": window.loss,
            "won_share": window.won_share,
            "accumulation": float(window.accumulation),
            "samples_backward": engine.totals()["n_backward"],
        }
        if window.conceded_share is not None:
            entry["conceded_share"] = window.conceded_share
        if engine.delta is not None:
            entry["delta"] = engine.delta
        self.log_dict(entry, on_step=True, on_epoch=False)

    def on_train_epoch_end(self) -> None:
        for config in self.trainer.lr_scheduler_configs:
            if config.interval == "epoch" and (self.current_epoch + 1) % config.frequency == 0:
                plateau = isinstance(config.scheduler, ReduceLROnPlateau)
                config.scheduler.step(*[self.trainer.callback_metrics[config.monitor]] if plateau else [])
        super().on_train_epoch_end()

    # ------------------------------------------------------------ checkpoints

    def on_save_checkpoint(self, checkpoint_: dict[str, Any]) -> None:
        super().on_save_checkpoint(checkpoint_)
        if self.engine is None:
            return
        state = {
            "engine": self.engine.state_dict(),
            "random": checkpoint.random_state(),
            "waiting": self._n_waiting,
            "loader": None if self._loader is None else self._loader.state_dict(),
        }
        if self._n_waiting:  # inside of a window
            state["gradients"] = {name: p.grad for name, p in self.named_parameters() if p.grad is not None}
        checkpoint_["sparring"] = self.engine.collectives.gather_objects(state)

    def on_load_checkpoint(self, checkpoint_: dict[str, Any]) -> None:
        super().on_load_checkpoint(checkpoint_)
        self._saved = checkpoint_.get("sparring")

    def _restore(self, engine: Engine, states: Any) -> None:
        if len(states) != engine.collectives.size:
            raise ValueError(
                f"the checkpoint is of {len(states)} processes, this run has {engine.collectives.size}"
            )
        state = states[engine.collectives.rank]
        engine.load_state_dict(state["engine"])
        self._n_waiting = state["waiting"]
        for name, parameter in self.named_parameters():
            if name in state.get("gradients", {}):
                parameter.grad = state["gradients"][name].to(parameter.device)
        checkpoint.set_random_state(state["random"])
        if self._loader is not None:
            self._loader.load_state_dict(state["loader"])
        elif (fetcher := getattr(self.trainer.fit_loop, "_data_fetcher", None)) is not None:
            iter(fetcher)  # a DataLoader draws a seed when it begins: from the restored generators
