"""Hugging Face's Trainer with AS-Softmax, AS-Speed, skipping and resting samples.

    trainer = SparringTrainer(model, args, train_dataset=data, loss="as-softmax", speed="fast")

The Trainer fetches the batches of a step before it looks at ``gradient_accumulation_steps`` again.
Therefore it gets a whole window as one batch. Steps are planned batches, those of an epoch in which no
sample rests, so ``max_steps``, epochs and the learning rate end where they would have.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from sparring.files import atomic_write
from sparring.integrations.hf_data import Window, resting_loader, take_window
from sparring.integrations.hf_imports import Trainer, TrainingArguments, has_length
from sparring.integrations.hf_loss import align, loss_func, window_mean
from sparring.integrations.hf_steps import StepCounter, check_arguments
from sparring.integrations.settings import Settings
from sparring.losses.delta import ConstantDelta, DeltaSchedule
from sparring.training import checkpoint as checkpoints
from sparring.training.accumulation import ConstantAccumulation
from sparring.training.batches import LABELS, Batch, logits_of
from sparring.training.engine import Engine
from sparring.training.identity import describe_loss, differences
from sparring.training.resting.sampler import RestingLoader

__all__ = ["SparringArguments", "SparringMixin", "SparringTrainer", "loss_func"]

STATE = "sparring_{}.pt"  # in a checkpoint of the Trainer, one file for each process
CAUSAL = ("ForCausalLM", "LMHeadModel")


@dataclass
class SparringArguments(Settings, TrainingArguments):
    """TrainingArguments with the settings of `SparringTrainer`, for ``HfArgumentParser``."""


class SparringMixin(Trainer if TYPE_CHECKING else object):  # type: ignore[misc]
    """A mixin for a subclass of Trainer: ``class MyTrainer(SparringMixin, OtherTrainer)``.

    Override ``run_model`` for models whose logits or targets are elsewhere.

    Args:
        loss, delta, delta_warmup, concede, concede_warmup, speed, fit_head, settle, skip, rest,
            accumulation, lam: See `SparringArguments`.
        shift: Whether targets are the next tokens; by default true for causal language models.
        args, keywords: Of the Trainer.

    Raises:
        ValueError: For settings that exclude each other.
        TypeError: For a loss of another library.
    """

    def __init__(self, *args: Any, **keywords: Any) -> None:
        shift = keywords.pop("shift", None)
        if keywords.get("compute_loss_func") is not None:
            raise ValueError(
                "compute_loss_func and loss exclude each other; use loss here, or a plain Trainer"
            )
        super().__init__(*args, **Settings.split(keywords)[1])
        self._keywords = keywords
        causal = getattr(self, "_loss_shifts_labels", False) or type(self.model).__name__.endswith(CAUSAL)
        self.shift = causal if shift is None else shift
        self.compute_loss_func = self._eval_loss  # so that the Trainer counts items and does not divide
        # also for models whose signature has no labels
        self.label_names: list[str] = getattr(self, "label_names", None) or ["labels"]
        self.engine: Engine | None = None
        self.loader: RestingLoader | None = None
        self.n_micro = 0  # batches of the last window
        self.steps = StepCounter(self)
        self.callback_handler.callbacks.insert(0, self.steps)  # before callbacks that read the step
        self._resolve()

    def _resolve(self, n_samples: int | None = None) -> None:
        """Read the settings, which a hyper-parameter search may have changed, and check them."""
        self.settings, _ = Settings.split(self._keywords, self.args)
        parts = self.parts = self.settings.resolve(self.model, n_samples, self.args.seed)
        self.objective: Any = parts.loss
        # whether windows are cut here: otherwise by the Trainer, of gradient_accumulation_steps batches
        self._windowed = parts.accumulation is not None or parts.scorecard is not None
        aux_loss = getattr(self, "aux_loss_enabled", False)
        check_arguments(self.args, parts, self.accelerator.distributed_type.value, aux_loss)

    # ------------------------------------------------------------ the model and its loss

    def run_model(self, model: nn.Module, inputs: dict[str, Any]) -> tuple[Any, Tensor, Tensor]:
        """Return the output of the model, its logits with classes last, and the targets."""
        names = tuple(dict.fromkeys((*self.label_names, *LABELS)))
        name = next((name for name in names if name in inputs), None)
        if name is None:
            raise ValueError(
                f"a batch of {', '.join(inputs)} has none of {', '.join(names)};"
                " TrainingArguments(label_names=[…]) names the targets"
            )
        outputs = model(**{key: value for key, value in inputs.items() if key != name})
        return outputs, logits_of(outputs), inputs[name]

    def _forward(self, model: nn.Module, inputs: dict[str, Any]) -> tuple[Tensor, Tensor]:
        with self.compute_loss_context_manager():
            _, logits, target = self.run_model(model, inputs)
        return align(logits, target, self.shift)

    def _eval_loss(
        self, logits: Any, labels: Tensor, num_items_in_batch: Tensor | int | None = None
    ) -> Tensor:
        """The loss of an evaluation, with a fixed δ and all rows, so that evaluations can be compared."""
        objective = self.objective
        delta = getattr(objective, "delta", None)
        concedes = getattr(objective, "concede", None) is not None
        if concedes or isinstance(delta, DeltaSchedule):
            objective = copy.deepcopy(objective)
            if concedes:
                objective.concede = None
            if isinstance(delta, DeltaSchedule):
                objective.delta = ConstantDelta(delta.settled())
        input, target = align(logits_of(logits), labels, self.shift)
        return window_mean(objective, input, target, num_items_in_batch)

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Any:
        """The loss of an evaluation. Training calls ``training_step``."""
        outputs, logits, target = self.run_model(model, inputs)
        loss = self._eval_loss(logits, target)
        if isinstance(outputs, (Tensor, list, tuple)):  # the Trainer expects the loss as first element
            outputs = (loss, outputs) if isinstance(outputs, Tensor) else (loss, *outputs)
        return (loss, outputs) if return_outputs else loss

    # ------------------------------------------------------------ a run

    def _inner_training_loop(self, *args: Any, **keywords: Any) -> Any:
        data = self.train_dataset
        indexed = hasattr(data, "__len__") and hasattr(data, "__getitem__")
        self._resolve(len(data) if indexed else None)
        parts = self.parts
        if parts.scorecard is not None and not indexed:
            raise ValueError(
                f"{type(data).__name__} has no length or no items, so samples cannot rest; use rest=False"
            )
        if parts.accumulation is None:
            accumulation = ConstantAccumulation(self.args.gradient_accumulation_steps)
            parts = parts._replace(accumulation=accumulation)
        if self.args.gradient_checkpointing and parts.skip in ("rows", "auto"):
            parts = parts._replace(
                skip="micro"
            )  # a checkpointed forward has hooks: its backward runs in full
        self.loader = None  # get_train_dataloader makes it, once the batch size is known
        device, backward = self.args.device, self.accelerator.backward
        self.engine = Engine(self.model, parts, self._forward, device=device, backward=backward)
        self.steps.begin()
        ignore_data_skip = self.args.ignore_data_skip
        self.args.ignore_data_skip = (
            ignore_data_skip or parts.scorecard is not None
        )  # the loader restores its position
        try:
            return super()._inner_training_loop(*args, **keywords)
        finally:
            self.args.ignore_data_skip = ignore_data_skip
            self.engine.close()

    def get_train_dataloader(self) -> Any:
        if self.engine is None or self.engine.scorecard is None:
            loader = super().get_train_dataloader()
        else:
            loader = self.loader = self.engine.loader = resting_loader(self, self.engine.scorecard)
        self.steps.n_planned = len(loader) if self._windowed and has_length(loader) else None
        return loader

    def create_scheduler(self, num_training_steps: int, *args: Any, **keywords: Any) -> Any:
        if self.engine is not None:
            self.settings.set_length(self.parts, num_training_steps, self.steps.n_planned)
        return super().create_scheduler(num_training_steps, *args, **keywords)

    def get_batch_samples(
        self, epoch_iterator: Iterator[Any], num_batches: int, *args: Any
    ) -> tuple[list[Any], None]:
        """The batches of a step of the Trainer, or a window as one batch."""
        assert self.engine is not None
        if not self._windowed:
            return list(islice(epoch_iterator, num_batches)), None
        n_micro = self.engine.accumulation.steps
        n_left = self.state.max_steps - self.state.global_step
        if self.loader is None:
            window = [Batch.of(data) for data in islice(epoch_iterator, min(n_micro, n_left))]
            advance = len(window)
        else:
            n_done = self.loader.n_done
            window = take_window(epoch_iterator, n_micro, n_done)
            advance = window[-1].n_done - n_done if window else 0
        if not window:
            return [], None
        self.steps.advance = min(advance, n_left)
        return [Window(window, (getattr(self.model, "main_input_name", "input_ids"), "attention_mask"))], None

    def training_step(self, model: nn.Module, inputs: Any, num_items_in_batch: Any = None) -> Tensor:
        engine = self.engine
        assert engine is not None
        model.train()
        if callable(getattr(self.optimizer, "train", None)):
            self.optimizer.train()
        # without DDP's hooks: the engine sums the gradients
        engine.net = model if self.args.world_size == 1 else self.model
        window = inputs.batches if isinstance(inputs, Window) else [Batch.of(inputs)]
        engine.train_window(
            batch if batch.data is None else batch._replace(data=self._prepare_inputs(batch.data))
            for batch in window
        )
        if self.loader is not None:
            self.loader.position += len(window)
        loss = 0.0
        if self.accelerator.sync_gradients:  # the last batch of a window
            result = engine.close_window()
            self.n_micro = result.accumulation
            loss = result.loss * self.steps.advance  # the Trainer divides by steps
            self._fill_gradients()
        return torch.tensor(loss, device=self.args.device)

    def _fill_gradients(self) -> None:
        """Zeros for a gradient scaler, which needs gradients even of a window without a backward pass."""
        parameters = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        if self.accelerator.scaler is not None and all(parameter.grad is None for parameter in parameters):
            for parameter in parameters:
                parameter.grad = torch.zeros_like(parameter)

    def log(self, logs: dict[str, float], *args: Any, **keywords: Any) -> None:
        if "loss" in logs and self.engine is not None:
            logs = {**logs, **self.steps.log_entry()}
        super().log(logs, *args, **keywords)

    # ------------------------------------------------------------ checkpoints

    def _save_rng_state(self, output_dir: str) -> None:
        """Save the engine next to the random state of the Trainer, on every process."""
        super()._save_rng_state(output_dir)
        assert self.engine is not None
        state = {**self._identity(), "engine": self.engine.state_dict()}
        if self.loader is not None:
            state["loader"] = self.loader.state_dict()
        with atomic_write(Path(output_dir) / STATE.format(self.args.process_index)) as part:
            checkpoints.write(part, state)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is None or self.engine is None:
            return
        path = Path(checkpoint) / STATE.format(self.args.process_index)
        if not path.exists():
            raise ValueError(
                f"{path} is missing: the checkpoint is of another Trainer, of fewer processes, or saved with"
                " save_only_model; start anew from its model"
            )
        state = checkpoints.read(path)
        saved = {name: state[name] for name in self._identity()}
        if changed := differences(saved, self._identity()):
            raise ValueError(
                f"{checkpoint} is of a run with {'; '.join(changed.values())}; use another output_dir"
            )
        self.engine.load_state_dict(state["engine"])
        if self.loader is not None:
            self.loader.load_state_dict(state["loader"])
        self.steps.begin()

    def _identity(self) -> dict[str, Any]:
        """Settings that must not change between stop and start."""
        return {
            "loss": describe_loss(self.objective),
            "processes": self.args.world_size,
            "batch size": self._train_batch_size,
            "resting": self.loader is not None,
        }


class SparringTrainer(SparringMixin, Trainer):  # type: ignore[misc]
    """A Trainer with ``loss``, ``delta``, ``speed``, ``accumulation`` and the other settings as keywords.

    See `SparringMixin` and `SparringArguments`.
    """
