"""What happens to a batch: it fights or is checked, and what that showed is noted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch
from accelerate.utils import send_to_device
from torch import Tensor, nn

from sparring.backward.skipper import Look, Skipper
from sparring.heads.linear import LinearLoss
from sparring.losses import Loss
from sparring.training import batches
from sparring.training.accumulation import AdaptiveAccumulation
from sparring.training.divergence import DivergenceMonitor
from sparring.training.record import Record
from sparring.training.replicas import Replicas
from sparring.training.scorecard import CHECK, Scorecard


class Host(Protocol):
    """Who trains: ``loop.Loop``, or what stands for another trainer's loop (``integrations/corner.py``)."""

    net: nn.Module  # as it is called
    skipper: Skipper
    windows: AdaptiveAccumulation
    card: Scorecard
    record: Record
    replicas: Replicas
    engine: Any  # an Accelerator, or what has its backward
    samples: batches.Paired
    collate: Callable[[list[Any]], Any] | None
    batch_size: int
    device: torch.device

    @property
    def monitor(self) -> DivergenceMonitor | None:
        """Looks for NaN; None where that is a framework's business."""

    @property
    def objective(self) -> Loss | LinearLoss:
        """Of logits, or of features where it has the model's last layer."""

    @property
    def forward(self) -> Callable[[nn.Module, Any], tuple[Tensor, Tensor]]: ...

    @property
    def scorecard(self) -> Scorecard | bool | None:
        """Whether anybody looks at the card."""

    def delta(self) -> float | None: ...


class Bouts:
    """The bouts of a loop. ``carried`` are samples found lost when checked that have not fought yet."""

    def __init__(self, loop: Host) -> None:
        self.loop = loop
        self.collate = batches.Collate(loop.collate)
        self.carried: list[int] = []

    def run(self, part: batches.Part, kind: int) -> None:
        """A batch of the sampler's. Who was found lost fights with the next fighters, or once there is a batch of such."""
        if kind == CHECK:
            self.check(part)
            while self.n_carried() >= self.loop.batch_size * self.loop.replicas.size:
                self.fight(self.take_carried())
        else:
            self.fight([part, *self.take_carried()])

    def finish(self) -> None:
        """Before an epoch ends: nobody who was found lost is left without a fight."""
        while self.n_carried():
            self.fight(self.take_carried())

    def fight(self, parts: list[batches.Part]) -> None:
        """Forward, and backward unless the forward shows it won."""
        loop = self.loop
        passes = [loop.skipper.look(self.look, part, batches.cut_part) for part in parts]
        counts = [done.seen.counts() for done in passes]
        n_all, n_won, mass, loss = loop.replicas.sum(
            [sum(column) for column in zip(*counts, strict=True)] or [0.0] * 4
        )
        if loop.monitor is not None:
            loop.monitor.batch(parts, [done.seen for done in passes], loss, mass)
        scale = loop.windows.add(n_all=int(n_all), n_masked=int(n_won), mass=mass)
        for done, count, (_, index) in zip(passes, counts, parts, strict=True):
            n_backward = loop.skipper.backward(done, scale, loop.engine.backward)
            self._note(done.seen, index)
            loop.record.fought(done, count, n_backward)

    def check(self, part: batches.Part) -> None:
        """Forward without gradients, in eval mode."""
        seen = self.loop.skipper.score(self.look, part)
        self._note(seen, part[1])
        self.carried += part[1][seen.lost()].tolist()
        self.loop.record.checked(seen)

    def look(self, part: batches.Part) -> Look:
        loop = self.loop
        logits, target = loop.forward(loop.net, part[0])
        head = loop.objective if isinstance(loop.objective, LinearLoss) else None
        return Look(
            logits, target, loop.card.weigh(part[1], loop.objective.rows(logits, target)), len(part[1]), head
        )

    def _note(self, seen: Look, index: Tensor) -> None:
        if self.loop.scorecard:
            self.loop.card.note(index, seen, self.loop.delta() or 0.0, self.loop.objective.ignore_index)

    def n_carried(self) -> float:
        """Over all processes."""
        return self.loop.replicas.sum([len(self.carried)])[0]

    def take_carried(self) -> list[batches.Part]:
        """A batch of those found lost, two at most for the memory's sake; none where only other processes found some."""
        most = 2 * self.loop.batch_size
        found, self.carried = self.carried[:most], self.carried[most:]
        return (
            [send_to_device(self.collate([self.loop.samples[i] for i in found]), self.loop.device)]
            if found
            else []
        )
