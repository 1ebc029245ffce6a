"""The scorecard: what is known of each sample, and whether it fights, is checked or rests."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from sparring.backward.skipper import Look, has_batch_norm
from sparring.losses.checks import check_count, check_range
from sparring.losses.rows import RowLosses

FIGHT, CHECK, REST = 0, 1, 2
NEVER = -1


class Scorecard:
    """Each sample's last margin and for how long it has been won; from it, what an epoch asks of it.

    - It *fights*: forward, and backward unless this forward shows it won. Every sample does that neither rests nor is checked.
    - It is *checked* (with ``check``): a forward without gradients, for one that was won with ``spare`` margin last time. Where it turns
      out lost it fights soon. Cheaper than a fight, but in eval mode: without dropout more is won, so this changes the run. One that was
      won narrowly is lost again too often for that to pay.
    - It *rests*: it is not even loaded. Rest is earned: a sample that was won with ``spare`` margin above δ in ``earn``
      looks in a row rests one epoch, then two, and so on to ``max_rest``; a narrow win starts the count again and rests
      ``narrow`` epochs; a loss ends all rest. ``max_rest=0`` lets nobody rest.

    So every sample is looked at within ``bound`` = max_rest + 1 epochs.

    >>> card = Scorecard(3, max_rest=2, spare=0.1, earn=1)
    >>> for epoch in range(4):
    ...     card.begin(epoch)
    ...     print(card.states().tolist())
    ...     looked = (card.states() != REST).nonzero().squeeze(1)
    ...     margin = torch.tensor([0.9, 0.35, 0.0])[looked]
    ...     card.update(looked, won=margin > 0.3, margin=margin, delta=0.3)
    [0, 0, 0]
    [2, 0, 0]
    [0, 0, 0]
    [2, 0, 0]
    """

    def __init__(
        self,
        n_samples: int,
        *,
        check: bool = False,
        max_rest: int = 2,
        spare: float = 0.1,
        earn: int = 1,
        narrow: int = 0,
    ) -> None:
        self.n_samples = check_count("n_samples", n_samples)
        self.check = check
        self.max_rest = int(check_range("max_rest", max_rest, 0, note="0 is no rest"))
        self.spare = check_range("spare", spare, 0, 1, note="margin above delta that earns rest")
        self.earn = check_count("earn", earn, note="comfortable wins in a row before the first rest")
        self.narrow = int(check_range("narrow", narrow, 0, note="epochs of rest after a narrow win"))
        self.epoch = 0
        self.margin = torch.full((n_samples,), torch.nan)  # when last looked at
        self.won = torch.zeros(n_samples, dtype=torch.bool)  # when last looked at
        self.streak = torch.zeros(n_samples, dtype=torch.int32)  # looks in a row at which it was won
        self.eased = torch.zeros(
            n_samples, dtype=torch.int32
        )  # of them the latest in a row with margin to spare
        self.seen = torch.full((n_samples,), NEVER, dtype=torch.int32)  # epoch of the last look
        self.due = torch.zeros(n_samples, dtype=torch.int32)  # epoch of the next

    def check_for(self, n_samples: int, model: nn.Module) -> None:
        """Whether it can be used with this data and this model."""
        if self.check and has_batch_norm(model):
            raise ValueError(
                "checks let lost samples fight by themselves, whose statistics BatchNorm would take; use check=False"
            )
        if self.n_samples != n_samples:
            raise ValueError(f"the scorecard is for {self.n_samples} samples, the data set has {n_samples}")

    @property
    def bound(self) -> int:
        """Within how many epochs every sample is looked at."""
        return self.max_rest + 1

    def begin(self, epoch: int) -> None:
        """Before the first batch of an epoch."""
        self.epoch = epoch

    def forget(self) -> None:
        """Before another run: what was seen in this one's epochs no longer counts. A card that has seen nothing stays as it is."""
        if bool((self.seen != NEVER).any()):
            fresh = Scorecard(self.n_samples)
            self.load_state_dict(fresh.state_dict())

    def states(self) -> Tensor:
        """(n_samples,) FIGHT, CHECK or REST in this epoch."""
        rest = self.due > self.epoch
        check = (self.eased > 0) & ~rest if self.check else torch.zeros_like(rest)
        return rest * REST + check * CHECK

    def note(self, index: Tensor, seen: Look, delta: float = 0.0, ignore_index: int = -100) -> None:
        """What a look at these samples showed. A sample of several rows has the margin of its weakest, ignored ones left out."""
        weakest = seen.margins(ignore_index).nan_to_num(torch.inf).amin(1)
        self.update(index, ~seen.lost(), weakest.masked_fill(weakest.isinf(), torch.nan), delta)

    def weigh(self, index: Tensor, rows: RowLosses) -> RowLosses:
        """The losses of these samples' rows as they are to count: as they are. For cards that leave out some and make up for it."""
        return rows

    def update(self, index: Tensor, won: Tensor, margin: Tensor, delta: float = 0.0) -> None:
        """Their results. ``margin`` is p_t minus the strongest rival's; ``delta`` the one that was asked for."""
        index, won, margin = index.cpu(), won.cpu(), margin.detach().float().cpu()
        self._check(index, won, margin)
        spare = won & (margin >= delta + self.spare)
        eased = torch.where(spare, self.eased[index] + 1, 0)
        narrow = self.narrow * (won & ~margin.isnan()).int()
        rest = torch.maximum(eased - self.earn + 1, narrow).clamp(0, self.max_rest)
        self.margin[index] = margin
        self.streak[index] = torch.where(won, self.streak[index] + 1, 0)
        self.won[index] = won
        self.eased[index] = eased
        self.seen[index] = self.epoch
        self.due[index] = self.epoch + 1 + rest

    def _check(self, index: Tensor, won: Tensor, margin: Tensor) -> None:
        if not index.shape == won.shape == margin.shape:
            raise ValueError(
                f"index, won and margin must agree, got {tuple(index.shape)}, {tuple(won.shape)} and {tuple(margin.shape)}"
            )
        if len(index) and not 0 <= int(index.min()) <= int(index.max()) < self.n_samples:
            raise ValueError(
                f"sample {int(index.max())} is not one of the scorecard's {self.n_samples}; is it made for this data set?"
            )

    def counts(self) -> dict[str, int]:
        """How many fight, are checked and rest in this epoch."""
        counts = torch.bincount(self.states(), minlength=3).tolist()
        return {"fight": counts[FIGHT], "check": counts[CHECK], "rest": counts[REST]}

    def sync(self) -> None:
        """Share what each process saw in this epoch; every process calls it, at the end of one. Nothing without processes."""
        if not (dist.is_available() and dist.is_initialized()) or dist.get_world_size() == 1:
            return
        mine = self.state_dict()
        everybody: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(everybody, mine)
        for theirs in reversed(everybody):  # where several saw a sample, the first of them counts
            fresh = theirs["seen"] == self.epoch
            for name in self._tensors:
                getattr(self, name)[fresh] = theirs[name][fresh]

    _tensors = ("margin", "won", "streak", "eased", "seen", "due")

    def state_dict(self) -> dict[str, Any]:
        return {"epoch": self.epoch, **{name: getattr(self, name).clone() for name in self._tensors}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if len(state["margin"]) != self.n_samples:
            raise ValueError(
                f"this scorecard has {self.n_samples} samples, the saved one {len(state['margin'])}: other data"
            )
        self.epoch = state["epoch"]
        for name in self._tensors:
            getattr(self, name).copy_(state[name])

    def __repr__(self) -> str:
        settings = f"check={self.check}, max_rest={self.max_rest}, spare={self.spare}, earn={self.earn}, narrow={self.narrow}"
        return f"Scorecard({self.n_samples}, {settings}): {self.counts()} in epoch {self.epoch}"
