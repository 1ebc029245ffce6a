"""Hugging Face's Trainer: our losses, AS-Speed, skipping and resting, with its steps, schedule, logs and checkpoints as they were.

    trainer = SparringTrainer(model, args, train_dataset=data, loss="as-softmax", delta=0.3, speed="all", accumulation=4)

Accumulation cannot be changed from a callback: the Trainer fetches a window before it looks at the number again. So a window is handed to
it as *one* batch. Steps are planned batches, those of an epoch in which nobody rests, so ``max_steps``, epochs, the learning
rate and everything that goes by steps end where they would have.
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
from sparring.integrations.corner import Corner, part_of, take_window
from sparring.integrations.hf_loss import loss_func, share_of, shifted
from sparring.integrations.hf_steps import Steps, Window
from sparring.integrations.loaders import Rounds
from sparring.integrations.settings import Settings
from sparring.losses import Loss
from sparring.losses.delta import ConstantDelta, DeltaSchedule
from sparring.training import checkpoint as checkpoints
from sparring.training.accumulation import ConstantAccumulation
from sparring.training.batches import LABELS, class_second, logits_of

try:
    from transformers import Trainer, TrainingArguments
    from transformers.trainer_utils import has_length
except ImportError as error:
    raise ImportError(
        "SparringTrainer needs transformers and accelerate: pip install 'sparring[hf]'"
    ) from error
try:
    import datasets
except ImportError:  # only to recognise one
    datasets = None

__all__ = ["SparringArguments", "SparringMixin", "SparringTrainer", "loss_func"]

STATE = "sparring_{}.pt"  # beside the Trainer's own files in a checkpoint, one for each process
REFUSED = ("DEEPSPEED", "FSDP", "MEGATRON_LM", "XLA")
CAUSAL = ("ForCausalLM", "LMHeadModel")


@dataclass
class SparringArguments(Settings, TrainingArguments):
    """TrainingArguments with our settings among them: for ``HfArgumentParser`` and whoever keeps everything in one place."""


class SparringMixin(Trainer if TYPE_CHECKING else object):  # type: ignore[misc]
    """For a Trainer subclass of your own: ``class MyTrainer(SparringMixin, YourTrainer)``. Override ``run_model`` where logits and targets
    are found otherwise; the loss is ours. ``shift=True``: targets are the next tokens, as those of causal language models are."""

    def __init__(self, *args: Any, **keywords: Any) -> None:
        shift = keywords.pop("shift", None)
        if keywords.get("compute_loss_func") is not None:
            raise ValueError(
                "compute_loss_func and loss say the same thing; give loss, or use a plain Trainer"
            )
        super().__init__(*args, **Settings.split(keywords)[1])
        self._own = keywords
        self.settings, _ = Settings.split(self._own, self.args)
        causal = getattr(self, "_loss_shifts_labels", False) or type(self.model).__name__.endswith(CAUSAL)
        self.shift = causal if shift is None else shift
        self.objective: Loss = self.settings.objective(self.model)
        self.compute_loss_func = self._judge  # so that the Trainer counts items and leaves their mean to us
        self.label_names: list[str] = getattr(self, "label_names", None) or [
            "labels"
        ]  # also where a model takes none
        self.corner: Corner | None = None
        self.rounds: Rounds | None = None
        self.steps = Steps(self)
        self.callback_handler.callbacks.insert(0, self.steps)  # before those who go by steps
        self._check()

    def _check(self) -> None:
        args, windows = self.args, self.settings.windows()
        if windows is not None and windows.decide != "previous":
            raise ValueError(
                'the Trainer fetches a window before its first batch is seen; use AdaptiveAccumulation(decide="previous")'
            )
        if args.label_smoothing_factor:
            raise ValueError(
                'label_smoothing_factor would be a second loss; use loss="label-smoothing", or set it to 0'
            )
        kind = self.accelerator.distributed_type.value
        if kind in REFUSED or args.n_gpu > 1:
            what = "DataParallel" if args.n_gpu > 1 else kind
            raise ValueError(
                f"{what} keeps gradients where skipping and AS-Speed cannot reach them; use DDP (torchrun, accelerate launch), or a plain"
                " Trainer with compute_loss_func=loss_func(…)"
            )
        if self._windowed and args.gradient_accumulation_steps > 1:
            raise ValueError(
                f"gradient_accumulation_steps={args.gradient_accumulation_steps} fixes what AS-Speed and resting decide; leave it at 1"
                " (accumulation=… is the most a step may gather)"
            )

    @property
    def _windowed(self) -> bool:
        """Whether windows are ours to cut: else they are the Trainer's, of gradient_accumulation_steps batches."""
        return self.settings.windows() is not None or self.settings.rests(self.model)

    # ------------------------------------------------------------ the model and its loss

    def run_model(self, model: nn.Module, inputs: dict[str, Any]) -> tuple[Any, Tensor, Tensor]:
        """What the model returned; logits, classes last; and targets."""
        names = tuple(dict.fromkeys((*self.label_names, *LABELS)))
        name = next((name for name in names if name in inputs), None)
        if name is None:
            raise ValueError(
                f"a batch of {', '.join(inputs)} has none of {', '.join(names)}; TrainingArguments(label_names=[…]) says which holds the"
                " targets"
            )
        outputs = model(**{key: value for key, value in inputs.items() if key != name})
        return outputs, logits_of(outputs), inputs[name]

    def _aligned(self, logits: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        return class_second(*shifted(logits, target) if self.shift else (logits, target))

    def _forward(self, model: nn.Module, inputs: dict[str, Any]) -> tuple[Tensor, Tensor]:
        with self.compute_loss_context_manager():
            _, logits, target = self.run_model(model, inputs)
        return self._aligned(logits, target)

    def _judge(self, logits: Any, labels: Tensor, num_items_in_batch: Tensor | int | None = None) -> Tensor:
        """The loss of an evaluation: with one δ throughout, or evaluations could not be compared."""
        objective, delta = self.objective, getattr(self.objective, "delta", None)
        if isinstance(delta, DeltaSchedule):
            objective = copy.deepcopy(objective)
            objective.delta = ConstantDelta(delta.settled())
        input, target = self._aligned(logits_of(logits), labels)
        return objective.to(input.device).rows(input, target).mean() * share_of(target, num_items_in_batch)

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Any:
        """For evaluation; training goes through ``training_step``."""
        outputs, logits, target = self.run_model(model, inputs)
        loss = self._judge(logits, target)
        if isinstance(outputs, (Tensor, list, tuple)):  # where the Trainer looks for a loss in front
            outputs = (loss, outputs) if isinstance(outputs, Tensor) else (loss, *outputs)
        return (loss, outputs) if return_outputs else loss

    # ------------------------------------------------------------ a run

    def _inner_training_loop(self, *args: Any, **keywords: Any) -> Any:
        self.settings, _ = Settings.split(self._own, self.args)  # a search may have changed the arguments
        self._check()
        self.objective = self.settings.objective(self.model)
        windows = self.settings.windows() or ConstantAccumulation(self.args.gradient_accumulation_steps)
        windows.reset()
        card = None
        if self.settings.rests(self.model):
            if not (hasattr(self.train_dataset, "__len__") and hasattr(self.train_dataset, "__getitem__")):
                raise ValueError(
                    f"{type(self.train_dataset).__name__} has no length or no items, so nobody can rest; use rest=False"
                )
            card = self.settings.card(len(self.train_dataset), self.model)
            assert card is not None
            card.check_for(len(self.train_dataset), self.model)
            card.forget()
        skip = self.settings.skipping()
        if self.args.gradient_checkpointing and skip in ("rows", "auto"):
            skip = "micro"  # a checkpointed forward is one node, with hooks: nothing of it could be left out
        self.corner = Corner(
            self.model, self.objective, self._forward, engine=self.accelerator, device=self.args.device, windows=windows,
            skip=skip, scorecard=card, collate=self._collate(),
        )  # fmt: skip
        self.steps.begin()
        before = self.args.ignore_data_skip
        self.args.ignore_data_skip = before or card is not None  # the plan of rounds knows where it was
        try:
            return super()._inner_training_loop(*args, **keywords)
        finally:
            self.args.ignore_data_skip = before
            self.corner.remove()

    def _collate(self) -> Any:
        if datasets is not None and isinstance(self.train_dataset, datasets.Dataset):
            return self.data_collator
        return self._get_collator_with_removed_columns(self.data_collator, description="training")

    def get_train_dataloader(self) -> Any:
        if self.corner is None or self.corner.scorecard is None:
            loader = super().get_train_dataloader()
        else:
            loader = self.rounds = self._rounds(self.corner.scorecard)
            self.corner.samples, self.corner.batch_size = loader.samples, self._train_batch_size
        self.steps.n_planned = len(loader) if self._windowed and has_length(loader) else None
        return loader

    def _rounds(self, card: Any) -> Rounds:
        args, data = self.args, self.train_dataset
        if datasets is not None and isinstance(data, datasets.Dataset):
            data = self._remove_unused_columns(data, description="training")
        loading = {"num_workers": args.dataloader_num_workers, "pin_memory": args.dataloader_pin_memory}
        seed = args.seed if args.data_seed is None else args.data_seed
        shuffle = getattr(args, "train_sampling_strategy", None) != "sequential"
        return Rounds(
            data,
            card,
            self._train_batch_size,
            collate=self._collate(),
            lengths=self._lengths(),
            shuffle=shuffle,
            seed=seed,
            **loading,
        )

    def _lengths(self) -> list[int] | None:
        """Of the samples, where the user wants similar ones together."""
        args, data = self.args, self.train_dataset
        if not (
            getattr(args, "group_by_length", False)
            or getattr(args, "train_sampling_strategy", None) == "group_by_length"
        ):
            return None
        named = args.length_column_name in getattr(data, "column_names", ())
        return list(data[args.length_column_name]) if named else [len(sample["input_ids"]) for sample in data]

    def create_scheduler(self, num_training_steps: int, *args: Any, **keywords: Any) -> Any:
        if self.corner is not None:
            self.settings.warm(self.objective, num_training_steps)
        return super().create_scheduler(num_training_steps, *args, **keywords)

    # ------------------------------------------------------------ a window

    def get_batch_samples(
        self, epoch_iterator: Iterator[Any], num_batches: int, *args: Any
    ) -> tuple[list[Any], None]:
        """Of the Trainer's length, or of ours as one batch."""
        assert self.corner is not None
        if not self._windowed:
            return list(islice(epoch_iterator, num_batches)), None
        n_steps, left = self.corner.windows.steps, self.state.max_steps - self.state.global_step
        if self.rounds is None:
            parts = [part_of(batch) for batch in islice(epoch_iterator, min(n_steps, left))]
            advance = len(parts)
        else:
            before = self.rounds.n_done
            parts = take_window(epoch_iterator, n_steps, before)
            advance = parts[-1].done - before if parts else 0
        if not parts:
            return [], None
        self.steps.advance = min(advance, left)
        return [Window(parts, (getattr(self.model, "main_input_name", "input_ids"), "attention_mask"))], None

    def training_step(self, model: nn.Module, inputs: Any, num_items_in_batch: Any = None) -> Tensor:
        corner = self.corner
        assert corner is not None
        model.train()
        if callable(getattr(self.optimizer, "train", None)):
            self.optimizer.train()
        corner.net = (
            model if self.args.world_size == 1 else self.model
        )  # without DDP's hooks: gradients are summed by us
        parts = inputs.parts if isinstance(inputs, Window) else [part_of(inputs)]
        corner.fight(
            part if part.batch is None else part._replace(batch=self._prepare_inputs(part.batch))
            for part in parts
        )
        if self.rounds is not None:
            self.rounds.position += len(parts)
        loss = 0.0
        if self.accelerator.sync_gradients:  # the window's last
            loss = corner.close() * self.steps.advance  # the Trainer divides by steps
            self._fill()
        return torch.tensor(loss, device=self.args.device)

    def _fill(self) -> None:
        """A gradient scaler wants gradients, also of a window in which nobody fought."""
        if self.accelerator.scaler is not None and all(
            parameter.grad is None for parameter in self.model.parameters()
        ):
            for parameter in self.model.parameters():
                parameter.grad = torch.zeros_like(parameter) if parameter.requires_grad else None

    def log(self, logs: dict[str, float], *args: Any, **keywords: Any) -> None:
        if "loss" in logs and self.corner is not None:
            logs = {**logs, **self.steps.figures()}
        super().log(logs, *args, **keywords)

    # ------------------------------------------------------------ checkpoints

    def _save_rng_state(self, output_dir: str) -> None:
        """The Trainer's random state, and ours beside it: of every process."""
        super()._save_rng_state(output_dir)
        assert self.corner is not None
        state = {**self._identity(), "corner": self.corner.state_dict()}
        if self.rounds is not None:
            state["rounds"] = self.rounds.state_dict()
        with atomic_write(Path(output_dir) / STATE.format(self.args.process_index)) as part:
            checkpoints.write(part, state)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is None or self.corner is None:
            return
        path = Path(checkpoint) / STATE.format(self.args.process_index)
        if not path.exists():
            raise ValueError(
                f"{path} is missing: the checkpoint was saved by another Trainer, by fewer processes, or with save_only_model;"
                " begin anew from its model"
            )
        state = checkpoints.read(path)
        for name, now in self._identity().items():
            if (then := state[name]) != now:
                raise ValueError(
                    f"{checkpoint} is of a run with {name} {then}, this one has {now}; use another output_dir"
                )
        self.corner.load_state_dict(state["corner"])
        if self.rounds is not None:
            self.rounds.load_state_dict(state["rounds"])
        self.steps.begin()

    def _identity(self) -> dict[str, Any]:
        """What must not change between stop and start."""
        return {
            "loss": self.objective.name,
            "processes": self.args.world_size,
            "batch size": self._train_batch_size,
            "resting": self.rounds is not None,
        }


class SparringTrainer(SparringMixin, Trainer):  # type: ignore[misc]
    """A Trainer with ``loss``, ``delta``, ``speed``, ``accumulation`` and the other fields of ``SparringArguments`` as keywords."""
