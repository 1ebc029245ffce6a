"""One run: data, network and loss by name, trained, scored and written down; stopped at any moment, the same call goes on.

config ─► task ─► encoder ─► network ─► Loop ─► best on dev ─► test ─► run folder
"""

from __future__ import annotations

import importlib.util
import math
import random
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, fields
from typing import Any, Protocol

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from accelerate.utils import set_seed

from sparring.lab.datasets import Sample, UserError
from sparring.lab.errors import DivergedError
from sparring.lab.kinds.encoder import Features
from sparring.lab.kinds.metrics import pearson
from sparring.lab.models.settings import ModelOptions
from sparring.lab.runs import records
from sparring.lab.runs.evaluate import Evaluator, Outcome
from sparring.lab.runs.plan import Plan
from sparring.lab.runs.records import Journal
from sparring.lab.task import plain
from sparring.training import checkpoint
from sparring.training.divergence import DivergenceError
from sparring.training.loop import Loop
from sparring.training.presets import find_speed
from sparring.training.resume import ANYWAY, ResumeError
from sparring.training.schedules import adamw

N_PICTURES = 60  # hardest test samples that are kept with a picture


class Watch(Protocol):
    """Somebody who looks on: a progress bar, a queue to another process."""

    def begin(self, total: int) -> None:
        """Training starts; so many batches in all."""

    def step(self, entry: dict[str, Any]) -> bool:
        """An optimizer step is over. True: save and stop."""

    def evaluation(self, entry: dict[str, Any]) -> None:
        """Dev was looked at."""


def cut(samples: list[Sample], n: int | None) -> list[Sample]:
    """n of them, always the same ones for the same n."""
    if n is None or n >= len(samples):
        return samples
    return random.Random(n).sample(samples, n)


def run(plan: Plan, watch: Watch | None = None) -> dict[str, Any]:
    """Train as planned and return the summary. A finished run is not repeated, an unfinished one goes on where it was saved."""
    if plan.folder.done:
        return plan.folder.summary()
    n_threads = torch.get_num_threads()
    try:
        under_way = Run(plan, watch)
        with records.alone(plan.folder.path):
            return under_way.summary()
    finally:
        torch.set_num_threads(n_threads)


class Run:
    """A plan under way."""

    def __init__(self, plan: Plan, watch: Watch | None = None) -> None:
        self.plan, self.watch, self.config = plan, watch, plan.config
        config, data, task = plan.config, plan.data, plan.task
        if config.threads is not None:
            torch.set_num_threads(config.threads)
        self.path = plan.folder.path
        train = cut(data.train, config.n_train)
        if plan.chosen is not None:
            train = [train[i] for i in plan.chosen]
        dev, self.test = cut(data.dev, config.n_dev), cut(data.test, config.n_test)
        AcceleratorState._reset_state()  # the run before may have had another precision
        self.engine = Accelerator(cpu=config.device == "cpu", mixed_precision=config.mixed_precision)
        set_seed(config.seed)
        options = {option.name: getattr(config, option.name) for option in fields(ModelOptions)}
        self.model = data.build_model(config.model, ModelOptions(**options))
        assert config.max_length is not None
        length = task.kind.limit_length(self.model, config.max_length)
        self.encoder = data.encoder(
            self.model.processor, length, top_k=task.top_k, max_target_length=config.max_target_length
        )
        self.board: Any = None
        features = self.encoder.encode(train)
        try:
            self.loop = self._loop(features, dev)
        except ValueError as error:  # a setting out of its range
            raise UserError(str(error)) from error

    def _loop(self, features: list[Features], dev: list[Sample]) -> Loop:
        config = self.config
        assert config.epochs is not None and config.lr is not None and config.batch_size is not None  # noqa: PT018, resolved
        n_steps = config.epochs * -(-len(features) // (config.batch_size * self.engine.num_processes))
        objective = self.encoder.objective(self.model.net, config.make_loss(n_steps))
        self.judge = config.make_loss(n_steps, schedule=False).to(self.engine.device)
        self.dev = Evaluator(self.plan.task.kind, self.encoder, dev, self.judge)
        self.journals = {name: Journal(self.path / f"{name}.jsonl") for name in ("steps", "evaluations")}
        self.journals["epochs"] = Journal(self.path / "epochs.jsonl", key="epoch")
        card = find_speed(config.speed).card(
            len(features), self.model.net, rest=config.rest, check=config.check, max_rest=config.max_rest
        )
        return Loop(
            self.model.net,
            objective,
            features,
            batch_size=config.batch_size,
            epochs=config.epochs,
            optimizer=adamw(self.model.net.to(self.engine.device), config.lr, config.weight_decay),
            schedule=config.schedule,
            accumulation=config.make_accumulation(),
            speed=config.speed,
            skip=config.skip,
            scorecard=self.plan.card or card or False,
            lengths=self.encoder.lengths(features),
            forward=self.encoder.forward,
            collate=self.encoder.collate_for_training,
            max_grad_norm=config.max_grad_norm or None,
            on_divergence=config.on_divergence,
            evaluate=self.dev,
            eval_every=config.eval_every,
            metric=config.metric,
            patience=config.patience,
            load_best=True,
            folder=self.path,
            save_every=config.save_every,
            save_seconds=30.0 if config.save_every is None else None,
            resume=ANYWAY if self.plan.anyway else True,
            seed=config.seed,
            log=self._log,
            log_step=self._log_step,
            progress=False,
            accelerator=self.engine,
        )

    # ------------------------------------------------------------ while it runs

    def _log_step(self, entry: dict[str, Any]) -> None:
        self.journals["steps"].add(entry, self._n_lines()["steps"] - 1)
        self._draw(
            "train",
            entry["step"],
            {name: value for name, value in entry.items() if name not in ("step", "epoch")},
        )
        if self.watch is not None and self.watch.step(entry):
            self.loop.stop()

    def _log(self, entry: dict[str, Any]) -> None:
        if "value" not in entry:  # an epoch
            self.journals["epochs"].add(entry, self._n_lines()["epochs"] - 1)
            return
        assert self.dev.last is not None
        self.journals["evaluations"].add(
            {**entry, "margins": self.dev.last.histogram}, self._n_lines()["evaluations"] - 1
        )
        self._draw("dev", entry["step"], self.dev.last.figures)
        if self.watch is not None:
            self.watch.evaluation(entry)

    def _n_lines(self) -> dict[str, int]:
        """Lines that the journals should have by now."""
        record = self.loop.record
        return {
            "steps": int(record.totals["n_updates"]),
            "epochs": len(record.epochs),
            "evaluations": len(record.evaluations),
        }

    def _check_folder(self) -> None:
        """Raise UserError where somebody has removed files of the run, or lines."""
        self.plan.folder.check_whole()
        for name, n_lines in self._n_lines().items():
            self.journals[name].check(n_lines)

    def _draw(self, group: str, step: int, figures: dict[str, Any]) -> None:
        """Events for TensorBoard; those that a killed run wrote after its last checkpoint are purged."""
        if not self.config.tensorboard:
            return
        if self.board is None:
            from torch.utils.tensorboard import SummaryWriter

            self.board = SummaryWriter(str(self.path / "tensorboard"), purge_step=step)
        for name, value in figures.items():
            if value is not None:
                self.board.add_scalar(f"{group}/{name}", value, step)

    def summary(self) -> dict[str, Any]:
        if self.config.tensorboard and importlib.util.find_spec("tensorboard") is None:
            raise UserError("TensorBoard events need tensorboard: pip install tensorboard")
        self._describe()
        if self.watch is not None:
            self.watch.begin(self.loop.total_steps)
        try:
            with _stopping(self.loop, alone=self.engine.num_processes == 1):
                record = self.loop.run()
        except ResumeError as error:
            deliberately = ", --resume-anyway goes on with what is set now" if error.settings else ""
            raise UserError(f"{error.reason}; --fresh begins anew{deliberately}") from None
        except DivergenceError as error:
            raise DivergedError(
                f"{self.plan.name}: {error.reason}. --on-divergence warn goes on regardless"
            ) from None
        finally:
            if self.board is not None:
                self.board.close()
        outcome = None
        if self.config.test:
            with self.engine.autocast():  # as dev was
                outcome = Evaluator(self.plan.task.kind, self.encoder, self.test, self.judge).outcome(
                    self.model.net
                )
            if self.config.on_divergence == "raise" and not math.isfinite(outcome.figures["loss"]):
                raise DivergedError(
                    f"{self.plan.name}: the loss on test is {outcome.figures['loss']}; look at the test data"
                )
        summary = self._summary(record, outcome)
        if self.engine.is_main_process:
            self._keep(outcome, summary)
        self.engine.wait_for_everyone()
        return summary

    def _describe(self) -> None:
        if not self.engine.is_main_process:
            return
        data = self.plan.data
        records.write(self.path / "config.toml", self.config.toml())
        records.write_json(self.path / "machine.json", records.machine())
        sizes = {
            "train": len(self.loop.data),
            "dev": len(self.dev.samples),
            "test": len(self.test) if self.config.test else 0,
        }
        facts = {
            "task": self.plan.task.name,
            "kind": data.kind.name,
            "source": data.source,
            "notes": data.notes,
            "top_k": self.plan.task.top_k,
            "fingerprint": data.fingerprint,
        }
        records.write_json(self.path / "data.json", {**facts, "sizes": sizes, "labels": data.labels})

    def _summary(self, record: Any, outcome: Outcome | None) -> dict[str, Any]:
        evaluations, last, best = record.evaluations, record.epochs[-1], record.best or record.evaluations[-1]
        metric = self.config.metric
        assert metric is not None
        figures = {
            name: value
            for name, value in best.items()
            if name not in ("step", "epoch", "seconds", "value", "best")
        }
        counts = {
            name: record.totals[name] for name in ("n_forward", "n_backward", "n_updates", "n_rows", "n_won")
        }
        return {
            "task": self.plan.task.name,
            "contestant": self.config.label,
            "model": self.config.model,
            "seed": self.config.seed,
            "metric": metric,
            "dev": figures,
            "test": outcome.figures if outcome else None,
            "best_step": best["step"],
            "correlation": pearson(
                [entry["loss"] for entry in evaluations], [entry[metric] for entry in evaluations]
            ),
            "won_share": last["won_share"],
            "epochs": len(record.epochs),
            "n_samples": len(self.loop.data),
            "n_planned": len(self.loop.data) * self.loop.n_done / self.loop.sampler.n_planned,
            **counts,
            "seconds": record.totals["seconds"],
            "cpu_seconds": record.totals["cpu_seconds"],
            "folder": str(self.path),
            "config": asdict(self.config),
        }

    def _keep(self, outcome: Outcome | None, summary: dict[str, Any]) -> None:
        """The summary comes last: where it is, everything is."""
        self._check_folder()
        net: Any = self.model.net
        net.save_pretrained(self.plan.folder.model)
        if self.model.processor is not None:
            self.model.processor.save_pretrained(self.plan.folder.model)
        if outcome is not None:
            records.write_lines(self.path / "predictions.jsonl", self._lines(outcome))
        summary["checksums"] = self.plan.folder.checksums()
        records.write_json(self.path / "summary.json", summary)
        self._check_folder()
        checkpoint.remove(self.path)

    def _lines(self, outcome: Outcome) -> Iterator[dict[str, Any]]:
        """The test samples and what was made of them; the hardest with a picture, where there is something to look at."""
        known = [i for i, margin in enumerate(outcome.margins) if margin == margin]
        hardest = set(sorted(known, key=outcome.margins.__getitem__)[:N_PICTURES])
        for i, (sample, predicted, margin) in enumerate(
            zip(self.test, outcome.predicted, outcome.margins, strict=True)
        ):
            shown = self.plan.data.kind.picture(sample) if i in hardest else None
            yield {
                **plain(sample),
                "predicted": predicted,
                "margin": margin,
                **({"picture": shown} if shown else {}),
            }


@contextmanager
def _stopping(loop: Loop, alone: bool) -> Iterator[None]:
    """Ctrl-C saves and stops at the end of the window; a second one stops at once."""
    if not alone or threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: Any) -> None:
        signal.signal(signal.SIGINT, before)
        loop.stop()

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
