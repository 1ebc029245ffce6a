"""The training loop: Section 3 of the paper, and what it leaves on the table.

    batch ─► look ─► skip the backward of what is won ─► accumulate ─► step ─► δ and learning rate ─► evaluate ─► save

On Accelerate: one process or many (``accelerate launch``, ``torchrun``), any device, mixed precision. Gradients are summed over the
processes once a window, by the loop itself, so that no process can wait for a collective that another skipped.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader

from sparring.backward.skipper import Skipper
from sparring.heads.linear import LinearLoss
from sparring.losses import Loss, list_losses, make_loss
from sparring.losses.checks import check_count
from sparring.losses.delta import DeltaSchedule, delta_value
from sparring.training import batches
from sparring.training.accumulation import AdaptiveAccumulation, ConstantAccumulation
from sparring.training.divergence import DivergenceError as DivergenceError
from sparring.training.divergence import DivergenceMonitor
from sparring.training.presets import Speed, find_speed
from sparring.training.record import Record, figures_of
from sparring.training.replicas import Replicas, check_engine
from sparring.training.sampler import RevisitSampler
from sparring.training.schedules import Schedule, adamw, find_schedule
from sparring.training.scorecard import Scorecard

try:
    from accelerate import Accelerator
    from accelerate.utils import send_to_device, set_seed, tqdm

    from sparring.training import resume
    from sparring.training.batch_step import Bouts
except ImportError as error:
    raise ImportError("the training loop needs Accelerate: pip install 'sparring[lab]'") from error


def train(model: nn.Module, loss: Loss | LinearLoss | str, data: Any, **settings: Any) -> Record:
    """Train ``model`` on ``data``: ``Loop(model, loss, data, **settings).run()``."""
    return Loop(model, loss, data, **settings).run()


@dataclass
class Loop:
    """Everything a run is made of. Steps are counted in *planned batches*: those an epoch has when nobody rests, each counted once
    whatever the accumulation. ``total_steps`` of them make the run, so learning rate and δ end where they should.

    >>> from torch.utils.data import TensorDataset
    >>> from sparring import ASSoftmaxLoss
    >>> x = torch.randn(64, 4)
    >>> data = TensorDataset(x, (x[:, 0] > 0).long())
    >>> loop = Loop(nn.Linear(4, 2), ASSoftmaxLoss(delta=0.3), data, batch_size=16, epochs=5, lr=0.1, accumulation=AdaptiveAccumulation())
    >>> record = loop.run()
    >>> loop.total_steps, len(record.epochs), record.totals["n_forward"], record.totals["n_backward"] < 320
    (20, 5, 320, True)
    """

    model: nn.Module
    loss: (
        Loss | LinearLoss | str
    )  # one of ours, or its name; a LinearLoss on a layer of the model's takes the features forward returns
    data: Any  # a map-style data set; samples are dicts with "labels", or tuples ending in the target
    _: KW_ONLY
    batch_size: int = 32
    epochs: int = 3
    optimizer: Optimizer | None = None  # schedules.adamw with lr
    lr: float = 5e-5
    schedule: Schedule | str = "linear"  # or cosine, constant
    accumulation: AdaptiveAccumulation | int = 1
    speed: str = "skip"  # off, skip or all: see speed.py. The next two go on top of it
    skip: str | None = None  # off, micro, rows, two-pass or auto: see skip.Skipper
    scorecard: Scorecard | bool | None = None  # lets samples rest; True: one with its defaults
    lengths: Sequence[int] | None = None  # of the samples, to batch similar ones
    forward: Callable[[nn.Module, Any], tuple[Tensor, Tensor]] = batches.forward
    collate: Callable[[list[Any]], Any] | None = None
    workers: int = 0
    max_grad_norm: float | None = 1.0
    on_divergence: str = (
        "raise"  # a NaN or infinite loss, gradient or weight: raise a DivergenceError, warn once, or ignore
    )
    evaluate: Callable[[nn.Module], dict[str, float] | float] | None = None
    eval_every: int | None = (
        None  # planned batches; None: at the end of every epoch. The end of the run is always looked at
    )
    metric: str | None = None  # of those evaluate returns: the first
    greater_is_better: bool = True
    patience: int | None = None  # evaluations without a better metric before the run stops
    load_best: bool = False  # end with the weights of the best evaluation
    folder: str | Path | None = None  # for checkpoints
    save_every: int | None = None  # planned batches; None: at the end of every epoch
    save_seconds: float | None = (
        None  # save after so long, too: on one process, and no more than a twentieth of the time
    )
    resume: bool | str = (
        True  # from the folder's checkpoint; "anyway": although settings or data have changed since
    )
    seed: int = 0
    log: Callable[[dict[str, Any]], None] | None = None  # gets every record
    log_step: Callable[[dict[str, Any]], None] | None = (
        None  # gets one for every optimizer step: samples and loss are this process's own
    )
    progress: bool | None = None  # a bar; None: on a terminal
    accelerator: Accelerator | None = None

    def __post_init__(self) -> None:
        check_count("epochs", self.epochs)
        for name in ("eval_every", "save_every", "patience"):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name))
        self.objective = make_loss(self.loss) if isinstance(self.loss, str) else self.loss
        if not isinstance(self.objective, (Loss, LinearLoss)):
            raise ValueError(
                f"loss must be one of ours or a name ({', '.join(list_losses())}), got {type(self.loss).__name__}"
            )
        if isinstance(self.objective, LinearLoss):
            check_layer(self.objective.linear, self.model)
        if self.resume not in (True, False, resume.ANYWAY):
            raise ValueError(f'resume must be True, False or "{resume.ANYWAY}", got {self.resume!r}')
        self.make_schedule = find_schedule(self.schedule)
        self.samples = batches.Paired(self.data)
        preset = find_speed(self.speed)
        self.objective = _adapted(preset, self.objective)
        self.skip = self.skip or preset.skip
        self.scorecard = preset.card(len(self.data), self.model) if self.scorecard is None else self.scorecard
        self.engine = self.accelerator or Accelerator()
        check_engine(self.engine)
        self.device = self.engine.device
        self.replicas = Replicas(self.device)
        resting = Scorecard(len(self.data)) if self.scorecard else Scorecard(len(self.data), max_rest=0)
        self.card = self.scorecard if isinstance(self.scorecard, Scorecard) else resting
        self.card.check_for(len(self.data), self.model)
        self.sampler = RevisitSampler(
            self.card,
            self.batch_size,
            lengths=self.lengths,
            seed=self.seed,
            rank=self.replicas.rank,
            world_size=self.replicas.size,
        )
        self.total_steps = self.epochs * self.sampler.n_planned
        self.windows = (
            ConstantAccumulation(self.accumulation)
            if isinstance(self.accumulation, int)
            else self.accumulation
        )
        self.record = Record()
        self.bouts = Bouts(self)
        self.monitor = DivergenceMonitor(self, self.on_divergence)
        self.stopping = False

    def stop(self) -> None:
        """Save and raise KeyboardInterrupt as soon as the window is over: for a signal handler, in a run of one process."""
        self.stopping = True

    # ------------------------------------------------------------ the run

    def run(self) -> Record:
        """From the beginning, or from the checkpoint in ``folder``."""
        set_seed((self.seed + self.replicas.rank) % 2**32)  # numpy takes no larger one
        self.card.forget()  # another run's epochs
        self.windows.reset()
        self.monitor.reset()
        self.net = self.engine.prepare_model(self.model, evaluation_mode=True)
        self.replicas.same([*self.model.parameters(), *self.model.buffers()])
        self.objective.to(self.device)
        optimizer = self.optimizer or adamw(self.model, self.lr)
        self.lr_schedule = self.make_schedule(optimizer, self.total_steps)
        self.stepper = self.engine.prepare_optimizer(optimizer)
        self.stepper.zero_grad()
        assert self.skip is not None
        self.skipper = Skipper(self.model, self.skip)
        self.save_due = time.perf_counter() + (self.save_seconds or 0.0)
        self.n_done = self.n_paused = 0  # planned batches; and at the last look at the clock
        self.won_share = 0.0  # of the last window
        self.best: dict[str, Tensor] | None = None
        self.identity: dict[str, Any] = {}  # what the result depends on
        resume.begin(self)
        visible = self.progress if self.progress is not None else sys.stderr.isatty()
        self.bar = tqdm(
            total=self.total_steps, initial=self.n_done, disable=not visible, desc="training", unit="batch"
        )
        try:
            while not self.record.done:
                self._epoch()
        finally:
            self.bar.close()
            self.skipper.close()
            self.engine.unwrap_model(self.net, keep_fp32_wrapper=False)
        self.replicas.same(self.model.buffers())
        if self.load_best and self.best is not None:
            self.model.load_state_dict(self.best)
        return self.record

    def _epoch(self) -> None:
        if self.sampler.position == len(self.sampler) or self.sampler.epoch < 0:
            self.sampler.set_epoch(self.sampler.epoch + 1)
            self.record.begin(self.sampler.epoch, **self.card.counts())
        self.model.train()
        generator = torch.Generator().manual_seed(
            self.seed + self.sampler.epoch
        )  # workers' seeds; leaves the global one alone
        start = self.sampler.position
        loader = DataLoader(
            self.samples,
            batch_sampler=self.sampler,
            collate_fn=self.bouts.collate,
            num_workers=self.workers,
            generator=generator,
        )
        self.clock = clock()
        for position, batch in enumerate(loader if len(self.sampler) else (), start):
            self.bouts.run(send_to_device(batch, self.device), self.sampler.kind(position))
            if self.windows.should_step:
                self._step(self.sampler.progress(position))
            self._tick()
            self._pause(position + 1)
            if self.record.done:
                return
        self._end_epoch()

    def _end_epoch(self) -> None:
        """Nobody who was found lost is left without a fight, and no window without its step."""
        self.bouts.finish()
        through = (self.sampler.epoch + 1) * self.sampler.n_planned
        if self.windows.n_micro:
            self._step(through)
        self.monitor.settle()
        self._follow(through)
        self.card.sync()
        self._tick()
        self._report()
        last = self.sampler.epoch + 1 >= self.epochs
        if self.evaluate is not None and (last or self.eval_every is None or self._crossed(self.eval_every)):
            self._evaluate()
        self.record.done = self.record.done or last
        if self.record.done or self.stopping or self.save_every is None or self._crossed(self.save_every):
            self._save(len(self.sampler))
        if self.stopping and not self.record.done:
            raise KeyboardInterrupt
        self.n_paused = self.n_done

    def delta(self) -> float | None:
        """The δ of now; None for a loss that has none."""
        delta = getattr(self.objective, "delta", None)
        return None if delta is None else delta_value(delta)

    # ------------------------------------------------------------ one window

    def _step(self, n_done: int) -> None:
        """The optimizer's step, with the gradient of the mean over the window."""
        self.won_share = self.windows.n_masked / max(self.windows.n_all, 1)  # of those who fought
        now = {
            "won_share": self.won_share,
            "delta": self.delta(),
            "accumulation": self.windows.n_micro,
            "lr": self.lr_schedule.get_last_lr()[0],
        }
        self.replicas.sum_gradients(self.model.parameters())
        self.windows.close(self.model.parameters())
        norm = None
        if self.max_grad_norm is not None:
            norm = self.engine.clip_grad_norm_(self.model.parameters(), self.max_grad_norm)
        self.stepper.step()
        self.monitor.update(n_done, norm)
        self.stepper.zero_grad()
        window = self.record.stepped()
        self._follow(n_done)
        if self.log_step is not None and self.replicas.rank == 0:
            self.log_step({"step": n_done, "epoch": self.sampler.epoch, **window, **now})

    def _follow(self, n_done: int) -> None:
        """Learning rate and δ go by planned batches; those who rest count as consumed."""
        delta = getattr(self.objective, "delta", None)
        for _ in range(n_done - self.n_done):
            self.lr_schedule.step()
            if isinstance(delta, DeltaSchedule):
                delta.step(self.won_share)
        self.bar.update(n_done - self.n_done)
        self.n_done = n_done

    def _pause(self, position: int) -> None:
        """Between windows: evaluate and save when it is time to."""
        if self.windows.n_micro or position == len(self.sampler):
            return
        if self.evaluate is not None and self._crossed(self.eval_every):
            self._evaluate()
        if self.record.done:
            self._report()
        overdue = (
            self.save_seconds is not None and self.replicas.size == 1 and time.perf_counter() >= self.save_due
        )
        if self.record.done or self.stopping or overdue or self._crossed(self.save_every):
            self._save(position)
        if self.stopping:
            raise KeyboardInterrupt
        self.n_paused = self.n_done
        self.clock = clock()

    def _save(self, position: int) -> None:
        began = time.perf_counter()
        if self.monitor.can_save():
            resume.save(self, position)
        now = time.perf_counter()
        self.save_due = now + max(self.save_seconds or 0.0, 20 * (now - began))

    def _tick(self) -> None:
        """Seconds of training: everything but evaluating and saving."""
        before, self.clock = self.clock, clock()
        self.record.spent(*(now - then for now, then in zip(self.clock, before, strict=True)))

    def _crossed(self, every: int | None) -> bool:
        return every is not None and self.n_done // every > self.n_paused // every

    def _evaluate(self) -> None:
        """On every process, with the first one's buffers; the first one's figures count."""
        assert self.evaluate is not None
        self.monitor.settle()
        self.replicas.same(self.model.buffers())
        self.model.eval()
        figures = self.replicas.first(figures_of(self.evaluate(self.net)))
        self.model.train()
        name = self.metric or next(iter(figures))
        if name not in figures:
            raise ValueError(f'evaluate returned {", ".join(figures)}, but metric is "{name}"')
        entry = {
            "step": self.n_done,
            "epoch": self.sampler.epoch,
            "seconds": self.record.totals["seconds"],
            **figures,
        }
        if (
            self.record.evaluated(entry, figures[name] if self.greater_is_better else -figures[name])
            and self.load_best
        ):
            self.best = {
                name: value.detach().cpu().clone() for name, value in self.model.state_dict().items()
            }
        self._say(entry)
        self.monitor.evaluation(figures, name)
        self.record.done = self.patience is not None and self.record.since_best() >= self.patience

    def _report(self) -> None:
        """The epoch so far, over all processes."""
        self._say(
            self.record.end(
                self.replicas.sum,
                delta=self.delta(),
                accumulation=self.windows.steps,
                lr=self.lr_schedule.get_last_lr()[0],
            )
        )

    def _say(self, entry: dict[str, Any]) -> None:
        if self.log is not None and self.replicas.rank == 0:
            self.log(dict(entry))


def _adapted(preset: Speed, loss: Loss | LinearLoss) -> Loss | LinearLoss:
    """`Speed.adapted`; of a loss with a layer the layer stays the model's."""
    if not isinstance(loss, LinearLoss):
        return preset.adapted(loss)
    own = preset.adapted(loss.loss)
    return (
        loss
        if own is loss.loss
        else LinearLoss.on(loss.linear, own, impl=loss.impl, chunk_rows=loss.chunk_rows)
    )


def check_layer(layer: nn.Linear, model: nn.Module) -> None:
    """What trains the model must train the loss's layer, too."""
    trained = {id(parameter) for parameter in model.parameters()}
    if any(id(parameter) not in trained for parameter in layer.parameters()):
        raise ValueError(
            "the loss's linear layer is not part of the model, so nothing would train it; give it one that is, "
            "with LinearLoss.on(model.head, loss), and a forward= that returns what the layer takes"
        )


def clock() -> tuple[float, float]:
    """Seconds that passed, and those this process had a processor for: on a shared machine the second say more."""
    return time.perf_counter(), time.process_time()
