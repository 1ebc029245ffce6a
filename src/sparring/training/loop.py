"""The training loop on Accelerate: one process or several, any device, mixed precision.

batch ─► forward ─► backward of active samples ─► accumulate ─► step ─► δ and lr ─► evaluate ─► save
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

from sparring.heads.linear import LinearLoss
from sparring.heads.parallel.collectives import Collectives
from sparring.losses import Loss
from sparring.losses.checks import check_count
from sparring.training import batches, optimizers, presets
from sparring.training.accumulation import AdaptiveAccumulation, ConstantAccumulation
from sparring.training.divergence import DivergenceMonitor
from sparring.training.history import MarginHistory
from sparring.training.progress import Progress
from sparring.training.record import Record, check_metrics
from sparring.training.resting.sampler import Indexed, RestingLoader
from sparring.training.resting.scorecard import Scorecard

try:
    from accelerate import Accelerator
    from accelerate.utils import send_to_device, set_seed, tqdm

    from sparring.training import resume
    from sparring.training.engine import Engine
    from sparring.training.fitted_head.fit_first import fit_first
except ImportError as error:
    raise ImportError("the training loop needs Accelerate: pip install 'sparring[lab]'") from error


def train(model: nn.Module, loss: Loss | LinearLoss | str, data: Any, **settings: Any) -> Record:
    """Train ``model`` on ``data``. The arguments are the fields of `Loop`.

    Returns:
        The record of the run: epochs, evaluations and totals.

    Raises:
        ValueError, TypeError: For a setting out of its range or of another type.
        DivergenceError: If a loss, a gradient or a weight becomes NaN or infinite.
        ResumeError: If ``folder`` holds a checkpoint of another run.
    """
    return Loop(model, loss, data, **settings).run()


@dataclass
class Loop:
    """The settings of a run.

    Steps are counted in *planned batches*: those of an epoch in which no sample rests, whatever the
    accumulation. A run has ``total_steps`` of them, so learning rate and δ end where they should.

    >>> import torch
    >>> from torch.utils.data import TensorDataset
    >>> x = torch.randn(64, 4)
    >>> data = TensorDataset(x, (x[:, 0] > 0).long())
    >>> loop = Loop(nn.Linear(4, 2), "as-softmax", data, batch_size=16, epochs=5, lr=0.1)
    >>> record = loop.run()
    >>> loop.total_steps, len(record.epochs), record.totals["n_forward"], record.totals["n_backward"] < 320
    (20, 5, 320, True)
    """

    model: nn.Module
    loss: Loss | LinearLoss | str  # or its name; a LinearLoss takes features from forward instead of logits
    data: Any  # a map-style data set; samples are dicts with "labels", or tuples that end in the target
    _: KW_ONLY
    batch_size: int = 32  # on each process
    epochs: int = 3
    budget: float | None = None  # instead of epochs: spend what so many epochs of plain softmax cost
    forward_share: float | None = None  # of the cost of both passes, for the budget; None: measure it
    optimizer: Optimizer | None = None  # None: AdamW with lr
    lr: float = 5e-5
    schedule: optimizers.Schedule | str = "linear"  # or cosine, constant
    accumulation: AdaptiveAccumulation | int = 1  # an int is a fixed number of batches for each step
    speed: str = "skip"  # a preset: off, skip or fast
    fit_head: bool | None = None  # begin with a last layer that `fit_head` has set; None: as speed says
    settle: float | None = None  # share of plain softmax for every sample at the end; None: as speed says
    skip: str | None = None  # mode of the Skipper: off, micro, rows, two-pass or auto; None: as speed says
    scorecard: Scorecard | bool | None = None  # lets samples rest; True: with defaults; None: as speed says
    history: MarginHistory | bool | None = None  # records every sample's margin in every epoch
    lengths: Sequence[int] | None = None  # of the samples, to batch those of similar length
    forward: Callable[[nn.Module, Any], tuple[Tensor, Tensor]] = batches.forward
    collate: Callable[[list[Any]], Any] | None = None
    workers: int = 0
    max_grad_norm: float | None = 1.0
    on_divergence: str = "raise"  # for NaN or infinite numbers: raise a DivergenceError, warn once, or ignore
    evaluate: Callable[[nn.Module], dict[str, float] | float] | None = None
    eval_every: int | None = None  # planned batches; None: after every epoch. The end is always evaluated
    metric: str | None = None  # of those that evaluate returns; None: the first
    greater_is_better: bool = True
    patience: int | None = None  # evaluations without a better metric before the run stops
    load_best: bool = False  # end with the weights of the best evaluation
    folder: str | Path | None = None  # for checkpoints
    save_every: int | None = None  # planned batches; None: after every epoch
    save_seconds: float | None = None  # also save after this time; on one process, at most 1/20 of the time
    resume: bool | str = True  # from the checkpoint in folder; "anyway": although settings or data changed
    seed: int = 0
    log: Callable[[dict[str, Any]], None] | None = None  # is called with every entry of the record
    log_step: Callable[[dict[str, Any]], None] | None = None  # is called after every optimizer step
    progress: bool | None = None  # a progress bar; None: on a terminal
    accelerator: Any = None  # an Accelerator

    def __post_init__(self) -> None:
        for name in ("epochs", "eval_every", "save_every", "patience"):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name))
        if self.resume not in (True, False, resume.ANYWAY):
            raise ValueError(f'resume must be True, False or "{resume.ANYWAY}", got {self.resume!r}')
        n_samples = len(Indexed(self.data))
        self.parts = presets.resolve_speed(
            self.model,
            n_samples,
            loss=self.loss,
            speed=self.speed,
            skip=self.skip,
            rest=Scorecard(n_samples) if self.scorecard is True else self.scorecard,
            check=False if self.scorecard is False else None,
            accumulation=ConstantAccumulation.of(self.accumulation),
            settle=self.settle,
            fit_head=self.fit_head,
            seed=self.seed,
        )
        self.make_schedule = optimizers.find_schedule(self.schedule)
        self.accelerator = self.accelerator or Accelerator()
        presets.check_accelerator(self.accelerator)
        self.device = self.accelerator.device
        self.collectives = Collectives(device=self.device)
        card = self.parts.scorecard or Scorecard(n_samples, max_rest=0)
        samples = (self.data, card, self.batch_size, self.collate, self.lengths)
        self.loader = RestingLoader(*samples, seed=self.seed, loading={"num_workers": self.workers})
        self.sampler = self.loader.sampler
        self.run_progress = Progress(self.loader, self.epochs, self.budget, self.forward_share)
        self.total_steps = self.run_progress.total_steps
        self.parts = self.parts.with_length(self.total_steps, self.sampler.n_planned)
        self.objective, self.skip, self.scorecard = self.parts[:3]
        self.history = self.margins = MarginHistory.of(self.history, n_samples)
        self.record = Record()
        self.monitor = DivergenceMonitor(self, self.on_divergence)
        self.stopping = False
        self.save_due = 0.0  # the clock's time of the next checkpoint

    def stop(self) -> None:
        """Save and raise KeyboardInterrupt after the window. For signal handlers, on one process."""
        self.stopping = True

    def run(self) -> Record:
        """Run from the beginning, or from the checkpoint in ``folder``. A finished run is not repeated."""
        if self.record.done:
            return self.record
        self._prepare()
        shown = sys.stderr.isatty() if self.progress is None else self.progress
        self.bar = tqdm(total=self.total_steps, initial=self.n_done, disable=not shown, desc="training")
        try:
            while not self.record.done:
                self._run_epoch()
        finally:
            self.bar.close()
            self.engine.close()
            self.accelerator.unwrap_model(self.net, keep_fp32_wrapper=False)
        self.collectives.broadcast(self.model.buffers())
        if self.load_best and self.best is not None:
            self.model.load_state_dict(self.best)
        return self.record

    def _prepare(self) -> None:
        set_seed((self.seed + self.collectives.rank) % 2**32)  # NumPy accepts no larger seed
        self.monitor.reset()
        self.net = self.accelerator.prepare_model(self.model, evaluation_mode=True)
        self.engine = Engine(
            self.model,
            self.parts,
            self.forward,
            device=self.device,
            loader=self.loader,
            backward=self.accelerator.backward,
            on_forward=self.monitor.check_batch,
            record=self.record,
            history=self.margins,
            budget=self.run_progress.budget,
        )
        self.engine.net = self.net
        self.run_progress.begin(self.objective, self.parts.settle)
        optimizer = self.optimizer or optimizers.adamw(self.model, self.lr)
        self.lr_schedule = self.make_schedule(optimizer, self.total_steps)
        self.prepared_optimizer = self.accelerator.prepare_optimizer(optimizer)
        self.prepared_optimizer.zero_grad()
        self.n_done = self.n_paused = 0  # planned batches: so far, and at the last pause
        self.best: dict[str, Tensor] | None = None
        self.identity: dict[str, Any] = {}
        resume.begin(self)
        self.engine.measure_cost()
        fit_first(self.engine, self.n_done, required=self.fit_head is True)

    def _run_epoch(self) -> None:
        if self.loader.finished:
            self.loader.set_epoch(self.sampler.epoch + 1)
            self.record.begin_epoch(self.sampler.epoch, **self.sampler.scorecard.counts())
        self.model.train()
        self.record.start_clock()
        for batch in self.loader:
            self.engine.train(send_to_device(batch, self.device))
            self.loader.position += 1
            if self.engine.accumulation.should_step:
                self._step()
            self.record.add_time()
            if self.run_progress.cuts_epoch():
                break
            if not self.engine.accumulation.n_micro and not self.loader.finished:
                self._pause()
            if self.record.done:
                return
        self.engine.finish_epoch()
        if self.engine.accumulation.n_micro:
            self._step()
        self.monitor.settle()
        self._follow(self.run_progress.end_epoch())
        self.record.add_time()
        self._end_record()
        self._pause(end=True)

    def _step(self) -> None:
        """The optimizer step of a window."""
        window = self.engine.close_window()
        n_done = self.run_progress.n_done
        clip, limit = self.accelerator.clip_grad_norm_, self.max_grad_norm
        norm = None if limit is None else clip(self.model.parameters(), limit)
        self.prepared_optimizer.step()
        self.monitor.add_update(n_done, norm)
        self.prepared_optimizer.zero_grad()
        entry: dict[str, Any] = {"step": n_done, "epoch": self.sampler.epoch, **window.counts()}
        entry |= {"delta": self.engine.delta, "lr": self.lr_schedule.get_last_lr()[0]}
        self._follow(n_done)
        if self.log_step is not None and self.collectives.rank == 0:
            self.log_step(entry)

    def _follow(self, n_done: int) -> None:
        """Advance learning rate, δ and the progress bar. Resting samples count as done."""
        for _ in range(n_steps := max(0, n_done - self.n_done)):
            self.lr_schedule.step()
        self.engine.follow(n_steps)
        self.bar.update(n_steps)
        self.n_done = n_done

    def _pause(self, end: bool = False) -> None:
        """Evaluate and save when it is time, between two windows or at the end of an epoch."""
        last = end and self.run_progress.is_finished
        due = last or self._crossed(self.eval_every) or (end and self.eval_every is None)
        if self.evaluate is not None and due:
            self._evaluate()
        if self.record.done and not end:
            self._end_record()
            self.engine.sync_history()
        self.record.done = self.record.done or last
        due = self._crossed(self.save_every) or (end and self.save_every is None) or resume.is_due(self)
        if due or self.record.done or self.stopping:
            resume.save(self)
        if self.stopping and not self.record.done:
            raise KeyboardInterrupt
        self.n_paused = self.n_done
        self.record.start_clock()

    def _crossed(self, n: int | None) -> bool:
        return n is not None and self.n_done // n > self.n_paused // n

    def _evaluate(self) -> None:
        """Evaluate on every process, with the buffers of the first one, whose metrics count."""
        assert self.evaluate is not None
        self.monitor.settle()
        self.collectives.broadcast(self.model.buffers())
        self.model.eval()
        evaluation = check_metrics(self.evaluate(self.net), self.metric)
        metrics, name = self.collectives.broadcast_object(evaluation)
        self.model.train()
        entry = {"step": self.n_done, "epoch": self.sampler.epoch, **self.record.clock(), **metrics}
        value = metrics[name] if self.greater_is_better else -metrics[name]
        if self.record.add_evaluation(entry, value) and self.load_best:
            state = self.model.state_dict()
            self.best = {key: tensor.detach().cpu().clone() for key, tensor in state.items()}
        self._log(entry)
        self.monitor.check_evaluation(metrics, name)
        self.record.done = self.patience is not None and self.record.since_best() >= self.patience

    def _end_record(self) -> None:
        """Close the record of the epoch so far, over all processes."""
        steps, lr = self.engine.accumulation.steps, self.lr_schedule.get_last_lr()[0]
        facts = {"delta": self.engine.delta, "accumulation": steps, "lr": lr}
        self._log(self.record.end_epoch(self.collectives.sum_numbers, **facts))

    def _log(self, entry: dict[str, Any]) -> None:
        if self.log is not None and self.collectives.rank == 0:
            self.log(dict(entry))
