"""The steps of a Trainer whose windows count for several of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sparring.integrations.hf_imports import (
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)
from sparring.training.fitted_head.fit_first import fit_first
from sparring.training.presets import RunParts

if TYPE_CHECKING:
    from sparring.integrations.hf import SparringMixin

REFUSED = ("DEEPSPEED", "FSDP", "MEGATRON_LM", "XLA", "DataParallel")
STEPPED_AT_EVALUATIONS = ("ReduceLROnPlateau", "GreedyLR")  # schedules that the Trainer does not step itself


def check_arguments(
    args: TrainingArguments, parts: RunParts, distributed_type: str, aux_loss: bool = False
) -> None:
    """Raise ValueError for TrainingArguments that exclude the settings of a SparringTrainer.

    ``aux_loss``: whether a trainer of TRL adds the auxiliary loss of a mixture of experts.
    """
    if aux_loss or getattr(args, "loss_type", "nll") != "nll":
        raise ValueError(
            "a SparringTrainer has one loss; set TRL's loss_type to nll and the model's output_router_logits"
            " to False (rows(…, row_weight=…) scales tokens in a loop of your own)"
        )
    if parts.accumulation is not None and parts.accumulation.decide != "previous":
        raise ValueError(
            "the Trainer fetches a window before the forward pass of its first batch; use"
            ' AdaptiveAccumulation(decide="previous")'
        )
    if args.label_smoothing_factor:
        raise ValueError(
            'label_smoothing_factor would be a second loss; use loss="label-smoothing", or set it to 0'
        )
    wrapper = "DataParallel" if args.n_gpu > 1 else distributed_type
    if wrapper in REFUSED:
        raise ValueError(
            f"{wrapper} keeps gradients where skipping and AS-Speed cannot reach them; use DDP (torchrun,"
            " accelerate launch), or a plain Trainer with compute_loss_func=loss_func(…)"
        )
    windowed = parts.accumulation is not None or parts.scorecard is not None
    if windowed and args.gradient_accumulation_steps > 1:
        raise ValueError(
            f"gradient_accumulation_steps={args.gradient_accumulation_steps} conflicts with AS-Speed and"
            " resting; leave it at 1 (accumulation=… is the most batches of a step)"
        )


class StepCounter(TrainerCallback):
    """Counts the steps of a window: ``advance`` planned batches instead of one."""

    def __init__(self, trainer: SparringMixin) -> None:
        self.trainer = trainer
        self.n_planned: int | None = None  # planned batches of an epoch
        self.begin()

    def begin(self) -> None:
        """Prepare for the first step of a run, or of the rest of one."""
        self.advance = 1
        engine = self.trainer.engine
        self.logged = {} if engine is None else engine.totals()  # at the last log

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        engine = self.trainer.engine
        assert engine is not None
        fit_first(engine, state.global_step, required=self.trainer.settings.fit_head is True)

    def on_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        state.global_step += self.advance - 1  # the Trainer adds 1

    def on_step_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        lr_scheduler: Any = None,
        **_: Any,
    ) -> TrainerControl:
        trainer = self.trainer
        stepped = type(lr_scheduler).__name__ not in STEPPED_AT_EVALUATIONS
        if stepped and not trainer.accelerator.optimizer_step_was_skipped:
            for _step in range(self.advance - 1):
                lr_scheduler.step()
        assert trainer.engine is not None
        trainer.engine.follow(self.advance)
        if self.n_planned is not None:
            state.epoch = state.global_step / self.n_planned
        if args.logging_strategy == "steps" and self._crossed(state, state.logging_steps):
            control.should_log = True
        evaluates = args.eval_strategy == "steps" and args.eval_delay <= state.global_step
        if evaluates and self._crossed(state, state.eval_steps):
            control.should_evaluate = True
        if args.save_strategy == "steps" and self._crossed(state, state.save_steps):
            control.should_save = True
        return control

    def _crossed(self, state: TrainerState, every: int) -> bool:
        """Whether a multiple was reached or passed. The Trainer itself notices only those it reaches."""
        return every > 0 and state.global_step // every > (state.global_step - self.advance) // every

    def log_entry(self) -> dict[str, float]:
        """The won and conceded shares since the last log, accumulation and δ, and all samples so far."""
        engine = self.trainer.engine
        assert engine is not None
        totals = engine.totals()
        new = {name: value - self.logged.get(name, 0.0) for name, value in totals.items()}
        self.logged = totals
        entry = {
            "won_share": new["n_won"] / new["n_rows"] if new["n_rows"] else 0.0,
            "accumulation": float(self.trainer.n_micro),
            "samples_forward": totals["n_forward"],
            "samples_backward": totals["n_backward"],
        }
        if getattr(engine.loss, "concede", None) is not None:
            entry["conceded_share"] = new["n_conceded"] / new["n_rows"] if new["n_rows"] else 0.0
        return entry if engine.delta is None else {**entry, "delta": engine.delta}
