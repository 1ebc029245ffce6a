"""One run: train a model, evaluate it, and write a run folder. A stopped run continues when run again.

config ─► task ─► encoder ─► network ─► Loop ─► best on dev ─► test ─► run folder
"""

from __future__ import annotations

import math
from dataclasses import asdict, fields
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from accelerate.utils import set_seed

from sparring.lab.datasets import Sample, UserError
from sparring.lab.errors import DivergedError, option
from sparring.lab.kinds.encoder import Features
from sparring.lab.kinds.metrics import pearson
from sparring.lab.loss_settings import loss_settings
from sparring.lab.models.settings import ModelOptions
from sparring.lab.models.text.frozen import frozen_layers
from sparring.lab.process import check_device, free_threads, machine, stop_on_interrupt
from sparring.lab.runs import records
from sparring.lab.runs.evaluate import Calibration, Evaluation, Evaluator
from sparring.lab.runs.plan import Plan, cut
from sparring.lab.runs.run_log import Observer, RunLog
from sparring.lab.suspects import rank_suspects
from sparring.losses.delta import TRAINING_DELTA
from sparring.training import checkpoint
from sparring.training.divergence import DivergenceError
from sparring.training.history import MarginHistory
from sparring.training.loop import Loop
from sparring.training.optimizers import adamw
from sparring.training.presets import resolve_speed
from sparring.training.resume import ANYWAY, ResumeError

N_SUSPECTS = 50  # of the training samples, for the report
SAVE_SECONDS = 30.0  # between checkpoints, unless --save-every is set
NOT_METRICS = ("step", "epoch", "seconds", "value", "best")  # further entries of an evaluation
LOOP_SETTINGS = (  # that a config and the training loop name alike
    "schedule", "budget", "forward_share", "speed", "fit_head", "settle", "skip",
    "on_divergence", "eval_every", "metric", "patience",
    "save_every", "seed",
)  # fmt: skip
COUNTS = ("n_forward", "n_backward", "n_updates", "n_rows", "n_won", "n_conceded")


def run(plan: Plan, observer: Observer | None = None) -> dict[str, Any]:
    """Run a plan.

    A finished run is not repeated. An unfinished one continues from its last checkpoint.

    Args:
        plan: From `sparring.lab.runs.plan.plan`.
        observer: Is told of every step and evaluation, and can stop the run.

    Returns:
        The content of ``summary.json``.

    Raises:
        UserError: A setting is out of range, or the folder belongs to other settings.
        DivergedError: Loss, gradients or weights are no longer finite.
    """
    if plan.folder.done:
        return plan.folder.summary()
    n_threads = torch.get_num_threads()
    try:
        current = Run(plan, observer)
        with records.alone(plan.folder.path):
            return current.summary()
    finally:
        torch.set_num_threads(n_threads)


class Run:
    """A plan with its network, data and training loop."""

    def __init__(self, plan: Plan, observer: Observer | None = None) -> None:
        self.plan = plan
        self.config = config = plan.config
        self.observer = observer
        self.path = plan.folder.path
        torch.set_num_threads(config.threads or plan.folder.threads() or free_threads())
        check_device(config.device)
        train = cut(plan.data.train, config.n_train)
        if plan.chosen is not None:
            train = [train[i] for i in plan.chosen]
        self.test = cut(plan.data.test, config.n_test)
        AcceleratorState._reset_state()  # the run before may have used another precision
        self.accelerator = Accelerator(cpu=config.device == "cpu", mixed_precision=config.mixed_precision)
        set_seed(config.seed)
        options = {option.name: getattr(config, option.name) for option in fields(ModelOptions)}
        self.model = plan.data.build_model(config.model, ModelOptions(**options))
        assert config.max_length is not None
        self.encoder = plan.data.encoder(
            self.model.processor,
            plan.task.kind.limit_length(self.model, config.max_length),
            top_k=plan.task.top_k,
            max_target_length=config.max_target_length,
        )
        self.log = RunLog(self.path, config.tensorboard)
        self.train = train
        features = self.encoder.encode(train)
        self.frozen_seconds = self._add_frozen_outputs(features)
        try:
            self.loop = self._loop(features, cut(plan.data.dev, config.n_dev))
        except ValueError as error:  # a setting out of range
            raise UserError(str(error)) from error

    def _loop(self, features: list[Features], dev: list[Sample]) -> Loop:
        config, net = self.config, self.model.net
        assert config.epochs is not None and config.lr is not None and config.batch_size is not None  # noqa: PT018
        n_planned = -(-len(features) // (config.batch_size * self.accelerator.num_processes))
        n_steps = max(1, round((config.budget or config.epochs) * n_planned))
        objective = self.encoder.objective(net, config.make_loss(n_steps))
        # evaluations use one δ, so that the losses of a run can be compared
        self.eval_loss = config.make_loss(n_steps, schedule=False).to(self.accelerator.device)
        self.dev = self._evaluator(dev)
        rests: dict[str, Any] = {"rest": config.rest, "check": config.check, "max_rest": config.max_rest}
        rests["seed"] = config.seed
        parts = resolve_speed(net, len(features), loss=objective, speed=config.speed, **rests)
        return Loop(
            net,
            objective,
            features,
            batch_size=config.batch_size,
            epochs=config.epochs,
            optimizer=adamw(net.to(self.accelerator.device), config.lr, config.weight_decay),
            accumulation=config.make_accumulation(),
            scorecard=self.plan.card or parts.scorecard or False,
            lengths=self.encoder.lengths(features),
            forward=self.encoder.forward,
            collate=self.encoder.collate_for_training,
            max_grad_norm=config.max_grad_norm or None,
            history=self.plan.task.kind.labelled,
            evaluate=self.dev,
            load_best=True,
            folder=self.path,
            save_seconds=SAVE_SECONDS if config.save_every is None else None,
            resume=ANYWAY if self.plan.anyway else True,
            log=self._log,
            log_step=self._log_step,
            progress=False,
            accelerator=self.accelerator,
            **{name: getattr(config, name) for name in LOOP_SETTINGS},
        )

    def _evaluator(self, samples: list[Sample]) -> Evaluator:
        evaluator = Evaluator(self.plan.task.kind, self.encoder, samples, self.eval_loss)
        self._add_frozen_outputs(evaluator.features)
        return evaluator

    def _add_frozen_outputs(self, features: list[Features]) -> float | None:
        net = self.model.net.to(self.accelerator.device)
        frozen = frozen_layers(net)
        return None if frozen is None else frozen.add_outputs(net, self.encoder, features)

    def _log_step(self, entry: dict[str, Any]) -> None:
        self.log.write("steps", entry, self.loop.record)
        figures = {name: value for name, value in entry.items() if name not in ("step", "epoch")}
        self.log.write_events("train", entry["step"], figures)
        if self.observer is not None and self.observer.step(entry):
            self.loop.stop()

    def _log(self, entry: dict[str, Any]) -> None:
        if "value" not in entry:  # the end of an epoch, not an evaluation
            self.log.write("epochs", entry, self.loop.record)
            return
        assert self.dev.last is not None
        self.log.write("evaluations", {**entry, "margins": self.dev.last.histogram}, self.loop.record)
        self.log.write_events("dev", entry["step"], self.dev.last.figures)
        if self.observer is not None:
            self.observer.evaluation(entry)

    def summary(self) -> dict[str, Any]:
        """Train, test, write the folder, and return the summary."""
        if self.accelerator.is_main_process:
            self._write_settings()
        if self.observer is not None:
            self.observer.begin(self.loop.total_steps)
            if note := self._preset_note():
                self.observer.note(note)
        record = self._train()
        calibration = self._fit_temperature() if self.plan.task.kind.calibrated else None
        test = self._test(calibration) if self.config.test else None
        summary = self._summary(record, test)
        if calibration is not None:
            summary["calibration"] = calibration.record("test" if self.config.test else "dev")
        if self.accelerator.is_main_process:
            self._write_results(test, summary)
        self.accelerator.wait_for_everyone()
        return summary

    def _preset_note(self) -> str:
        """What the speed preset does in this run, and the δ that it changes."""
        note = self.loop.parts.note
        takes_delta = "delta" in loss_settings(str(self.config.loss))
        if note and takes_delta and self.config.delta != TRAINING_DELTA:
            note += f" (δ {self.config.delta} instead of {TRAINING_DELTA})"
        return note

    def _train(self) -> Any:
        try:
            with stop_on_interrupt(self.loop.stop, enabled=self.accelerator.num_processes == 1):
                return self.loop.run()
        except ResumeError as error:
            advice = (
                f", {option('resume_anyway', True)} goes on with what is set now" if error.settings else ""
            )
            raise UserError(f"{error.reason}; {option('fresh', True)} begins anew{advice}") from None
        except DivergenceError as error:
            advice = f"{option('on_divergence', 'warn')} goes on regardless"
            raise DivergedError(f"{self.plan.name}: {error.reason}. {advice}") from None
        finally:
            self.log.close()

    def _fit_temperature(self) -> Calibration:
        """Fit the temperature of the best model on dev. Returns what measures it on test, or on dev."""
        dev = Calibration(keep_logits=True)
        with self.accelerator.autocast():
            self.dev.outcome(self.model.net, dev)
            temperature = dev.fitted()
            measure = Calibration(temperature)
            if not self.config.test:
                self.dev.outcome(self.model.net, measure)
        return measure

    def _test(self, calibration: Calibration | None) -> Evaluation:
        with self.accelerator.autocast():  # as in evaluations on dev
            test = self._evaluator(self.test).outcome(self.model.net, calibration)
        loss = test.figures["loss"]
        if self.config.on_divergence == "raise" and not math.isfinite(loss):
            raise DivergedError(f"{self.plan.name}: the loss on test is {loss}; look at the test data")
        return test

    def _write_settings(self) -> None:
        records.write(self.path / "config.toml", self.config.toml())
        records.write_json(self.path / "machine.json", machine())
        n_test = len(self.test) if self.config.test else 0
        sizes = {"train": len(self.loop.data), "dev": len(self.dev.samples), "test": n_test}
        records.write_json(self.path / "data.json", self.plan.facts(sizes))

    def _summary(self, record: Any, test: Evaluation | None) -> dict[str, Any]:
        best = record.best or record.evaluations[-1]
        metric = self.config.metric
        assert metric is not None
        losses, values = ([entry[name] for entry in record.evaluations] for name in ("loss", metric))
        return {
            "task": self.plan.task.name,
            "contestant": self.config.label,
            "model": self.config.model,
            "seed": self.config.seed,
            "metric": metric,
            "dev": {name: value for name, value in best.items() if name not in NOT_METRICS},
            "test": test.figures if test else None,
            "best_step": best["step"],
            "correlation": pearson(losses, values),
            "won_share": record.epochs[-1]["won_share"],
            "epochs": len(record.epochs),
            "notes": record.notes,
            "n_samples": len(self.loop.data),
            "frozen_seconds": self.frozen_seconds,
            "n_planned": len(self.loop.data) * self.loop.n_done / self.loop.sampler.n_planned,
            **{name: record.totals[name] for name in (*COUNTS, "seconds", "cpu_seconds")},
            "folder": str(self.path),
            "config": asdict(self.config),
        }

    def _write_history(self, history: MarginHistory) -> None:
        """Write the margins of the training samples, and the samples whose labels look wrong."""
        data = self.plan.data
        history.place = self.encoder.word_places(history.place, self.loop.data)
        history.save(self.path / "history.npz")
        suspects = rank_suspects(history, self.train, data.kind, data.labels)[:N_SUSPECTS]
        lines = (suspect.line(data.kind, with_picture=True) for suspect in suspects)
        records.write_lines(self.path / "suspects.jsonl", lines)

    def _check_folder(self) -> None:
        """Raise `UserError` if files of the run, or lines in them, were removed."""
        self.plan.folder.check_whole()
        self.log.check(self.loop.record)

    def _write_results(self, test: Evaluation | None, summary: dict[str, Any]) -> None:
        """Write model, predictions and summary. The summary comes last: it marks a complete folder."""
        self._check_folder()
        self.model.net.save_pretrained(self.plan.folder.model)
        self.model.processor.save_pretrained(self.plan.folder.model)
        if test is not None:
            records.write_lines(self.path / "predictions.jsonl", test.lines(self.test, self.plan.data.kind))
        if self.loop.margins is not None:
            self._write_history(self.loop.margins)
        summary["checksums"] = self.plan.folder.checksums()
        records.write_json(self.path / "summary.json", summary)
        self._check_folder()
        checkpoint.remove(self.path)
