"""Windows as the Trainer sees them: one batch that counts for several steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from sparring.integrations.corner import Part

if TYPE_CHECKING:
    from sparring.integrations.hf import SparringMixin

UNSTEPPED = ("ReduceLROnPlateau", "GreedyLR")  # schedules that the Trainer steps at evaluations


class Window(dict[str, torch.Tensor]):
    """A window's parts. As a dict it holds what the Trainer counts, floating-point operations and tokens, of all of them together."""

    def __init__(self, parts: Sequence[Part], counted: Sequence[str]) -> None:
        self.parts = list(parts)
        batches = [part.batch for part in self.parts if isinstance(part.batch, Mapping)]
        for name in counted:
            found = [batch[name].flatten() for batch in batches if isinstance(batch.get(name), torch.Tensor)]
            if found:
                self[name] = torch.cat(found)


class Steps(TrainerCallback):
    """Counts the steps a window stands for: ``advance`` planned batches instead of one."""

    def __init__(self, trainer: SparringMixin) -> None:
        self.trainer = trainer
        self.n_planned: int | None = None  # of an epoch
        self.begin()

    def begin(self) -> None:
        """Before the first step of a run, or of what is left of one."""
        self.advance = 1
        totals = {} if self.trainer.corner is None else self.trainer.corner.counts()
        self.before = {name: totals.get(name, 0.0) for name in ("n_rows", "n_won")}  # at the last log

    def on_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        state.global_step += self.advance - 1  # the Trainer adds the one

    def on_step_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        lr_scheduler: Any = None,
        **_: Any,
    ) -> TrainerControl:
        trainer = self.trainer
        if (
            type(lr_scheduler).__name__ not in UNSTEPPED
            and not trainer.accelerator.optimizer_step_was_skipped
        ):
            for _step in range(self.advance - 1):
                lr_scheduler.step()
        assert trainer.corner is not None
        trainer.corner.follow(self.advance)
        if self.n_planned is not None:
            state.epoch = state.global_step / self.n_planned
        if args.logging_strategy == "steps" and self._crossed(state, state.logging_steps):
            control.should_log = True
        if (
            args.eval_strategy == "steps"
            and self._crossed(state, state.eval_steps)
            and args.eval_delay <= state.global_step
        ):
            control.should_evaluate = True
        if args.save_strategy == "steps" and self._crossed(state, state.save_steps):
            control.should_save = True
        return control

    def _crossed(self, state: TrainerState, every: int) -> bool:
        """Whether a multiple was reached or passed; the Trainer's own look sees only those that are hit."""
        return every > 0 and state.global_step // every > (state.global_step - self.advance) // every

    def figures(self) -> dict[str, float]:
        """For the Trainer's log: the share won since the last one, δ and accumulation of now, and samples since training began."""
        corner = self.trainer.corner
        assert corner is not None
        counts, delta = corner.counts(), corner.delta()
        n_rows, n_won = (counts[name] - self.before[name] for name in ("n_rows", "n_won"))
        self.before = {name: counts[name] for name in self.before}
        found = {"won_share": n_won / n_rows if n_rows else 0.0, "accumulation": float(corner.n_micro)}
        found |= {"samples_forward": counts["n_forward"], "samples_backward": counts["n_backward"]}
        return found if delta is None else found | {"delta": delta}
