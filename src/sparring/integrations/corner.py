"""What stands in another trainer's corner: our losses, skipping, resting and accumulation behind its loop.

The trainer asks for batches, hands them back, and steps its optimizer after each window:

    corner.open(net) ─► window ─► corner.fight(parts) ─► corner.close() ─► the trainer's optimizer ─► corner.follow(n)

Gradients are summed over the processes by ``close``, once a window, so no process can wait for a collective that another skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from sparring.backward.skipper import Skipper, has_batch_norm
from sparring.losses import Loss
from sparring.losses.delta import DeltaSchedule, delta_value
from sparring.training.accumulation import AdaptiveAccumulation
from sparring.training.batch_step import Bouts
from sparring.training.record import Record
from sparring.training.replicas import Replicas
from sparring.training.scorecard import FIGHT, Scorecard


class Part(NamedTuple):
    """A batch as a window takes it."""

    batch: Any  # None: everybody rests
    indices: Tensor  # of its samples in the data set
    kind: int = FIGHT
    done: int = 0  # planned batches of the epoch that are consumed with it; 0: not counted
    last: bool = False  # of its epoch


@dataclass
class Corner:
    """A run's own state. ``forward`` gives logits and targets of a batch, as our losses take them."""

    model: nn.Module
    objective: Loss
    forward: Callable[[nn.Module, Any], tuple[Tensor, Tensor]]
    _: KW_ONLY
    engine: Any  # an Accelerator, or what has its backward
    device: torch.device
    windows: AdaptiveAccumulation
    skip: str = "rows"
    scorecard: Scorecard | None = None
    batch_size: int = 1
    samples: Any = None  # batches.Paired, where samples rest
    collate: Callable[[list[Any]], Any] | None = None
    record: Record = field(default_factory=Record)
    monitor: None = None  # NaN is the framework's business: see docs/integrations.md

    def __post_init__(self) -> None:
        self.objective.to(self.device)
        self.replicas = Replicas(self.device)
        self.card = self.scorecard or Scorecard(1, max_rest=0)
        self.net = self.model
        self.skipper = Skipper(self.model, self.skip)
        self.bouts = Bouts(self)
        self.won_share = 0.0  # of the last window
        self.n_micro = 0  # likewise
        self.normed = has_batch_norm(self.model)
        self.replicas.same([*self.model.parameters(), *self.model.buffers()])

    def remove(self) -> None:
        """Give the model back as it was."""
        self.skipper.close()

    def delta(self) -> float | None:
        """The δ of now; None for a loss that has none."""
        delta = getattr(self.objective, "delta", None)
        return None if delta is None else delta_value(delta)

    def fight(self, parts: Iterable[Part]) -> None:
        """Forward, and backward where it is needed."""
        for part in parts:
            if part.batch is not None:
                self.bouts.run((part.batch, part.indices.to(self.device)), part.kind)
            if part.last:
                self.bouts.finish()
                self.card.sync()

    def close(self) -> float:
        """End the window: its gradients become those of the mean over all its rows on all processes. Returns the mean loss."""
        n_all, n_won, self.n_micro = self.windows.n_all, self.windows.n_masked, self.windows.n_micro
        if n_all:
            self.won_share = n_won / n_all
        self.replicas.sum_gradients(self.model.parameters())
        self.windows.close(self.model.parameters())
        if self.normed:
            self.replicas.same(self.model.buffers())
        loss, mass = self.replicas.sum([self.record.window["loss"], self.record.window["mass"]])
        self.record.stepped(n_updates=int(self.n_micro > 0))
        return loss / (mass or 1)

    def follow(self, n_steps: int) -> None:
        """So many planned batches are over: δ goes by them, as the learning rate does."""
        delta = getattr(self.objective, "delta", None)
        if isinstance(delta, DeltaSchedule):
            for _ in range(n_steps):
                delta.step(self.won_share)

    def counts(self) -> dict[str, float]:
        """Over all processes, since the run began."""
        names = ("n_forward", "n_backward", "n_rows", "n_won")
        return dict(zip(names, self.replicas.sum([self.record.totals[name] for name in names]), strict=True))

    def _parts(self) -> dict[str, Any]:
        """What has a state of its own."""
        return {
            "loss": self.objective,
            "accumulation": self.windows,
            "scorecard": self.card,
            "record": self.record,
        }

    def state_dict(self) -> dict[str, Any]:
        """Of this process."""
        own = {"carried": list(self.bouts.carried), "won_share": self.won_share}
        return own | {name: part.state_dict() for name, part in self._parts().items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name, part in self._parts().items():
            part.load_state_dict(state[name])
        self.bouts.carried, self.won_share = list(state["carried"]), state["won_share"]


def part_of(batch: Any) -> Part:
    """A batch whose samples nobody follows."""
    found = next(_tensors(batch), None)
    if found is None:
        raise ValueError(
            f"a batch must hold tensors that run over its samples; got {type(batch).__name__} without any"
        )
    return Part(batch, torch.arange(len(found)))


def _tensors(batch: Any) -> Iterator[Tensor]:
    """Those in a batch, however deep."""
    if isinstance(batch, Tensor) and batch.ndim:
        yield batch
    elif isinstance(batch, (Mapping, list, tuple)):
        for value in batch.values() if isinstance(batch, Mapping) else batch:
            yield from _tensors(value)


def take_window(source: Iterator[Part], n_micro: int, before: int) -> list[Part]:
    """The parts of one window: ``n_micro`` that fight, more where those have not brought the run on by a planned batch, fewer at an
    epoch's end. ``before``: planned batches of the epoch that are done."""
    taken: list[Part] = []
    n_fighting = 0
    for part in source:
        taken.append(part)
        n_fighting += part.kind == FIGHT
        if n_fighting >= n_micro and part.done > before:
            break
    return taken
